"""Sealing by a server of two workers that is killed at random instants."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.runs.uploaded import occurrence_csv, partitions
from tests.runs import RunCase, random_run
from tests.scale import PURE_PYTHON, SOAK
from tests.server_process import HOST, ServerProcess

REPORTS = ["melt", "aal", "ept"]
KILLS = 100 if SOAK else 1
_PATIENCE = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    made = ServerProcess(tmp_path_factory.mktemp("server"), "--workers=2")
    yield made
    made.kill()


def ask(
    server: ServerProcess, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_PATIENCE)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def create(server: ServerProcess, case: RunCase, parts: list[bytes]) -> str:
    """Upload a run; return its path."""
    path = f"/v1/inputs/occurrence?no_of_periods={case.periods}"
    status, text = ask(server, "PUT", path, occurrence_csv(case))
    assert status in {200, 201}, text
    body: dict[str, Any] = {
        "perspective": "gul",
        "reports": REPORTS,
        "inputs": {"occurrence": json.loads(text)["digest"]},
        "options": {"partitions": len(parts), "no_of_periods": case.periods},
    }
    status, text = ask(server, "POST", "/v1/runs", json.dumps(body).encode())
    assert status == 201, text
    run = f"/v1/runs/{json.loads(text)['id']}"
    for data in parts:
        status, text = ask(
            server,
            "POST",
            f"{run}/streams",
            data,
            Tus_Resumable="1.0.0",
            Upload_Length=str(len(data)),
            Content_Type="application/offset+octet-stream",
        )
        # A faulty stream is stored as far as it is right.
        assert status in {201, 400}, text
    return run


def reports_of(server: ServerProcess, run: str) -> dict[str, bytes]:
    """The reports of a run, once it is done."""
    found = {}
    deadline = time.monotonic() + _PATIENCE
    for name in REPORTS:
        while True:
            status, content = ask(server, "GET", f"{run}/reports/{name}")
            if status == 200:
                found[name] = content
                break
            assert status == 202, content
            assert time.monotonic() < deadline, content
            time.sleep(0.05)
    return found


def test_reports_survive_kills_while_they_are_computed(server: ServerProcess) -> None:
    case = random_run(np.random.default_rng(9))
    parts = partitions(case, 1, 3)
    undisturbed = create(server, case, parts)
    assert ask(server, "POST", f"{undisturbed}/seal")[0] == 202
    expected = reports_of(server, undisturbed)
    rng = random.Random(1)  # noqa: S311 - instants
    for _ in range(KILLS):
        run = create(server, case, parts)
        status, text = ask(server, "POST", f"{run}/seal")
        assert status == 202, text
        time.sleep(rng.random() * 0.2)
        server.kill()
        server.start()
        assert reports_of(server, run) == expected


def test_a_truncated_stream_is_refused_and_named(server: ServerProcess) -> None:
    case = random_run(np.random.default_rng(9))
    first, second = partitions(case, 1, 2)
    run = create(server, case, [first, second[:-8]])
    status, text = ask(server, "POST", f"{run}/seal")
    assert status == 409
    problem = json.loads(text)
    assert problem["code"] == "seal-refused"
    assert [fault["partition"] for fault in problem["streams"]] == [2]
