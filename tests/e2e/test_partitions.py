"""Many clients create uploads of one run at once, on two workers."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.app.harness import Answer, Service
from tests.app.runs.requests import TUS, Uploader, stream
from tests.scale import SOAK

ROUNDS = 150 if SOAK else 12
AT_ONCE = 16
WHOLE = stream(4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    started = Service(tmp_path_factory.mktemp("partitions"), workers=2)
    try:
        yield started
        assert started.stop() == 0
        assert not started.failures()
    finally:
        started.kill()


def create(run: Uploader, start: threading.Barrier, number: int) -> Answer:
    """Create the upload of partition 1; every other request has all of its bytes."""
    last, body = ("?1", WHOLE) if number % 2 else ("?0", b"")
    start.wait()
    # No version of a protocol: such requests get no interim answers.
    return run.ask("POST", f"{run.path}/streams?partition=1", body, Upload_Complete=last)


def race(run: Uploader, pool: ThreadPoolExecutor) -> tuple[list[Answer], list[Answer]]:
    """The answers to the requests without bytes, and to those with all of them."""
    start = threading.Barrier(AT_ONCE)
    answers = list(pool.map(lambda number: create(run, start, number), range(AT_ONCE)))
    return answers[::2], answers[1::2]


def outcome(answer: Answer) -> str:
    return "201" if answer.status == 201 else str(answer.json()["code"])


def used(server: Service) -> int:
    """Streams that count in quotas."""
    uri = f"file:{server.data_dir / 'state.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as state:
        return int(
            state.execute("SELECT total(count) FROM usage WHERE kind = 'stream'").fetchone()[0]
        )


def test_of_many_creations_at_once_one_has_the_partition(server: Service) -> None:
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(ROUNDS):
            run = Uploader(server)
            before = used(server)
            empty, whole = race(run, pool)
            found.update(f"empty {outcome(a)}" for a in empty)
            found.update(f"whole {outcome(a)}" for a in whole)
            listed = run.streams()
            readable = [s for s in listed if run.ask("HEAD", s["address"], **TUS).status == 200]
            found["ghosts"] += len(listed) - len(readable) + (used(server) - before - len(listed))
            found["partitions with two streams"] += len(listed) > 1
            acknowledged = {a.getheader("Location") for a in whole if a.status == 201}
            complete = {s["address"] for s in readable if s["state"] == "complete"}
            found["lost"] += len(acknowledged - complete)
            refused = [a.json() for a in (*empty, *whole) if a.status == 409]
            answered = {a.getheader("Location") for a in (*empty, *whole) if a.status == 201}
            found["answered and gone"] += len(answered - {s["address"] for s in readable})
            found["409 that name another"] += sum(
                problem.get("address") not in complete for problem in refused
            )
            for s in listed:
                found["undeletable"] += run.ask("DELETE", s["address"], **TUS).status != 204
            found["left"] += used(server) - before
    print(dict(found))
    # One a round has the partition: the first with all bytes.
    assert found.pop("whole 201") == ROUNDS
    for expected in ("empty 201", "empty partition-taken", "whole partition-taken"):
        found.pop(expected, None)
    assert not +found


def test_of_many_creations_without_a_partition_each_has_its_own(server: Service) -> None:
    def create_any(run: Uploader, start: threading.Barrier, number: int) -> Answer:
        last, body = ("?1", stream(4, first=1 + 4 * number)) if number % 4 == 0 else ("?0", b"")
        start.wait()
        return run.ask("POST", f"{run.path}/streams", body, Upload_Complete=last)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(ROUNDS // 4):
            run, start = Uploader(server), threading.Barrier(AT_ONCE)
            made = list(pool.map(lambda n: create_any(run, start, n), range(AT_ONCE)))  # noqa: B023
            assert [answer.status for answer in made] == [201] * AT_ONCE
            addresses = [str(answer.getheader("Location")) for answer in made]
            for number, address in enumerate(addresses):
                offset = 0 if number % 4 else len(WHOLE)
                assert run.offset(address) == offset
            partitions = [s["partition"] for s in run.streams()]
            assert partitions == list(range(1, AT_ONCE + 1))


def stored(server: Service) -> list[str]:
    """Names of the files with bytes of streams."""
    return [f.name for f in (server.data_dir / "blobs" / "stream").rglob("*") if f.is_file()]


def test_appends_that_lose_leave_no_bytes(server: Service) -> None:
    run = Uploader(server)
    address = run.create()
    before = set(stored(server))
    start = threading.Barrier(4)

    def patch(_number: int) -> int:
        start.wait()
        return run.patch(address, 0, stream(2000)).status

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(patch, range(4)))
    assert set(statuses) <= {204, 409}
    assert 204 in statuses
    assert len(set(stored(server)) - before) == 1
    assert run.ask("DELETE", run.path).status == 204
    assert set(stored(server)) <= before
