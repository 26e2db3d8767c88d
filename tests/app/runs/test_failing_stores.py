"""Runs on stores that cannot be written, have no room, or hold damaged bytes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.runs.records import RunRecord
from app.runs.sealing.jobs import Jobs
from app.state.base import StoreDamagedError, StoreReadOnlyError
from app.state.quotas import Limit
from tests.app.runs.requests import stream
from tests.app.runs.uploaded import Uploads, partitions
from tests.runs import RunCase, random_run
from tests.scale import THOROUGH
from tests.serverless import AnswerAbortedError, serverless

GOOD = stream()
PART = {"Content-Type": "application/partial-upload", "Upload-Complete": "?0"}


@pytest.fixture(scope="module")
def case() -> RunCase:
    return random_run(np.random.default_rng(4))


def ask(service: Uploads, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
    async def answer() -> httpx.Response:
        async with service.client() as client:
            return await client.request(method, path, **options)

    return asyncio.run(answer())


def ask_raising(service: Uploads, path: str) -> None:
    """Ask for what is broken off, which is raised where there is no connection."""

    async def answer() -> None:
        transport = httpx.ASGITransport(app=serverless(service.app), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.get(path)

    asyncio.run(answer())


@contextlib.contextmanager
def read_only(service: Uploads) -> Iterator[None]:
    """As on a disk that was mounted again without the right to write."""
    records: Any = service.sealer.sealing.records
    blobs = service.streams.blobs
    while not hasattr(records, "_writer"):
        records = records._records

    def refuse(*_args: object, **_options: object) -> None:
        raise StoreReadOnlyError("the data directory is not writable")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("append", "delete", "put", "writer"):
            patch.setattr(blobs, name, refuse)
        records._writer.execute("PRAGMA query_only = 1")
        yield
    records._writer.execute("PRAGMA query_only = 0")


def test_a_store_that_cannot_be_written_is_read_and_loses_nothing(
    tmp_path: Path, case: RunCase
) -> None:
    service = Uploads(tmp_path)
    done = service.run(["melt"])
    service.upload(done, *partitions(case, 1, 2))
    assert service.seal(done).state == "done"
    run = service.run(["melt"])
    begun = service.extend(service.add(run), GOOD[:500], complete=False)
    address = f"/v1/runs/{run.id}/streams/{begun.id}"
    with read_only(service):
        for method, path in (
            ("POST", "/v1/runs"),
            ("POST", f"/v1/runs/{run.id}/streams"),
            ("POST", f"/v1/runs/{done.id}/reports"),
            ("DELETE", f"/v1/runs/{run.id}"),
        ):
            body = {"perspective": "gul", "reports": ["selt"]} if path == "/v1/runs" else None
            body = {"reports": ["selt"]} if path.endswith("reports") else body
            headers = {"Upload-Complete": "?0"} if path.endswith("streams") else {}
            answer = (
                ask(service, method, path, json=body, headers=headers)
                if body
                else ask(service, method, path, headers=headers)
            )
            assert (answer.status_code, answer.json()["code"]) == (503, "store"), (method, path)
        headers = {**PART, "Upload-Offset": "500"}
        answer = ask(service, "PATCH", address, content=GOOD[500:], headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (503, "store")
        answer = ask(service, "HEAD", address)
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, "500")
        assert ask(service, "GET", f"/v1/runs/{done.id}/reports/melt?format=bin").status_code == 200
        rows = ask(service, "GET", f"/v1/runs/{done.id}/rows/melt?format=bin")
        assert rows.status_code == 200
        assert ask(service, "GET", f"/v1/runs/{run.id}").json()["bytes"] == 500
    headers = {**PART, "Upload-Offset": "500", "Upload-Complete": "?1"}
    answer = ask(service, "PATCH", address, content=GOOD[500:], headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "complete")
    stored = service.streams.stored(service.streams.get(service.now(run), begun.id))
    assert stored.read(0, len(GOOD)) == GOOD


def test_the_offset_of_an_append_that_was_cut_off_is_told_by_a_store_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    begun = service.extend(service.add(run), GOOD[:500], complete=False)
    # Its server was killed before it could say that the append has ended.
    taken = service.streams.swap(begun, replace(begun, fence=begun.fence + 1, appending=True))
    address = f"/v1/runs/{run.id}/streams/{begun.id}"
    with read_only(service):
        answer = ask(service, "HEAD", address)
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, "500")
    assert ask(service, "HEAD", address).headers["Upload-Offset"] == "500"
    assert service.streams.get(service.now(run), begun.id).fence == taken.fence + 1


def run_of_sums(service: Uploads, case: RunCase) -> RunRecord:
    inputs = {"occurrence": service.occurrence(case)}
    return service.run(["aal"], inputs, no_of_periods=case.periods)


def damage(directory: Path, kind: str) -> int:
    """Change a byte of every blob of a kind; return how many there are."""
    paths = list(directory.rglob(f"blobs/{kind}/*/*"))
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    return len(paths)


def test_damaged_partial_sums_are_computed_again(tmp_path: Path, case: RunCase) -> None:
    service = Uploads(tmp_path)
    service.sealer.sealing.segment = 400
    found = []
    for damaged in (False, True):
        run = run_of_sums(service, case)
        service.upload(run, *partitions(case, 1, 2))
        assert service.seal(run).state == "done"
        if damaged:
            lost, *_ = tmp_path.rglob(f"blobs/segment/*/{run.id}*")
            assert damage(tmp_path, "segment") > 4
            lost.unlink()
        answer = ask(service, "POST", f"/v1/runs/{run.id}/reports", json={"reports": ["ept"]})
        assert answer.status_code == 202
        service.sealer.look()
        path = f"/v1/runs/{run.id}/reports/ept?format=bin"
        found.append(ask(service, "GET", path).content)
    assert found[0] == found[1] != b""


def test_damaged_bytes_are_in_no_rows_nor_in_another_format(tmp_path: Path, case: RunCase) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    for kind in ("stream", "report"):
        assert damage(tmp_path, kind)
    path = f"/v1/runs/{run.id}"
    answer = ask(service, "GET", f"{path}/rows/melt?format=bin")
    assert (answer.status_code, answer.json()["code"]) == (503, "store")
    for form in ("bin", "csv"):
        assert ask(service, "GET", f"{path}/reports/melt?format={form}").status_code == 202
    service.sealer.look()
    for form in ("bin", "csv"):
        answer = ask(service, "GET", f"{path}/reports/melt?format={form}")
        assert (answer.status_code, answer.json()["code"]) == (404, "report-missing")
        assert answer.json()["problem"]["code"] == "store"


LOSE = {"damaged": lambda path: path.write_bytes(b"?" * 100), "lost": Path.unlink}


@pytest.mark.parametrize("lose", LOSE)
def test_reports_that_are_damaged_or_lost_are_made_again(
    tmp_path: Path, case: RunCase, lose: str
) -> None:
    service = Uploads(tmp_path)
    run = service.run(
        ["melt", "ept"], {"occurrence": service.occurrence(case)}, no_of_periods=case.periods
    )
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports"
    body = {"reports": ["qelt"], "options": {"quantiles": [0.5]}}
    answer = ask(service, "POST", path, json=body)
    further = answer.json()["reports"]["qelt"]
    service.sealer.look()
    paths = [f"{path}/melt?format=bin", f"{path}/melt?format=csv", f"{path}/melt?summary_ids=1"]
    paths += [f"{path}/ept?format=svg", f"{path}/ept?format=svg&theme=dark"]
    paths += [f"{further}&format=bin", f"{further}&format=parquet"]
    whole = {path: ask(service, "GET", path) for path in paths}
    assert {answer.status_code for answer in whole.values()} == {200}

    def files(form: str) -> list[Path]:
        return list(tmp_path.rglob(f"blobs/report/*/*.{form}.*"))

    # What is made of records is, at once.
    for form in ("csv", "svg", "parquet"):
        (file,) = files(form)
        LOSE[lose](file)
    for path, answer in whole.items():
        assert ask(service, "GET", path).content == answer.content
    # Records are computed again of the streams.
    for path, answer in list(whole.items())[:: 1 if THOROUGH else 3]:
        for form in ("bin", "csv", "svg", "parquet"):
            for file in files(form):
                LOSE[lose](file)
        answers = [ask(service, "GET", path) for _ in range(2)]
        assert [a.status_code for a in answers] == [202, 202], path
        assert answers[0].headers["retry-after"] == "2"
        service.sealer.look()
        again = ask(service, "GET", path)
        assert (again.status_code, again.content) == (200, answer.content), path
        assert again.headers["etag"] == answer.headers["etag"]


def test_a_report_that_is_damaged_further_on_is_broken_off_and_made_again(
    tmp_path: Path, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.runs.routes.reports.PIECE", 64)
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports/melt?format=bin"
    whole = ask(service, "GET", path)
    read = service.streams.blobs.range

    def damaged(kind: str, ident: str, start: int = 0, stop: int | None = None) -> bytes:
        if kind == "report" and start >= 64:
            raise StoreDamagedError("it is damaged")
        return bytes(read(kind, ident, start, stop))

    with monkeypatch.context() as patch:
        patch.setattr(service.streams.blobs, "range", damaged)
        with pytest.raises(AnswerAbortedError):
            ask_raising(service, path)
    assert [job.reports for job in service.sealer.jobs.of_run(run.owner, run.id)] == [("melt",)]
    service.sealer.look()
    assert ask(service, "GET", path).content == whole.content


def test_partial_sums_and_reports_count_in_quotas(tmp_path: Path, case: RunCase) -> None:
    # Records, what is told of them, and csv.
    service = Uploads(tmp_path, quota_reports=3)
    records: Any = service.sealer.sealing.records
    limits = records._quotas.limits
    run = run_of_sums(service, case)
    service.upload(run, case.stream.encode())
    limits["segment"] = Limit("segments", 10, 10)
    failed = service.seal(run)
    assert failed.problem is not None
    assert (failed.state, failed.problem["code"]) == ("failed", "quota-exceeded")
    limits["segment"] = Limit("segments", 10, 1 << 30)
    # Nothing is lost: it is sealed again.
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports/aal?format="
    assert ask(service, "GET", path + "csv").status_code == 200
    answer = ask(service, "GET", path + "ndjson")
    assert (answer.status_code, answer.json()["limit"]) == (429, "reports.count")
    assert ask(service, "DELETE", f"/v1/runs/{run.id}").status_code == 204
    other = run_of_sums(service, case)
    service.upload(other, case.stream.encode())
    assert service.seal(other).state == "done"


@pytest.mark.parametrize("jump", [86400.0, -86400.0])
def test_a_clock_that_jumps_gives_a_job_to_no_second_worker(
    tmp_path: Path, case: RunCase, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))
    records = service.sealer.sealing.records
    ticks = [0.0]
    workers = [Jobs(records, clock=lambda: ticks[0]) for _ in range(2)]
    seen = [jobs.claimable()[0] for jobs in workers]
    first = workers[0].change(seen[0], worker="one", beat=1)
    assert first is not None
    # Both saw that it waits; one of them has it.
    assert workers[1].change(seen[1], worker="two", beat=1) is None
    assert workers[1].claimable() == []
    present = time.time()
    monkeypatch.setattr(time, "time", lambda: present + jump)
    ticks[0] = 14.0
    assert workers[1].claimable() == []
    first = workers[0].change(first, beat=2)
    ticks[0] = 20.0
    assert workers[1].claimable() == []
    ticks[0] = 36.0
    (late,) = workers[1].claimable()
    assert workers[1].change(late, worker="two", beat=3) is not None
    assert first is not None
    assert workers[0].change(first, beat=3) is None
