"""Work without end or bound: it stops at its budget, with its client, and with its server.

Each server here may take 3 GiB at most, so that a server without budgets fails these tests, and
not the machine.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.client import Client
from app.client.errors import ProblemError
from tests.e2e.samples import large_stream
from tests.e2e.service import Answer, Connection, Service, serve_observed, until
from tests.frames import FrameReader
from tests.scale import SOAK
from tests.streams import random_stream

MIB = 1 << 20
MEMORY = 64 * MIB
GROWTH = 400 * MIB
"""What a server may grow by under MEMORY: buffers and the interpreter's own included."""
LINE = 2_000_000
SHORT = 4000
"""Short lines before a long one, which begins in their second segment."""
SPARSE = 64 << 30
"""Size of a file of detector frames that takes no room on disk, and a minute to sum."""
ROWS = 400
BEFORE = 16384 // len("short\n") // ROWS
"""Batches whose lines are all in the first segment."""
FOREVER = {"op": "repeat", "times": 10**9}
EVENTS = {"op": "source", "dataset": "events"}
Stages = list[dict[str, Any]]
NEVER: Stages = [
    {"op": "mix", "inputs": [[{**EVENTS, "fields": ["event"]}, FOREVER]]},
    {"op": "filter", "pred": "greater", "args": {"field": "event", "value": 2e9}},
    {"op": "batch", "size": 8},
]
"""A batch of it never comes."""
HOSTILE: dict[str, tuple[Stages, str]] = {
    "never a batch": (NEVER, "cpu"),
    "ragged": (
        [
            {"op": "mix", "inputs": [[{"op": "source", "dataset": "one"}, FOREVER]]},
            {"op": "batch", "size": 400},
        ],
        "memory",
    ),
    "padded by the longest": (
        [
            {"op": "mix", "inputs": [[EVENTS, FOREVER]]},
            {"op": "batch", "size": 64},
            {"op": "pad", "multiple": 1 << 20},
        ],
        "memory",
    ),
    "row group": (
        [{"op": "source", "dataset": "rows"}, {"op": "batch", "size": 1}],
        "memory",
    ),
}
SETTINGS = {"cpu": "THALWEG_REQUEST_CPU_SECONDS", "memory": "THALWEG_REQUEST_MEMORY"}


def serve_limited(arguments: Sequence[str]) -> int:
    """Run the command, which may have 3 GiB."""
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    return serve_observed(arguments)


class Limited(Service):
    """A server that cannot take the machine's memory."""

    command = staticmethod(serve_limited)

    def register(self, stages: Stages) -> str:
        answer = self.send("/v1/pipelines", {"order": 1, "stages": stages})
        assert answer.status in {200, 201}, answer.body
        ident: str = answer.json()["id"]
        return ident

    def send(self, target: str, values: Mapping[str, Any]) -> Answer:
        return self.post(target, json.dumps(values).encode(), "Content-Type: application/json")


def make_root(root: Path) -> Path:
    root.mkdir()
    stream = random_stream(np.random.default_rng(3), events=40, blocks=4, samples=50, highest=999)
    (root / "events").write_bytes(stream.encode())
    (root / "one").write_bytes(b"x" * LINE + b"\n")
    (root / "mostly").write_bytes(b"short\n" * SHORT + b"x" * 50_000_000 + b"\n")
    with gzip.open(root / "bomb.gz", "wb", 9) as bomb:
        for _ in range(32):
            bomb.write(b"a\n" * (1 << 23))
    table = pa.table({"x": pa.array([b"\0" * (16 * MIB)] * 4)})
    pq.write_table(table, root / "rows", compression="zstd", row_group_size=4)
    (root / "frames").write_bytes(bytes(64 * 256 * 256 * 2))
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(SPARSE)
    return root


