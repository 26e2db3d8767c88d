"""Bytes that are no request, and chunks that are none."""

from __future__ import annotations

import pytest

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
