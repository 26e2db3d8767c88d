"""A thread reads bodies from the socket, in turns with the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from app.server.body import ClientDisconnected, FramingError
from app.server.responses import Exchange, ExchangeResponse
from tests.app.server.harness import (
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


class Desk:
    """What the application did with the bodies."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.clear()

    def clear(self) -> None:
        self.in_thread = 0
        self.in_loop = 0
        self.ended: list[str] = []
        self.go_on.set()


def make_app(desk: Desk) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(FramingError)
    async def _problem(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 400)

    @app.post("/sum")
    async def _sum(room: int = MIB, turn: int = 1 << 30) -> ExchangeResponse:
        """Read in the loop, then in a thread up to ``turn`` bytes while there are any."""

        async def handler(exchange: Exchange) -> None:
            body, view, digest = exchange.body, memoryview(bytearray(room)), hashlib.sha256()
            reader = body.in_thread()
            assert reader is not None

            def go_on() -> None:
                desk.go_on.wait(10)
                left = turn
                while left > 0 and (size := reader.read(view)):
                    digest.update(view[:size])
                    desk.in_thread += size
                    left -= size

            try:
                while size := await body.read_into(view):
                    digest.update(view[:size])
                    desk.in_loop += size
                    await asyncio.to_thread(go_on)
                assert body.complete
                assert reader.read(view) == 0
            except (ClientDisconnected, FramingError) as error:
                desk.ended.append(type(error).__name__)
                raise
            finally:
                reader.close()
            await exchange.start(200)
            await exchange.end(digest.hexdigest().encode())

        return ExchangeResponse(handler)

    @app.get("/hello")
    async def _hello() -> str:
        return "hello"

    return app


@pytest.fixture(scope="module", params=["ours", "ours-asyncio"])
def running(request: pytest.FixtureRequest) -> Iterator[tuple[Harness, Desk]]:
    desk = Desk()
    with serving(str(request.param), app=make_app(desk)) as harness:
        yield harness, desk


@pytest.fixture
def server(running: tuple[Harness, Desk]) -> Harness:
    return running[0]


@pytest.fixture
def desk(running: tuple[Harness, Desk]) -> Desk:
    running[1].clear()
    return running[1]


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


@pytest.mark.parametrize("room", [1, 100, 9000, MIB])
@pytest.mark.parametrize("turn", [1, 70_000, 1 << 30])
@pytest.mark.parametrize("chunk", [None, 7, 8192, 300_001])
def test_loop_and_thread_read_one_body_in_turns(
    server: Harness, room: int, turn: int, chunk: int | None
) -> None:
    data = content({1: 1500, 100: 50_000}.get(room, 20_000 if chunk == 7 else 700_005))
    framing = f"Content-Length: {len(data)}" if chunk is None else "Transfer-Encoding: chunked"
    wire = data if chunk is None else chunked(data, chunk)
    with server.connect() as client:
        for _ in range(2):
            client.sendall(head(f"/sum?room={room}&turn={turn}", framing) + wire)
            answer = Answer(client)
            assert (answer.status, answer.body) == (200, digest_of(data))


def test_most_of_a_fast_body_is_read_in_the_thread(server: Harness, desk: Desk) -> None:
    data = content(32 * MIB)
    desk.go_on.clear()
    with server.connect() as client:
        sender = threading.Thread(
            target=client.sendall, args=(head("/sum", f"Content-Length: {len(data)}") + data,)
        )
        sender.start()
        wait_until(lambda: desk.in_loop > 0)
        desk.go_on.set()
        assert Answer(client).body == digest_of(data)
        sender.join()
    assert desk.in_thread + desk.in_loop == len(data)
    assert desk.in_thread > 0


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_the_thread_leaves_the_requests_after_a_body(server: Harness, framing: str) -> None:
    data = content(100_000)
    if framing == "sized":
        one = head("/sum?room=9000", "Content-Length: 100000") + data
    else:
        one = head("/sum?room=9000", "Transfer-Encoding: chunked") + chunked(data, 777)
    get = head("/hello", method="GET")
    with server.connect() as client:
        client.sendall((one + get) * 3 + head("/hello", "Connection: close", method="GET"))
        got = rest(client)
    assert got.count(b"HTTP/1.1 200 OK") == 7
    assert got.count(digest_of(data)) == 3
    assert got.count(b'"hello"') == 4


def test_a_fault_that_the_thread_meets_is_raised_in_the_loop(server: Harness, desk: Desk) -> None:
    desk.go_on.clear()
    with server.connect() as client:
        client.sendall(head("/sum", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        wait_until(lambda: desk.in_loop == 3)
        client.sendall(b"zz\r\n")
        desk.go_on.set()
        assert Answer(client).status == 400
        assert rest(client) == b""
    assert desk.ended == ["FramingError"]


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_while_the_thread_reads_is_noticed(
    server: Harness, desk: Desk, reset: bool
) -> None:
    desk.go_on.clear()
    with server.connect() as client:
        client.sendall(head("/sum", "Content-Length: 1000") + b"abc")
        wait_until(lambda: desk.in_loop == 3)
        client.sendall(b"defg")
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        desk.go_on.set()
        wait_until(lambda: desk.ended == ["ClientDisconnected"])
    wait_until(server.quiet)


def test_paced_bytes_are_read_by_both(server: Harness) -> None:
    data = content(20_000)
    with server.connect() as client:
        client.sendall(head("/sum", "Transfer-Encoding: chunked"))
        for at in range(0, 20_000, 1000):
            client.sendall(b"3e8\r\n" + data[at : at + 1000] + b"\r\n")
            time.sleep(0.002)
        client.sendall(b"0\r\n\r\n")
        assert Answer(client).body == digest_of(data)