@contextlib.contextmanager
def serving(directory: Path, root: Path, **settings: object) -> Iterator[Limited]:
    server = Limited(directory, "--threads=1", dataset_roots=root, **settings)
    raw = {"format": "raw", "dtype": "<u2", "sig_shape": [256, 256]}
    try:
        for entry in (
            {"id": "events", "files": ["events"], "format": "loss"},
            {"id": "one", "files": ["one"], "format": "lines"},
            {"id": "mostly", "files": ["mostly"], "format": "lines"},
            {"id": "rows", "files": ["rows"], "format": "parquet"},
            {"id": "frames", "files": ["frames"], **raw},
            {"id": "sparse", "files": ["sparse"], **raw},
        ):
            answer = server.send("/v1/datasets", entry)
            assert answer.status == 201, answer.body
        yield server
        if server.process.poll() is None:
            assert server.stop() == 0
        assert not server.failures()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("files") / "root")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Limited]:
    """A server of small budgets."""
    directory = tmp_path_factory.mktemp("strict")
    with serving(
        directory, root, request_memory=MEMORY, request_cpu_seconds=1, request_items=1 << 60
    ) as server:
        yield server


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Limited]:
    """A server of budgets that are not used up while a test waits."""
    directory = tmp_path_factory.mktemp("lenient")
    with serving(directory, root, request_cpu_seconds=3600, request_items=1 << 60) as server:
        yield server


def problem_in(answer: Answer) -> Any:  # noqa: ANN401 - JSON
    """The problem in an answer without items.

    On a busy machine a second of CPU time takes longer than a stream waits before its first sign
    of life: the problem then follows in a frame.
    """
    if answer.status != 200:
        return answer.json()
    *before, end = FrameReader().feed(answer.body)
    assert {frame.kind for frame in before} == {"HEARTBEAT"}
    assert end.kind == "ERROR"
    return end.header["problem"]


def check_exceeded(answer: Answer, budget: str) -> None:
    problem = problem_in(answer)
    assert (problem["status"], problem["code"]) == (422, "budget-exceeded"), problem
    assert (problem["budget"], problem["setting"]) == (budget, SETTINGS[budget])
    assert problem["stage_name"]
    assert problem["stage_name"] in problem["detail"]


BY_ROUTE = [("batches", name) for name in HOSTILE]
# Both routes meter the same steps: one of each budget shows that the other does.
BY_ROUTE += [("batch", name) for name in (HOSTILE if SOAK else ("never a batch", "ragged"))]


@pytest.mark.parametrize(("route", "name"), BY_ROUTE)
def test_a_hostile_pipeline_ends_at_its_budget(strict: Limited, name: str, route: str) -> None:
    stages, budget = HOSTILE[name]
    ident = strict.register(stages)
    strict.reset_peak()
    before = strict.memory("VmHWM")
    check_exceeded(strict.get(f"/v1/pipelines/{ident}/{route}"), budget)
    assert strict.memory("VmHWM") - before < GROWTH


def test_padding_that_cannot_fit_is_refused_when_it_is_registered(strict: Limited) -> None:
    stages = [
        {"op": "mix", "inputs": [[EVENTS, FOREVER]]},
        {"op": "batch", "size": 64},
        {"op": "pad", "length": 1 << 24},
    ]
    answer = strict.send("/v1/pipelines", {"order": 1, "stages": stages})
    problem = answer.json()
    assert (answer.status, problem["code"]) == (422, "pipeline")
    assert (problem["stage"], problem["field"]) == (2, "length")


def test_batches_before_the_budget_are_sent_and_the_next_request_is_told_why(
    strict: Limited,
) -> None:
    stages: Stages = [{"op": "source", "dataset": "mostly"}, {"op": "batch", "size": ROWS}]
    ident = strict.register(stages)
    answer = strict.get(f"/v1/pipelines/{ident}/batches")
    *batches, end = FrameReader().feed(answer.body)
    assert len(batches) == BEFORE
    assert (end.header["reason"], end.header["data_finished"]) == ("bytes", False)
    token = end.header["token"]
    assert token == batches[-1].header["token"]
    check_exceeded(strict.get(f"/v1/pipelines/{ident}/batches?after={token}"), "memory")


def test_our_client_gets_the_batches_and_then_the_problem_at_once(strict: Limited) -> None:
    spec = {
        "order": 1,
        "stages": [{"op": "source", "dataset": "mostly"}, {"op": "batch", "size": ROWS}],
    }
    with Client(strict.url) as client:
        batches = iter(client.pipeline(spec).batches())
        assert [next(batches).sequence for _ in range(BEFORE)] == list(range(BEFORE))
        asked = requests_of(strict)
        with pytest.raises(ProblemError) as info:
            next(batches)
        assert info.value.code == "budget-exceeded"
        # That which gave the batches, counted at its end, and one for the problem.
        assert requests_of(strict) - asked <= 2


