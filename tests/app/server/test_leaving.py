"""Clients that leave are noticed while nobody reads their socket, without asking for each."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from app.server import leaving
from app.server.flow import Flow
from app.server.leaving import Disconnect, Disconnects
from tests.descriptors import nothing_left_open

Socket = socket.socket


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def run(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(work, 20.0))

    return run


@pytest.fixture(params=[socket.AF_UNIX, socket.AF_INET], ids=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Socket, Socket]]:
    if request.param == socket.AF_UNIX:
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
    with ours, theirs:
        yield ours, theirs


Runs = Callable[[Awaitable[None]], None]
Pair = tuple[Socket, Socket]


@pytest.mark.parametrize("leave", [socket.socket.close, lambda s: s.shutdown(socket.SHUT_WR)])
def test_an_end_is_told_once_though_nobody_reads(
    run: Runs, pair: Pair, leave: Callable[[Socket], None]
) -> None:
    ours, theirs = pair

    async def work() -> None:
        loop, ended, disconnects = asyncio.get_running_loop(), asyncio.Event(), Disconnects()
        calls: list[int] = []

        def end() -> None:
            calls.append(1)
            ended.set()

        disconnects.watch(loop, ours.fileno(), end)
        theirs.sendall(b"never read")
        await asyncio.sleep(0.05)
        assert not calls, "bytes are no end"
        leave(theirs)
        await ended.wait()
        await asyncio.sleep(0.05)
        assert len(calls) == 1
        # Whoever asks again is told again.
        ended.clear()
        disconnects.watch(loop, ours.fileno(), end)
        await ended.wait()
        disconnects.forget(loop, ours.fileno())

    run(work())


def test_whoever_left_before_is_told_of_too(run: Runs, pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()

    async def work() -> None:
        loop, ended, disconnects = asyncio.get_running_loop(), asyncio.Event(), Disconnects()
        disconnects.watch(loop, ours.fileno(), ended.set)
        await ended.wait()
        disconnects.forget(loop, ours.fileno())

    run(work())


def test_what_is_forgotten_is_not_told_and_nothing_stays_open(run: Runs, pair: Pair) -> None:
    ours, theirs = pair

    async def work() -> None:
        loop, disconnects = asyncio.get_running_loop(), Disconnects()
        calls: list[int] = []
        with nothing_left_open():
            disconnects.watch(loop, ours.fileno(), lambda: calls.append(1))
            disconnects.forget(loop, ours.fileno())
            disconnects.forget(loop, ours.fileno())
        theirs.close()
        await asyncio.sleep(0.05)
        assert not calls

    run(work())


def test_a_callback_may_forget_others_that_ended_as_well(run: Runs) -> None:
    pairs = [socket.socketpair() for _ in range(3)]

    async def work() -> None:
        loop, ended, disconnects = asyncio.get_running_loop(), asyncio.Event(), Disconnects()
        calls: list[int] = []

        def end() -> None:
            calls.append(1)
            for ours, _ in pairs:
                disconnects.forget(loop, ours.fileno())
            ended.set()

        for ours, theirs in pairs:
            disconnects.watch(loop, ours.fileno(), end)
            theirs.close()
        await ended.wait()
        assert calls == [1]

    try:
        run(work())
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()


def test_too_many_open_files_are_waited_out(
    run: Runs, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    attempts: list[int] = []
    epoll = select.epoll

    def refuse() -> select.epoll:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return epoll()

    class Transport(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__()
            self.aborted = asyncio.Event()

        def is_closing(self) -> bool:
            return False

        def get_extra_info(self, name: str, default: object = None) -> object:
            return ours if name == "socket" else default

        def pause_reading(self) -> None:
            pass

        def abort(self) -> None:
            self.aborted.set()

    monkeypatch.setattr(select, "epoll", refuse)
    monkeypatch.setattr(leaving, "_MOMENT", 0.01)

    async def work() -> None:
        transport = Transport()
        flow = Flow(transport)
        flow.pause_reading()
        disconnect = Disconnect(Disconnects(), transport, flow, asyncio.get_running_loop())
        theirs.close()
        await transport.aborted.wait()
        disconnect.stop()

    run(work())
    assert len(attempts) == 3
