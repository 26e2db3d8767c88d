"""Threads pass bodies on to the socket, in turns with the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import uvloop
from fastapi import FastAPI

from app.engine.workers import Workers
from app.server.body import ClientDisconnected
from app.server.flow import Flag, Flow
from app.server.limits import ServerLimits
from app.server.passing import MESSAGE_BYTES, Passing, SocketPasser, Start, Write
from app.server.responses import Exchange, ExchangeResponse
from tests.app.server.harness import MIB, Answer, Harness, content, head, rest, serving, wait_until

CONTENT = content(5 * MIB)


class Memory:
    """Passes on ``CONTENT`` again and again, and may fail on the way.

    Args:
        size: number of bytes.
        portion: bytes offered at once.
        fail_at: bytes after which it fails.
    """

    def __init__(self, size: int, portion: int, fail_at: int | None) -> None:
        self.left = size
        self._at = 0
        self._portion = portion
        self._fail_at = fail_at
        self.threads: set[int] = set()

    def pass_on(self, write: Write) -> None:
        self.threads.add(threading.get_ident())
        if self._fail_at is not None and self._at >= self._fail_at:
            raise RuntimeError("as the test wants")
        begin = self._at % len(CONTENT)
        # Overwritten afterwards: nobody may refer to what was passed on.
        offered = bytearray(CONTENT[begin : begin + self._portion])
        sent = write(memoryview(offered)[: self.left])
        offered[:] = bytes(len(offered))
        self._at += sent
        self.left -= sent


class Desk:
    """What the application did."""

    def __init__(self) -> None:
        self.sources: list[Memory] = []
        self.ended: list[str] = []


def make_app(desk: Desk, workers: Workers) -> FastAPI:
    app = FastAPI()

    @app.api_route("/pass", methods=["GET", "HEAD"])
    async def _pass(
        size: int,
        portion: int = MIB,
        fail_at: int | None = None,
        known: bool = True,
        seconds: float | None = None,
        tail: bool = True,
    ) -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            source = Memory(size, portion, fail_at)
            desk.sources.append(source)
            # As long as the others together: nothing of it may overtake or be overtaken.
            await exchange.start(200, content_length=size + 4 + 4 * tail if known else None)
            await exchange.write(b"head")
            try:
                async with asyncio.timeout(seconds):
                    await exchange.pass_on(source, workers.start)
                await exchange.end(b"tail" * tail)
            except BaseException as error:
                desk.ended.append(type(error).__name__)
                raise

        return ExchangeResponse(handler)

    return app


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


@pytest.fixture(params=["ours", "ours-asyncio"])
def server(request: pytest.FixtureRequest, desk: Desk, workers: Workers) -> Iterator[Harness]:
    limits = ServerLimits(write_idle_seconds=0.5)
    with serving(request.param, limits, make_app(desk, workers)) as harness:
        yield harness


def expected(size: int) -> bytes:
    return b"head" + (CONTENT * (size // len(CONTENT) + 1))[:size] + b"tail"


def ask(client: socket.socket, query: str, method: str = "GET") -> Answer:
    client.sendall(head(f"/pass?{query}", method=method))
    return Answer(client, method)


def test_bodies_arrive_whole_and_in_order(server: Harness, desk: Desk) -> None:
    large = MESSAGE_BYTES + 3 * MIB
    with server.connect() as client:
        # One after the other over one connection.
        for size, more in ((0, ""), (1, ""), (large, ""), (70_000, "&portion=999")):
            assert ask(client, f"size={size}{more}").body == expected(size)
        assert ask(client, f"size={large}&known=false").body == expected(large)
        assert ask(client, f"size={MIB}", "HEAD").body == b""
        assert ask(client, "size=5").body == expected(5)
    used = set[int]().union(*(source.threads for source in desk.sources))
    assert used
    assert server.thread.ident not in used


def test_a_client_of_http_1_0_gets_it_until_the_connection_ends(server: Harness) -> None:
    with server.connect() as client:
        client.sendall(head("/pass?size=3000000&known=false", method="GET", version="1.0"))
        assert Answer(client, "GET").body == expected(3_000_000)


def test_a_failure_cannot_be_taken_for_the_end(server: Harness, desk: Desk) -> None:
    for known in ("true", "false"):
        with server.connect() as client:
            answer = ask(client, f"size={4 * MIB}&fail_at={2 * MIB}&known={known}")
            assert not answer.whole
            assert expected(4 * MIB).startswith(answer.body)
    assert desk.ended == ["RuntimeError"] * 2


def test_a_slow_reader_gets_everything_and_needs_no_thread(
    server: Harness, desk: Desk, workers: Workers
) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect(receive_buffer=1 << 17)) for _ in range(4)]
        for client in slow:
            client.sendall(head(f"/pass?size={6 * MIB}", method="GET"))
        wait_until(lambda: len(desk.sources) == len(slow))
        # More of them wait than there are threads.
        wait_until(lambda: not workers.running and not workers.waiting)
        with server.connect() as client:
            assert ask(client, f"size={MIB}").body == expected(MIB)
        for client in slow:
            assert Answer(client, "GET").body == expected(6 * MIB)


def test_a_client_that_never_reads_is_cut(server: Harness, desk: Desk) -> None:
    with server.connect(receive_buffer=4096) as client:
        client.sendall(head(f"/pass?size={64 * MIB}", method="GET"))
        wait_until(lambda: desk.ended == ["ClientDisconnected"])
        wait_until(server.quiet)
        with pytest.raises(ConnectionResetError):
            rest(client)


def test_a_client_that_leaves_is_noticed(server: Harness, desk: Desk) -> None:
    for read in (0, 3 * MIB):
        with server.connect() as client:
            client.sendall(head("/pass?size=100000000000", method="GET"))
            wait_until(lambda: bool(desk.sources))
            got = 0
            while got < read:
                got += len(client.recv(MIB))
        wait_until(lambda: desk.ended == ["ClientDisconnected"])
        wait_until(server.quiet)
        desk.ended.clear()
        desk.sources.clear()


class Owner(asyncio.Protocol):
    """Tells the flow what a transport tells it."""

    def __init__(self) -> None:
        self.flow = Flow(cast("asyncio.Transport", None))

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.flow.resume_writing()


@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_client_that_leaves_while_earlier_bytes_wait_is_noticed(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    source = Memory(5, 5, None)

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with theirs, ours.dup() as handle:
            handle.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while handle.send(bytes(4096)):
                    pass
            transport, owner = await asyncio.get_running_loop().create_connection(Owner, sock=ours)
            # Few enough bytes that the transport does not ask for a pause.
            transport.write(b"earlier")
            passer = SocketPasser(transport, owner.flow, None, handle)
            body = Passing(source, 5, cast("Start", None))
            task = asyncio.create_task(passer.pass_on(body, Flag()))
            await asyncio.sleep(0)
            theirs.close()
            with pytest.raises(ClientDisconnected):
                await task

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert source.left == 5


def test_a_client_that_closes_when_it_has_all_is_no_failure(server: Harness, desk: Desk) -> None:
    for _ in range(20):
        with server.connect() as client:
            client.sendall(head("/pass?size=3000000&tail=false", method="GET"))
            got = b""
            while not got.endswith(b"head" + CONTENT[:3_000_000]):
                got += client.recv(MIB)
    wait_until(server.quiet)
    assert set(desk.ended) <= {"ClientDisconnected"}


def test_a_handler_that_is_cancelled_leaves_no_thread_with_the_socket(
    server: Harness, desk: Desk, workers: Workers
) -> None:
    # One that does not read, so that the loop waits, and one that keeps a thread busy.
    for buffer, reads in ((4096, False), (0, True)):
        with server.connect(receive_buffer=buffer) as client:
            client.sendall(head("/pass?size=100000000000&seconds=0.1", method="GET"))
            if reads:
                client.settimeout(15)
                with contextlib.suppress(ConnectionError):
                    while client.recv(MIB):
                        pass
            wait_until(lambda: desk.ended == ["TimeoutError"])
            desk.ended.clear()
            left = desk.sources.pop().left
            wait_until(lambda: not workers.running)
            assert left > 0


def test_an_aborted_answer_passes_nothing_on() -> None:
    async def never(*_: object) -> Any:  # noqa: ANN401 - fails
        raise AssertionError

    async def run() -> None:
        extensions = dict.fromkeys(("body", "disconnected", "informational"))
        names = {f"thalweg.{name}": value for name, value in extensions.items()}
        scope = {"extensions": {**names, "thalweg.abort": lambda: None}}
        exchange = Exchange(scope, never)
        exchange.abort()
        with pytest.raises(ClientDisconnected):
            await exchange.pass_on(Memory(5, 5, None), cast("Start", never))

    asyncio.run(run())
