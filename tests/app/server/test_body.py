"""Bytes that are no request, and chunks that are none."""

from __future__ import annotations

import random

import pytest

from app.server.body import ChunkDecoder
from tests.app.harness import Answer, Contract, Service, check_problem, chunked, head, is_problem
from tests.app.losses.posts import good


@pytest.mark.parametrize(
    "wire",
    [
        head(
            "POST", "/v1/losses/melt", [("Content-Length", "5"), ("Transfer-Encoding", "chunked")]
        ),
        head("POST", "/v1/losses/melt", [("Content-Length", "-5")]),
        head("POST", "/v1/losses/melt", [("Content-Length", "5"), ("Content-Length", "6")]),
        head("POST", "/v1/losses/melt", [("Transfer-Encoding", "gzip, chunked")]),
        head("POST", "/v1/losses/melt", [("Transfer-Encoding", "identity")]),
        head("POST", "/v1/losses/melt", [("X" * 70_000, "1")]),
        head("POST", f"/v1/losses/melt?after={'A' * 70_000}"),
        head("GET", "/healthz", [(f"X-{n}", "1") for n in range(300)]),
        b"NONSENSE / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_no_request(service: Service, wire: bytes) -> None:
    with service.connect() as client:
        client.sendall(wire)
        answer = Answer(client)
    check_problem(answer.json(), answer)
    assert answer.status in {400, 431, 501}
    assert answer.getheader("Connection") == "close"


BAD_CHUNKS = [
    b"zz\r\n",
    b"-1\r\n",
    b"5\r\nabcdefgh\r\n",
    b"5\nabcde\n",
    b"5;\n",
    b"\r\n",
    b"f" * 20,
]


@pytest.mark.parametrize("chunks", BAD_CHUNKS)
def test_chunks_that_are_none(service: Service, contract: Contract, chunks: bytes) -> None:
    start = head("POST", "/v1/losses/melt", [("Transfer-Encoding", "chunked")])
    first = chunked([good().encode()], last=b"")
    for wire in (chunks, first + chunks):
        with service.connect() as client:
            client.sendall(start + wire)
            answer = Answer(client)
        contract.check("POST", "/v1/losses/melt", answer)
        found = is_problem(answer, "framing", 400)
        assert found["resume_offset"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_payload_read_in_stretches_never_moves(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - test data
    sizes = [rng.choice([1 << 16, 70_000, 200_000])] * rng.randint(10, 20) + [
        rng.randint(1, 90_000)
    ]
    data = rng.randbytes(sum(sizes))
    wire, at = b"", 0
    for size in sizes:
        wire += b"%x\r\n" % size + data[at : at + size] + b"\r\n"
        at += size
    wire += b"0\r\n\r\n"
    decoder = ChunkDecoder(1000)
    got, at, moved, unmoved = b"", 0, 0, 0
    view = memoryview(bytearray(rng.choice([100_000, 300_000])))
    while not decoder.done:
        size = min(decoder.stretch() or len(view), len(view), len(wire) - at)
        known = decoder.stretch() > 0
        view[:size] = wire[at : at + size]
        at += size
        payload, used = decoder.decode(view, size)
        assert used == size
        moved += known and 0 < payload < size
        unmoved += size if known and payload == size else 0
        got += view[:payload]
    assert got == data
    # Where the sizes change, a line is not what it was expected to be.
    assert moved <= 1
    assert unmoved >= sum(sizes) - 3 * max(len(view), *sizes)


def test_small_chunks_are_read_many_at_a_time() -> None:
    decoder = ChunkDecoder(1000)
    view = memoryview(bytearray(b"3e8\r\n" + bytes(500)))
    decoder.decode(view, len(view))
    assert decoder.stretch() == 0
