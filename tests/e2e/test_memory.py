"""Memory of a worker while many posts stand still in the middle of their bodies, and after them."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.app.harness import Post, Service, ask, head, wait_until
from tests.app.losses.posts import good
from tests.scale import PURE_PYTHON, SOAK

MIB = 1 << 20
LIMIT = 100 * MIB
BASE = 300 * MIB
"""What a worker may take beside the limit."""
SLACK = 48 * MIB
"""What one round may leave to the allocator."""
POSTS = 100
ROUNDS = 8 if SOAK else 1
SAMPLES = 200_000
BLOCKS = 5_000

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="a server runs compiled kernels anyway")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, memory_limit=LIMIT, owner_share=1.0)
    try:
        yield made
        assert made.stop() == 0
        assert not made.failures()
    finally:
        made.kill()


def stream() -> bytes:
    """An event of many summaries with a loss in their last sample, without an end."""
    pair = struct.pack("<ifif", SAMPLES, 1.0, 0, 0.0)
    blocks = (struct.pack("<iif", 1, n + 1, 1.0) + pair for n in range(BLOCKS))
    return struct.pack("<iii", 0x03000001, SAMPLES, 1) + b"".join(blocks)


def item_stream() -> bytes:
    """The same of items."""
    pair = struct.pack("<ifif", SAMPLES, 1.0, 0, 0.0)
    blocks = (struct.pack("<ii", 1, n + 1) + pair for n in range(BLOCKS))
    return struct.pack("<ii", 0x02000001, SAMPLES) + b"".join(blocks)


def stored(service: Service, name: str, data: bytes) -> str:
    answer = ask(service, Post(f"/v1/inputs/{name}", [data], method="PUT"))
    assert answer.status in {200, 201}, answer.body
    return str(json.loads(answer.body)["digest"])


def melt(_: Service) -> tuple[str, bytes]:
    return "melt", stream()


def qelt(service: Service) -> tuple[str, bytes]:
    points = [n / 20_000 for n in range(20_000)]
    quantiles = stored(service, "quantiles", struct.pack(f"<{len(points)}f", *points))
    return f"qelt?quantiles={quantiles}", stream()


def alct(service: Service) -> tuple[str, bytes]:
    data = struct.pack("<iiiii", 0, 1000, 1, 1, 1)
    return f"alct?occurrence={stored(service, 'occurrence', data)}", stream()


def items(service: Service) -> tuple[str, bytes]:
    rows = "".join(f"{n + 1},{n % 20 + 1},1\n" for n in range(BLOCKS))
    xref = stored(service, "summary_xref", f"item_id,summary_id,summaryset_id\n{rows}".encode())
    return f"melt?summary_xref={xref}", item_stream()


KINDS: dict[str, Callable[[Service], tuple[str, bytes]]] = {
    "melt": melt,
    "qelt": qelt,
    "alct": alct,
    "items": items,
}


@pytest.mark.parametrize("kind", KINDS if SOAK else ["melt"])
def test_memory_is_bounded_and_comes_back(service: Service, kind: str) -> None:
    target, data = KINDS[kind](service)
    fields = [("Content-Length", str(len(data) + 50))]
    # With its kernels loaded.
    assert ask(service, Post("/v1/losses/melt", [good().encode()])).status == 200
    idle = peak = service.private()
    for _ in range(ROUNDS):
        with ExitStack() as stack:
            for _ in range(POSTS):
                client = stack.enter_context(service.connect())
                with contextlib.suppress(ConnectionError):
                    client.sendall(head("POST", f"/v1/losses/{target}", fields) + data)
            for _ in range(10):
                time.sleep(0.1)
                peak = max(peak, service.private())
    assert peak <= BASE + LIMIT
    assert peak <= idle + LIMIT + ROUNDS * SLACK
    wait_until(lambda: service.private() <= idle + 100 * MIB, 10)