def requests_of(server: Service) -> float:
    """Requests for batches that were answered."""
    metrics = server.metrics()
    return sum(
        n for name, n in metrics.items() if "thalweg_requests_total" in name and "batches" in name
    )


def begin(server: Limited, target: str) -> Connection:
    """Ask for something that takes for ever, and wait until its thread works."""
    connection = server.connect()
    before = server.cpu_seconds()
    connection.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert until(lambda: server.cpu_seconds() > before + 0.2, seconds=20)
    return connection


ENDLESS = ("batches", "batch")


@pytest.mark.parametrize("route", ENDLESS)
def test_work_ends_with_its_client(lenient: Limited, route: str) -> None:
    """Its only thread is free again: another request is answered."""
    ident = lenient.register(NEVER)
    with begin(lenient, f"/v1/pipelines/{ident}/{route}"):
        pass
    assert lenient.get(f"/v1/pipelines/{ident}").status == 200


def test_the_picture_of_a_large_file_ends_with_its_client(lenient: Limited) -> None:
    """It would cost many seconds of CPU time, and costs less than one once nobody waits."""
    with begin(lenient, "/v1/datasets/sparse/image.png"):
        pass
    check_ends_soon(lenient)


def check_ends_soon(server: Limited) -> None:
    """Check that the server is idle before it has computed for another second."""
    left = server.cpu_seconds()
    before = [left - 1.0]

    def is_idle() -> bool:
        before.append(server.cpu_seconds())
        return before[-1] - before[-2] < 0.05

    assert until(is_idle, seconds=20, pause=0.2)
    assert before[-1] - left < 1.0


@pytest.mark.parametrize("whole", [True, False])
def test_rows_of_many_quantiles_end_with_their_client(lenient: Limited, whole: bool) -> None:
    """A few bytes become very many rows, and meanwhile nobody reads the socket."""
    quantiles = np.unique(np.linspace(0, 1, 100_000, dtype="<f4")).tobytes()
    with lenient.connect() as connection:
        digest = connection.request("PUT", "/v1/inputs/quantiles", quantiles).json()["digest"]
    stream = large_stream(2)
    size = len(stream) if whole else 2 * len(stream)
    target = f"/v1/losses/qelt?format=bin&quantiles={digest}"
    with lenient.connect() as connection:
        before = lenient.cpu_seconds()
        head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        connection.send(head.encode() + stream)
        assert until(lambda: lenient.cpu_seconds() > before + 0.2, seconds=20)
        # TCP tells that the client leaves only after the last byte that it sent.
        assert until(lambda: connection.unacknowledged() == 0, seconds=20)
    check_ends_soon(lenient)


def test_registering_a_bomb_ends_with_its_client(lenient: Limited) -> None:
    body = json.dumps({"id": "bomb", "files": ["bomb.gz"], "format": "lines"}).encode()
    with lenient.connect() as connection:
        before = lenient.cpu_seconds()
        connection.send(
            b"POST /v1/datasets HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert until(lambda: lenient.cpu_seconds() > before + 0.2, seconds=20)
    assert lenient.get("/v1/datasets/one").status == 200
    assert lenient.get("/v1/datasets/bomb").status == 404


def test_a_bomb_is_registered_within_its_budget_or_not_at_all(strict: Limited) -> None:
    values = {"id": "bomb", "files": ["bomb.gz"], "format": "lines"}
    check_exceeded(strict.send("/v1/datasets", values), "cpu")
    assert strict.get("/v1/datasets/bomb").status == 404


def test_a_server_ends_though_work_would_go_on(tmp_path: Path, root: Path) -> None:
    settings = {"request_cpu_seconds": 3600, "request_items": 1 << 60, "drain_seconds": 1}
    with serving(tmp_path / "server", root, **settings) as server:
        server.expected_failures.append("timeout graceful shutdown exceeded")
        ident = server.register(NEVER)
        with begin(server, f"/v1/pipelines/{ident}/batch"):
            server.term()
            assert server.end(seconds=11) == 0
