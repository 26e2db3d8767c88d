"""The service with lanes as users run it: its processes, and what each of them does."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.app.losses.posts import good
from tests.app.runs.uploaded import partitions
from tests.app.server.lanes.small import ending, until
from tests.e2e.service import Answer, AnswerCut, Service
from tests.e2e.test_sealing import ask, create, reports_of
from tests.runs import random_run
from tests.scale import PURE_PYTHON, SOAK
from tests.server_process import PROGRAM

KILLS = 1000 if SOAK else 12

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")


class Program(Service):
    """Its supervisor has imported no more than the command needs."""

    command = PROGRAM


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("lanes")
    root = directory / "root"
    root.mkdir()
    with h5py.File(root / "scan.h5", "w") as file:
        file["frames"] = np.zeros((4, 3, 2, 2), "<u2")
    made = Program(directory, lanes="front=1,quick=1,long=2", dataset_roots=root)
    made.expected_failures = ["worker died"]
    yield made
    made.kill()


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def started_by(pid: int) -> list[int]:
    """Processes that threads of another one have started."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in lists for child in text.split()]


def names_of(service: Service) -> dict[int, set[str]]:
    """What each process has open below the data directory."""
    found: dict[int, set[str]] = {}
    for pid in service.worker_pids():
        found[pid] = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            # It may be closed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found[pid].add(str(entry.readlink()))
        found[pid] = {link for link in found[pid] if link.startswith(str(service.data_dir))}
    return found


def test_acceptor_and_templates_have_one_thread_and_no_store(service: Service) -> None:
    until(lambda: len(service.worker_pids()) == 7)
    opened = names_of(service)
    without = [pid for pid, names in opened.items() if not names]
    assert len(without) == 3
    assert [threads_of(pid) for pid in [service.process.pid, *without]] == [1] * 4


def test_lanes_name_requests_differently(service: Service) -> None:
    """They are forked from one process, and its random numbers with them."""
    idents = set()
    for _ in range(4):
        for method, path in (("GET", "/healthz"), ("GET", "/zarr/x/0.0"), ("PUT", "/v1/inputs/x")):
            with service.connect() as connection:
                idents.add(connection.request(method, path).headers["x-request-id"])
    assert len(idents) == 12


def test_a_run_is_sealed_at_once_by_a_long_process(service: Service) -> None:
    case = random_run(np.random.default_rng(9))
    run = create(service, case, partitions(case, 1, 3))
    assert ask(service, "POST", f"{run}/seal")[0] == 202
    # Not after the three seconds between two looks.
    until(lambda: json.loads(ask(service, "GET", run)[1])["state"] != "sealed", 2.5)
    assert reports_of(service, run)


class Client:
    """Asks each lane in turn, again where a process has died, until it is stopped."""

    def __init__(self, service: Service, expected: bytes) -> None:
        self.wrong: list[object] = []
        self.longest = 0.0
        self.answered = 0
        self.stopped = threading.Event()
        self._service = service
        self._expected = expected
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join()

    def _run(self) -> None:
        asked = itertools.cycle(
            (
                ("GET", "/healthz", 200, None),
                ("GET", "/zarr/x/0.0", 404, None),
                ("POST", "/v1/losses/melt", 200, self._expected),
            )
        )
        while not self.stopped.is_set():
            method, path, status, body = next(asked)
            begin = time.monotonic()
            answer = self._ask(method, path, good().encode() if body else b"")
            if answer is None:
                return
            self.longest = max(self.longest, time.monotonic() - begin)
            self.answered += 1
            if answer.status != status or body not in (None, answer.body):
                self.wrong.append((path, answer))

    def _ask(self, method: str, path: str, body: bytes) -> Answer | None:
        while not self.stopped.is_set():
            with contextlib.suppress(OSError, AnswerCut), self._service.connect() as connection:
                return connection.request(method, path, body)
        return None


def test_nothing_is_wrong_or_hangs_while_processes_are_killed(service: Service) -> None:
    """Of lanes, the acceptor and the templates."""
    expected = service.post("/v1/losses/melt", good().encode()).body
    clients = [Client(service, expected) for _ in range(4)]
    draw = random.Random(3)  # noqa: S311 - repeatable
    try:
        for _ in range(KILLS):
            time.sleep(draw.choice([0.05, 0.2, 0.5]))
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(service.worker_pids()), signal.SIGKILL)
        until(lambda: len(service.worker_pids()) == 7)
    finally:
        for client in clients:
            client.stop()
    assert [client.wrong for client in clients] == [[]] * 4
    assert min(client.answered for client in clients) > 0
    # A machine that does nothing else takes less than a second, if not both templates have died.
    assert max(client.longest for client in clients) < 20


def test_a_service_that_is_killed_leaves_no_process(service: Service) -> None:
    entry = {"id": "packed", "files": ["scan.h5"], "format": "hdf5", "array": "frames"}
    answer = service.post("/v1/datasets", json.dumps(entry).encode())
    assert answer.status == 201, answer.body
    lanes = service.worker_pids()
    decoders = [pid for lane in lanes for pid in started_by(lane)]
    assert decoders
    with ending([*lanes, *decoders]):
        os.kill(service.process.pid, signal.SIGKILL)
    service.kill()
    service.start()
    os.kill(service.process.pid, signal.SIGTERM)
    assert service.end() == 0
    assert not service.failures()
