"""Heads of requests, however they are cut into pieces."""

from __future__ import annotations

import pytest

from app.errors import ProblemError
from app.server.head import Head, HeadParser
from app.server.limits import ServerLimits

GET = b"GET /a%20b/%2F?q=%31 HTTP/1.1\r\nHost: x\r\nAccept: A\r\nACCEPT: b\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
CHUNKED = b"PUT /p HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n"


def heads(parser: HeadParser, data: bytes, piece: int) -> list[Head]:
    """Parse heads without bodies."""
    found = []
    for at in range(0, len(data), piece):
        rest = data[at : at + piece]
        while rest:
            head, rest = parser.feed(rest)
            found += [] if head is None else [head]
    return found


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 1000])
def test_pieces_of_any_size(piece: int) -> None:
    parser = HeadParser(ServerLimits(), "/root")
    first, second, third, fourth = heads(parser, GET + POST + b"\r\n\r\n" + CHUNKED + GET, piece)
    assert (
        first.scope
        == fourth.scope
        == {
            "http_version": "1.1",
            "method": "GET",
            "root_path": "/root",
            "path": "/root/a b//",
            "raw_path": b"/root/a%20b/%2F",
            "query_string": b"q=%31",
            "headers": [(b"host", b"x"), (b"accept", b"A"), (b"accept", b"b")],
        }
    )
    assert (first.size, first.keep_alive, first.expects_continue) == (0, True, False)
    assert first.first(b"accept") == b"A"
    assert first.first(b"none") is None
    assert (second.size, second.keep_alive, second.expects_continue) == (3, True, True)
    assert (third.size, third.keep_alive, third.expects_continue) == (None, False, False)
    assert parser.begun == 0


def test_what_follows_a_head_is_left() -> None:
    parser = HeadParser(ServerLimits())
    head, rest = parser.feed(b"\r\n" + POST + b"abcGET")
    assert head is not None
    assert rest == b"abcGET"


def test_other_protocols_are_not_spoken() -> None:
    parser = HeadParser(ServerLimits())
    upgrade = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert [head.scope["method"] for head in heads(parser, upgrade + GET, 1000)] == ["GET", "GET"]


def test_an_absolute_target_may_end_with_its_host() -> None:
    parser = HeadParser(ServerLimits())
    (head,) = heads(parser, b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000)
    assert head.scope["path"] == "/"


@pytest.mark.parametrize("piece", [1, 7, 100000])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (b"\x16\x03\x01", 400),
        (b"GET http:// HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5 + b"\r\n", 431),
        (b"\r\n\r\n" * 100, 431),
    ],
)
def test_refusals(data: bytes, status: int, piece: int) -> None:
    parser = HeadParser(ServerLimits(header_bytes=256, header_count=4))
    with pytest.raises(ProblemError) as refusal:
        heads(parser, data, piece)
    assert refusal.value.problem.status == status
