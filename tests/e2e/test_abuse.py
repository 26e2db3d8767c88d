"""One client takes all it can; memory stays within its bound, and others are served."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.app.harness import Answer, Post, Service, ask, head, is_problem, wait_until
from tests.app.losses.posts import good
from tests.scale import PURE_PYTHON
from tests.server_process import HOST
from tests.streams import Block, Stream

MIB = 1 << 20
LIMIT = 96 * MIB
SLACK = 48 * MIB
"""What the allocator and everything without an entry may take beside the limit."""
OTHER = "127.0.0.2"
"""An address of another client."""

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="a server runs compiled kernels anyway")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    root = tmp_path / "root"
    root.mkdir()
    np.save(root / "scan.npy", np.zeros((4, 8, 2, 2), "<u2"))
    made = Service(
        tmp_path / "service",
        dataset_roots=root,
        memory_limit=LIMIT,
        owner_share=0.8,
        buffers=8,
        max_requests=40,
        spool_limit=32 * MIB,
    )
    try:
        yield made
        wait_until(made.is_idle)
        assert made.stop() == 0
        assert not made.failures()
    finally:
        made.kill()


@contextlib.contextmanager
def connection(service: Service, address: str = HOST) -> Iterator[socket.socket]:
    with socket.create_connection(
        (HOST, service.port), timeout=30, source_address=(address, 0)
    ) as client:
        yield client


def send(client: socket.socket, data: bytes) -> None:
    """Send as much as the server takes before it refuses."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        client.sendall(data)


def is_served(service: Service) -> bool:
    """Whether another client's post is answered in full."""
    with connection(service, OTHER) as client:
        post = Post("/v1/losses/melt", [good().encode()])
        client.sendall(post.head() + b"".join(post.wire()))
        return Answer(client).status == 200


def register(service: Service) -> None:
    body = json.dumps({"id": "scan", "files": ["scan.npy"]}).encode()
    assert ask(service, Post("/v1/datasets", [body])).status == 201


def grown(service: Service, before: int) -> int:
    return service.memory("VmHWM") - before


def quantiles(service: Service, count: int) -> str:
    data = np.linspace(0, 1, count, dtype="<f4").tobytes()
    answer = ask(service, Post("/v1/inputs/quantiles", [data], method="PUT"))
    assert answer.status in {200, 201}, answer.body
    digest: str = answer.json()["digest"]
    return digest


def test_memory_is_bounded_whatever_one_client_holds(service: Service) -> None:
    register(service)
    digest = quantiles(service, 100_000)
    assert is_served(service)
    service.reset_peak()
    before = service.memory()
    size = 40 * MIB
    numbers = b",".join(b"%d" % (k % 32) for k in range(1 << 20))
    view = b'{"select": {"frames": [' + numbers * 4
    blocks = tuple(Block(e, 1, ((1, 2.0), (2, 3.0))) for e in range(1, 60))
    stream = Stream("summary", 2, 4, blocks).encode()
    refused = 0
    with ExitStack() as stack:
        for path, data, method in [
            *[("/v1/inputs/event_rates", bytes(30 * MIB), "PUT")] * 10,
            *[("/v1/datasets/scan/plan", view, "POST")] * 6,
            *[(f"/v1/losses/qelt?quantiles={digest}&duplex=true", stream, "POST")] * 6,
        ]:
            client = stack.enter_context(connection(service))
            client.settimeout(10)
            send(client, head(method, path, [("Content-Length", str(size))]) + data)
            assert is_served(service)
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionError):
                answer = Answer(client, method)
                refused += answer.status in {429, 503}
    assert refused > 10
    assert grown(service, before) < LIMIT + SLACK


def test_what_one_client_cannot_have_another_one_gets(service: Service) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(connection(service))
            client.sendall(
                head("PUT", "/v1/inputs/event_rates", [("Content-Length", str(64 * MIB))])
                + bytes(30 * MIB)
            )
        found = is_problem(Answer(client, "PUT"), "share-exceeded", 429)
        assert found["setting"] == "THALWEG_OWNER_SHARE"
        assert is_served(service)
    wait_until(service.is_idle)
    assert quantiles(service, 1000)


def test_bodies_that_trickle_leave_buffers_to_others(service: Service) -> None:
    data = good().encode()
    with ExitStack() as stack:
        clients = [stack.enter_context(connection(service)) for _ in range(20)]
        for client in clients:
            size = [("Content-Length", str(len(data)))]
            client.sendall(head("POST", "/v1/losses/melt", size) + data[:40])
        wait_until(lambda: service.metric("thalweg_requests_running") == 21)
        assert is_served(service)
        for client in clients:
            client.sendall(data[40:])
        for client in clients:
            assert Answer(client).status == 200


def test_requests_in_progress_are_shared(service: Service) -> None:
    with ExitStack() as stack:
        for _ in range(32):
            client = stack.enter_context(connection(service))
            client.sendall(head("POST", "/v1/losses/melt", [("Content-Length", "100000")]))
        wait_until(lambda: service.metric("thalweg_requests_running") == 33)
        found = is_problem(
            ask(service, Post("/v1/losses/melt", [good().encode()])), "share-exceeded", 429
        )
        assert (found["limit"], found["allowed"]) == ("requests", 32)
        assert is_served(service)
