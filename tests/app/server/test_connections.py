"""What a connection may not do, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.server.body import ClientDisconnected
from app.server.cycle import BodyCycle
from app.server.limits import ServerLimits
from app.server.protocol import BodyProtocol
from app.server.reader import SocketBody
from tests.app.server.harness import (
    LOG,
    MIB,
    Answer,
    Harness,
    chunked,
    content,
    head,
    rest,
    serving,
    wait_until,
)

LIMITS = ServerLimits(
    header_bytes=8192,
    header_count=20,
    header_seconds=0.25,
    body_idle_seconds=0.2,
    body_seconds=0.8,
    write_idle_seconds=0.4,
    keep_alive_seconds=0.3,
    linger_seconds=0.3,
)
HELLO = head("/hello", method="GET")


@pytest.fixture(scope="module", params=["ours", "ours-asyncio"])
def server(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with serving(request.param, LIMITS) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _nothing_left(server: Harness) -> Iterator[None]:
    LOG.clear()
    yield
    wait_until(server.quiet)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def is_problem(answer: Answer, status: int, code: str) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    problem = answer.json()
    assert problem["type"] == f"/problems/{code}"
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["title"]
    assert problem["detail"]
    assert problem["hint"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"] == problem["request_id"]


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (b"nonsense\r\n\r\n", "does not begin with a method"),
        (b"FOO / HTTP/1.1\r\n\r\n", "does not begin with a method"),
        (b"GET /hello HTTP/1.1\nHost: a\n\n", "lines must end with CR and LF"),
        (b"GET /hello HTTP/1.1\r\nHost: a\n\n", "lines must end with CR and LF"),
        (b"GET /hello HTTP/1.1\r\nHo st: a\r\n\r\n", "the name of a header"),
        (b"GET /hello HTTP/1.1\r\nA: b\0\r\n\r\n", "control character"),
        (b"GET /hello HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "has a second line"),
        (b"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", "not of HTTP/1.1"),
        (b"GET /hello\r\n\r\n", "not of HTTP/1.1"),
        (b"GET /hello you HTTP/1.1\r\n\r\n", "not followed by HTTP/1.1"),
        (b"GET /h\xc3\xa9 HTTP/1.1\r\n\r\n", "cannot be parsed: Invalid char in url path"),
        (b"CONNECT x:1 HTTP/1.1\r\n\r\n", "CONNECT is for proxies"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (head("/sum", "Content-Length: -1"), "not a number of bytes"),
        (head("/sum", "Content-Length: +5"), "not a number of bytes"),
        (head("/sum", f"Content-Length: {10**30}"), "larger than any body"),
        (head("/sum", "Content-Length: 1", "Content-Length: 2"), "several Content-Length"),
        (head("/sum", "Content-Length: 1", "Transfer-Encoding: chunked"), "both Content-Length"),
    ],
)
def test_malformed(server: Harness, bad: bytes, fault: str) -> None:
    with server.connect() as client:
        client.sendall(HELLO)
        assert Answer(client).status == 200
        client.sendall(bad)
        answer = Answer(client)
        is_problem(answer, 400, "bad-request")
        assert fault in answer.json()["detail"]
        assert rest(client) == b""


@pytest.mark.parametrize(
    "codings", [["gzip"], ["identity"], ["gzip, chunked"], ["chunked", "chunked"]]
)
def test_other_codings(server: Harness, codings: list[str]) -> None:
    with server.connect() as client:
        client.sendall(head("/sum", *[f"Transfer-Encoding: {name}" for name in codings]))
        is_problem(Answer(client), 501, "not-implemented")


@pytest.mark.parametrize(
    "begin",
    [b"GET /", b"GET / HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10],
)
def test_endless_heads(server: Harness, begin: bytes) -> None:
    sent = 0
    with server.connect() as client:
        client.sendall(begin)
        with contextlib.suppress(OSError):
            while sent < 2 << 30:
                sent += client.send(b"x" * 65536)
        assert sent < 1 << 30
    with server.connect() as client:
        client.sendall(begin + b"x" * 65536)
        is_problem(Answer(client), 431, "headers-too-large")


def test_too_many_headers(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/hello", *["A: b"] * 19, method="GET"))
        assert Answer(client).status == 200
        client.sendall(head("/hello", *["A: b"] * 20, method="GET"))
        is_problem(Answer(client), 431, "headers-too-large")


def test_slow_head(server: Harness) -> None:
    with server.connect() as client:
        with contextlib.suppress(OSError):
            for byte in b"GET / HTTP/1.1\r\nHost: a\r\n":
                client.send(bytes([byte]))
                time.sleep(0.03)
        is_problem(Answer(client), 408, "headers-too-slow")


@pytest.mark.parametrize("first", [b"", HELLO])
def test_idle_connections_are_closed(server: Harness, first: bytes) -> None:
    with server.connect() as client:
        client.sendall(first)
        if first:
            assert Answer(client).status == 200
        start = time.monotonic()
        assert client.recv(100) == b""
        assert 0.2 < time.monotonic() - start < 5


@pytest.mark.parametrize("path", ["/sum?room=5", "/whole"])
@pytest.mark.parametrize(
    ("framing", "paced"),
    [
        ("Content-Length: 99999", False),
        ("Transfer-Encoding: chunked", False),
        ("Transfer-Encoding: chunked", True),
    ],
)
def test_stalled_bodies(server: Harness, path: str, framing: str, paced: bool) -> None:
    """Neither a silent client nor one that drips for ever is waited for."""
    start = time.monotonic()
    with server.connect() as client:
        client.sendall(head(path, framing) + b"5\r\nabcde\r\n")
        with contextlib.suppress(OSError):
            while paced and time.monotonic() - start < 0.85:
                client.send(b"1\r\na\r\n")
                time.sleep(0.1)
        answer = Answer(client)
        assert answer.status == 408
        assert answer.headers["connection"] == "close"
    assert time.monotonic() - start > 0.15


def test_a_slow_body_within_limits(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/sum", "Transfer-Encoding: chunked"))
        for _ in range(5):
            time.sleep(0.1)
            client.sendall(b"1\r\na\r\n")
        client.sendall(b"0\r\n\r\n")
        assert Answer(client).json()["bytes"] == 5


@pytest.mark.parametrize("query", ["", "?known=true", "?size=60000"])
def test_a_client_that_never_reads(server: Harness, query: str) -> None:
    with server.connect(receive_buffer=4096) as client:
        client.sendall(head("/flood" + query, method="GET"))
        if query != "?size=60000":
            wait_until(lambda: "flood ended" in LOG, 4)
        wait_until(server.quiet, 4)


def test_nothing_is_sent_to_a_client_that_has_finished_before_its_answer() -> None:
    # Default limits: the rest of the answer might take a minute.
    with serving("ours") as server, server.connect(receive_buffer=4096) as client:
        client.sendall(head("/flood", method="GET"))
        client.recv(10)
        time.sleep(0.2)
        client.shutdown(socket.SHUT_WR)
        wait_until(lambda: "flood ended" in LOG, 4)
        wait_until(server.quiet, 4)


def test_a_slow_reader_is_waited_for(server: Harness) -> None:
    with server.connect(receive_buffer=65536) as client:
        client.sendall(head("/flood?size=12000000", "Connection: close", method="GET"))
        got = 0
        start = time.monotonic()
        while piece := client.recv(60_000):
            got += len(piece)
            time.sleep(0.005)
        assert time.monotonic() - start > LIMITS.write_idle_seconds
    assert got > 12_000_000


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
@pytest.mark.parametrize("path", ["/flood", "/flood?known=true", "/wait"])
def test_readers_that_vanish(
    server: Harness, path: str, leave: Callable[[socket.socket], None]
) -> None:
    with server.connect() as client:
        client.sendall(head(path, method="GET"))
        client.recv(10)
        leave(client)
        wait_until(lambda: bool(LOG))
    assert set(LOG) == {"wait ended" if path == "/wait" else "flood ended"}


# An end of input comes after all bytes before it: so fewer than the system buffers.
@pytest.mark.parametrize(("leave", "size"), [(reset, 5 * MIB // 4), (socket.socket.close, 65536)])
@pytest.mark.parametrize("after", [0.05, 0.6])
def test_leaving_while_nobody_reads(
    server: Harness, leave: Callable[[socket.socket], None], size: int, after: float
) -> None:
    with server.connect() as client:
        client.sendall(head("/hold", "Content-Length: 50000000") + bytes(size))
        time.sleep(after)
        leave(client)
        wait_until(lambda: LOG == ["hold ended"], 3)


@pytest.mark.parametrize("framing", ["Content-Length: 500000000", "Transfer-Encoding: chunked"])
def test_what_nobody_reads_stays_with_the_client(server: Harness, framing: str) -> None:
    sent = 0
    with server.connect() as client:
        client.sendall(head("/hold", framing) + b"1dcd6500\r\n")
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while sent < 64 * MIB:
                sent += client.send(bytes(65536))
        # The buffers of the two sockets.
        assert sent < 24 * MIB
        reset(client)


@pytest.mark.parametrize("framing", ["Content-Length: 8388608", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("query", ["", "?size=3000000", "?read=100000", "?size=300000&read=9"])
def test_early_answers_are_seen(server: Harness, framing: str, query: str) -> None:
    body = bytes(8 * MIB)
    with server.connect() as client:
        client.sendall(head("/refuse" + query, framing))
        # Some of it only: a client that sends on must be let, one that reads must see all.
        data = chunked(body, 65536) if "chunked" in framing else body
        with contextlib.suppress(OSError):
            client.sendall(data[: 3 * MIB])
            time.sleep(0.1)
            client.sendall(data[3 * MIB : 5 * MIB])
        answer = Answer(client)
        assert answer.status == 413
        assert answer.whole
        assert answer.headers["connection"] == "close"
        size = 3_000_000 if "3000000" in query else 300_000 if "300000" in query else 10
        assert answer.body == content(size)
        assert rest(client) == b""


def test_a_small_unread_body_keeps_the_connection(server: Harness) -> None:
    with server.connect() as client:
        for _ in range(3):
            client.sendall(head("/refuse", "Content-Length: 100") + bytes(100))
            answer = Answer(client)
            assert (answer.status, answer.headers["connection"]) == (413, None)


def test_a_refused_expectation_gets_no_100(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/refuse", "Content-Length: 100000", "Expect: 100-continue"))
        assert rest(client).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("how", ["abort", "raise"])
def test_broken_answers_are_not_whole(server: Harness, how: str) -> None:
    with server.connect() as client:
        client.sendall(head(f"/broken?how={how}", method="GET"))
        got = rest(client)
    assert b"row\n" * 1000 in got
    assert not got.endswith(b"0\r\n\r\n")
    assert LOG == []


def test_broken_answers_to_old_clients_are_reset(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/broken?how=abort", method="GET", version="1.0"))
        with pytest.raises(ConnectionResetError):
            rest(client)


def test_http_1_0(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/flood?size=100000", method="GET", version="1.0"))
        got = rest(client)
    assert b"chunked" not in got
    assert got.endswith(bytes(100_000))
    with server.connect() as client:
        client.sendall(head("/sum", "Content-Length: 3", version="1.0") + b"abc")
        assert Answer(client).json()["bytes"] == 3


def test_head_requests(server: Harness) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})

    del server
    with serving("ours", app=http_only(app)) as other, other.connect() as client:
        for _ in range(2):
            client.sendall(head("/", method="HEAD"))
            answer = Answer(client, "HEAD")
            assert (answer.headers["content-length"], answer.body) == ("5", b"")
        client.sendall(head("/", method="GET"))
        assert Answer(client).body == b"hello"


def test_interim_answers(server: Harness) -> None:
    for version, interim in (("1.1", True), ("1.0", False)):
        with server.connect() as client:
            more = ["Expect: 100-continue", "Connection: close"]
            client.sendall(head("/interim", "Content-Length: 3", *more, version=version))
            time.sleep(0.05)
            client.sendall(b"abc")
            got = rest(client)
        assert got.startswith(b"HTTP/1.1 104 \r\nlocation: /uploads/1\r\n\r\n") is interim
        assert got.endswith(b"\r\n3\r\n0\r\n\r\n" if interim else b"\r\n\r\n3")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_requests_to_upgrade_are_answered_without(server: Harness, protocol: str) -> None:
    upgrade = ["Connection: Upgrade", f"Upgrade: {protocol}"]
    with server.connect() as client:
        for _ in range(2):
            client.sendall(head("/hello", *upgrade, method="GET"))
            assert Answer(client).json() == {"hello": "world"}


def http_only(app: Any) -> Any:  # noqa: ANN401
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)

    return guarded


def of_connections() -> list[object]:
    """All objects of connections and requests."""
    kinds = (BodyCycle, BodyProtocol, SocketBody)
    # By type: to ask a weak proxy for its class fails once what it stands for is gone.
    return [found for found in gc.get_objects() if issubclass(type(found), kinds)]


def test_nothing_of_a_connection_waits_for_a_collection_of_garbage(server: Harness) -> None:
    wait_until(server.quiet)
    gc.collect()
    gc.disable()
    try:
        with server.connect() as client:
            client.sendall(HELLO)
            client.recv(10)
        with server.connect() as client:
            client.sendall(head("/sum", "Content-Length: 10") + b"abc")
            wait_until(lambda: any(type(found) is SocketBody for found in of_connections()))
        wait_until(lambda: LOG == ["left after 3"])
        wait_until(lambda: not of_connections())
    finally:
        gc.enable()


def test_plain_applications(server: Harness) -> None:
    """receive() says when the client left, and send() says that nobody listens."""
    seen: list[object] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        seen.append((await receive())["type"])
        with pytest.raises(ClientDisconnected):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        seen.append("told")

    del server
    with serving("ours", app=http_only(app)) as other:
        with other.connect() as client:
            client.sendall(HELLO)
            client.recv(10)
        wait_until(lambda: len(seen) == 3)
    assert seen == ["http.request", "http.disconnect", "told"]


def test_wrong_applications(server: Harness) -> None:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/nothing":
            return
        if scope["path"] == "/raise":
            raise ValueError("as the test wants")
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/short":
            await send({"type": "http.response.body", "body": b"x"})
        if scope["path"] == "/long":
            await send({"type": "http.response.body", "body": b"too long"})

    del server
    with serving("ours", app=http_only(app)) as other:
        for path in ("/nothing", "/raise"):
            with other.connect() as client:
                client.sendall(head(path, method="GET"))
                is_problem(Answer(client), 500, "internal")
        for path in ("/short", "/long", "/unended"):
            with other.connect() as client:
                client.sendall(head(path, method="GET"))
                assert not Answer(client).whole


def test_cancelled_reads_lose_nothing(server: Harness) -> None:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        body = scope["extensions"]["thalweg.body"]
        got = b""
        while not body.complete:
            room = memoryview(bytearray(20_000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    size = await body.read_into(room)
                    got += room[:size]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": got})

    del server
    data = content(100_000)
    with serving("ours", app=http_only(app)) as other, other.connect() as client:
        client.sendall(head("/", "Transfer-Encoding: chunked"))
        wire = chunked(data, 999)
        for at in range(0, len(wire), 1500):
            client.sendall(wire[at : at + 1500])
            time.sleep(0.001)
        assert Answer(client).body == data
