"""The service with lanes as users run it: its processes, and what each of them does."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.app.runs.uploaded import partitions
from tests.app.server.lanes.small import ending, until
from tests.e2e.service import Service
from tests.e2e.test_sealing import ask, create, reports_of
from tests.runs import random_run
from tests.scale import PURE_PYTHON

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("lanes")
    root = directory / "root"
    root.mkdir()
    with h5py.File(root / "scan.h5", "w") as file:
        file["frames"] = np.zeros((4, 3, 2, 2), "<u2")
    made = Service(directory, lanes="front=1,quick=1,long=2", dataset_roots=root)
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
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        found[pid] = {link for link in links if link.startswith(str(service.data_dir))}
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
