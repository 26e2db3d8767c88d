"""A run that kills whatever computes it, beside good ones and workers killed at random."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.runs.uploaded import partitions
from tests.e2e import poison
from tests.e2e.test_sealing import ask, upload
from tests.runs import RunCase, random_run
from tests.scale import PURE_PYTHON, SOAK
from tests.server_process import PROGRAM, ROOT, ServerProcess

GOOD = 10 if SOAK else 3
ROUNDS = 10 if SOAK else 1
KILLS = 10 if SOAK else 1
"""In each round."""
PROCESSES = 7
"""Two for long work, front, quick, the acceptor, the template and its spare."""
_PATIENCE = 1200.0 if SOAK else 120.0


class PoisonedServer(ServerProcess):
    """All of its processes, also those that compute alone, import the poison."""

    command = PROGRAM

    def start(self) -> None:
        site = self._directory / "site"
        site.mkdir(exist_ok=True)
        shutil.copy(poison.__file__, site / "sitecustomize.py")
        self._environment["PYTHONPATH"] = os.pathsep.join([str(site), str(ROOT)])
        super().start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PoisonedServer]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    made = PoisonedServer(tmp_path, "--workers=2")
    yield made
    made.kill()


def document(server: ServerProcess, path: str) -> dict[str, Any]:
    """A JSON answer; asks again where a worker died instead, or is not ready yet."""
    while True:
        try:
            status, text = ask(server, "GET", path)
        except (OSError, HTTPException):
            continue
        if status == 503:
            time.sleep(0.05)
            continue
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found


def create(server: ServerProcess, case: RunCase, *, poisoned: bool) -> str:
    """Upload a run that is ready to be sealed; return its path."""
    quantiles = [poison.POISON if poisoned else 0.5]
    body = {
        "perspective": "gul",
        "reports": ["qelt"],
        "options": {"quantiles": quantiles},
    }
    status, text = ask(server, "POST", "/v1/runs", json.dumps(body).encode())
    assert status == 201, text
    run = f"/v1/runs/{json.loads(text)['id']}"
    upload(server, run, partitions(case, 1, 2))
    return run


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_state(server: ServerProcess, state: str, *runs: str) -> None:
    wait_for(lambda: all(document(server, run)["state"] == state for run in runs))


def seal(server: ServerProcess, run: str) -> None:
    while True:
        try:
            assert ask(server, "POST", f"{run}/seal")[0] in {200, 202}
        except (OSError, HTTPException):
            continue
        return


def kill_workers(server: ServerProcess, count: int, seed: int) -> None:
    """Kill processes, each at some instant after all are there."""
    rng = random.Random(seed)  # noqa: S311 - instants
    for _ in range(count):
        wait_for(lambda: len(server.worker_pids()) == PROCESSES)
        time.sleep(rng.random() * (3.0 if SOAK else 0.5))
        os.kill(rng.choice(server.worker_pids()), signal.SIGKILL)


def test_of_all_runs_that_one_alone_fails(server: PoisonedServer) -> None:
    case = random_run(np.random.default_rng(9))
    bad = create(server, case, poisoned=True)
    for number in range(ROUNDS):
        good = [create(server, case, poisoned=False) for _ in range(GOOD)]
        # From the second round on, this tries it again.
        for run in [*good[: GOOD // 2], bad, *good[GOOD // 2 :]]:
            seal(server, run)
        kill_workers(server, KILLS, seed=number)
        wait_for_state(server, "done", *good)
        wait_for_state(server, "failed", bad)
        problem = document(server, bad)["problem"]
        assert (problem["code"], problem["deaths"]) == ("process-died", 3)
        assert "SIGKILL" in problem["detail"]
        # It is shown, and makes nothing unready.
        wait_for(lambda: document(server, "/readyz").get("poisoned_jobs") == 1)
    wait_for(lambda: b'thalweg_jobs{state="poisoned"} 1.0' in ask(server, "GET", "/metrics")[1])
    # A worker died of it once; those that computed it later were alone.
    assert server.log().count('"event": "worker died"') <= ROUNDS * KILLS + 1
