"""Bodies move into postings, with buffers of the pool only while bytes arrive in numbers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from app.engine.buffers import Buffers
from app.engine.ledger import Ledger
from app.engine.workers import Workers
from app.errors import BadRequestError, StalledError
from app.losses import pump as pump_module
from app.losses.pump import Pump
from app.server.drain import Drain

BIG = 1 << 20


class Body:
    """A body whose bytes come when the test sends them."""

    complete = False

    def __init__(self) -> None:
        self._bytes = b""
        self._news = asyncio.Event()
        self._ended = False
        self.waits = False
        self.fault: Exception | None = None

    def send(self, data: bytes, *, end: bool = False) -> None:
        self._bytes += data
        self._ended |= end
        self.waits = False
        self._news.set()

    async def wait(self) -> None:
        """Wait for nothing."""

    def in_thread(self) -> None:
        """Have no socket."""

    async def read_into(self, view: memoryview) -> int:
        while not self._bytes and not self._ended:
            self._news.clear()
            self.waits = True
            await self._news.wait()
        self.waits = False
        if self.fault is not None:
            raise self.fault
        return self.take(view)

    def take(self, view: memoryview) -> int:
        count = min(len(view), len(self._bytes))
        view[:count] = self._bytes[:count]
        self._bytes = self._bytes[count:]
        return count


class Reader:
    """Reads the bytes of a body in a thread, which come from no socket here."""

    def __init__(self, body: SocketLike) -> None:
        self.body = body
        self.threads: set[int] = set()
        self.closed = 0

    def read(self, view: memoryview) -> int:
        self.threads.add(threading.get_ident())
        return self.body.take(view)

    def close(self) -> None:
        self.closed += 1


class SocketLike(Body):
    """A body that a thread may read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = Reader(self)
        self.opened = 0

    def in_thread(self) -> Any:  # noqa: ANN401 - like a ThreadReader
        self.opened += 1
        return self.reader


class Posting:
    """What arrived."""

    def __init__(self) -> None:
        self.data = b""
        self.pieces: list[int] = []
        self.addresses: list[int] = []
        self.fault: Exception | None = None

    def feed(self, piece: memoryview) -> None:
        self.addresses.append(np.frombuffer(piece, np.uint8).ctypes.data - len(self.data))
        self.pieces.append(len(piece))
        self.data += piece
        if self.fault is not None:
            raise self.fault

    def finish(self) -> str:
        return "finished"

    suspend = finish


class Desk:
    """A pump, and what it works with."""

    def __init__(self, count: int = 4, share: int | None = None, body: Body | None = None) -> None:
        self.body, self.posting = body or Body(), Posting()
        self.buffers = Buffers(count, BIG, Ledger(64 * BIG, 64 * BIG), share)
        self.lent = 0
        self.judged: list[int] = []
        self.too_slow = False
        self.changed = asyncio.Event()
        self.threads = Workers(2)
        self.parsed = asyncio.Event()
        given: Any = self.body
        posting: Any = self.posting
        self.pump = Pump(
            given,
            posting,
            self.buffers,
            "alice",
            threads=self.threads,
            drain=Drain(),
            progress=lambda _: self.parsed.set(),
            lent=self._lend,
            hurry=self._hurry,
        )

    def _hurry(self, nbytes: int, _seconds: float) -> None:
        self.judged.append(nbytes)
        if self.too_slow:
            raise StalledError("too slow")

    def _lend(self, count: int) -> None:
        self.lent += count
        self.changed.set()

    async def until_parsed(self, size: int) -> None:
        while len(self.posting.data) < size:
            self.parsed.clear()
            await asyncio.wait_for(self.parsed.wait(), 10)

    async def until_out(self, count: int) -> None:
        while self.buffers.out != count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


@contextlib.asynccontextmanager
async def running(desk: Desk) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(desk.pump.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        desk.threads.close()
        assert (desk.buffers.out, desk.lent) == (0, 0)


def test_a_body_that_trickles_takes_no_buffer() -> None:
    async def run() -> None:
        desk = Desk()
        async with running(desk) as task:
            for k in range(1, 20):
                desk.body.send(b"x" * 100)
                await desk.until_parsed(100 * k)
                assert desk.buffers.out == 0
            desk.body.send(b"y", end=True)
            assert await task == "finished"
        assert desk.posting.data == b"x" * 1900 + b"y"

    asyncio.run(run())


def test_a_fast_body_has_buffers_and_gives_them_back_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pump_module, "_QUIET_SECONDS", 0.01)

    async def run() -> None:
        desk = Desk()
        data = b""
        async with running(desk) as task:
            for k in range(3):
                data += bytes([k]) * 3 * BIG
                desk.body.send(data[-3 * BIG :])
                await desk.until_parsed(len(data))
                await desk.until_out(0)
                assert desk.lent == 0
            desk.body.send(b"z", end=True)
            assert await task == "finished"
        assert desk.posting.data == data + b"z"

    asyncio.run(run())


def test_a_fast_body_has_one_buffer() -> None:
    async def run() -> None:
        desk = Desk()
        async with running(desk):
            desk.body.send(bytes(3 * BIG))
            await desk.until_parsed(3 * BIG)
            assert (desk.buffers.out, desk.lent) == (1, 1)

    asyncio.run(run())


@pytest.mark.parametrize("share", [None, 2])
def test_without_a_buffer_a_body_is_read_all_the_same(share: int | None) -> None:
    async def run() -> None:
        desk = Desk(2 if share is None else 8, share)
        taken = desk.buffers.take("bob" if share is None else "alice", 2)
        async with running(desk) as task:
            desk.body.send(b"x" * 3 * BIG, end=True)
            assert await task == "finished"
            assert desk.buffers.out == 2
            desk.buffers.give_back("bob" if share is None else "alice", taken)
        assert desk.posting.data == b"x" * 3 * BIG

    asyncio.run(run())


def test_a_fault_ends_the_pump_and_gives_the_buffers_back() -> None:
    async def run() -> None:
        desk = Desk()
        async with running(desk) as task:
            desk.posting.fault = BadRequestError("wrong")
            desk.body.send(bytes(3 * BIG))
            with pytest.raises(BadRequestError, match="wrong"):
                await task

    asyncio.run(run())


@pytest.mark.parametrize("part", ["body", "posting"])
def test_nothing_of_a_failed_pump_waits_for_a_collection_of_garbage(part: str) -> None:
    async def run() -> weakref.ref[Pump[Any]]:
        desk = Desk()
        async with running(desk) as task:
            fault = BadRequestError("wrong")
            if part == "body":
                desk.body.fault = fault
            else:
                desk.posting.fault = fault
            desk.body.send(bytes(8))
            await asyncio.wait({task})
            assert isinstance(task.exception(), BadRequestError)
        desk.body.fault = desk.posting.fault = None
        pump = weakref.ref(desk.pump)
        # The desk and its pump refer to each other.
        del desk.pump
        return pump

    gc.disable()
    try:
        assert asyncio.run(run())() is None
    finally:
        gc.enable()


def test_the_rate_of_a_slow_body_is_judged_and_may_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "_JUDGED_SECONDS", 0.01)

    async def run() -> None:
        desk = Desk()
        async with running(desk) as task:
            desk.body.send(b"x" * 100)
            await desk.until_parsed(100)
            while not desk.judged:
                desk.body.send(b"x")
                await desk.until_parsed(len(desk.posting.data) + 1)
            desk.too_slow = True
            with pytest.raises(StalledError, match="too slow"):
                await task
        assert all(count < 1000 for count in desk.judged)

    asyncio.run(run())


def test_a_fast_body_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "_JUDGED_SECONDS", 0.0)

    async def run() -> None:
        desk = Desk()
        async with running(desk):
            desk.body.send(bytes(pump_module._SMALL_BYTES))
            await desk.until_out(1)
            judged = len(desk.judged)
            for k in range(1, 4):
                desk.body.send(bytes(BIG))
                await desk.until_parsed(k * BIG)
            assert len(desk.judged) == judged

    asyncio.run(run())


def test_the_thread_that_parses_reads_the_rest_of_a_burst() -> None:
    async def run() -> None:
        body = SocketLike()
        desk = Desk(body=body)
        async with running(desk) as task:
            desk.body.send(bytes(5 * BIG), end=True)
            assert await task == "finished"
        assert desk.posting.data == bytes(5 * BIG)
        assert body.reader.threads
        assert threading.get_ident() not in body.reader.threads
        assert (body.opened, body.reader.closed) == (1, 1)

    asyncio.run(run())


def test_a_slow_body_is_not_read_in_a_thread() -> None:
    async def run() -> None:
        body = SocketLike()
        desk = Desk(body=body)
        async with running(desk):
            for k in range(1, 20):
                desk.body.send(b"x" * 100)
                await desk.until_parsed(100 * k)
        assert body.opened == 0

    asyncio.run(run())


def test_a_body_that_waits_holds_no_second_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "_QUIET_SECONDS", 0.01)

    async def run() -> None:
        body = SocketLike()
        desk = Desk(body=body)
        async with running(desk):
            for k in range(1, 4):
                desk.body.send(bytes(3 * BIG))
                await desk.until_parsed(3 * k * BIG)
                await desk.until_out(0)
                assert (body.opened, body.reader.closed) == (k, k)

    asyncio.run(run())


def test_a_turn_of_a_thread_ends_while_bytes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "_TURN_SECONDS", 0.0)

    async def run() -> None:
        body = SocketLike()
        desk = Desk(body=body)
        turns: list[int] = []
        desk.pump.progress = turns.append
        async with running(desk) as task:
            desk.body.send(bytes(8 * BIG), end=True)
            await task
        assert sum(turns) == 8 * BIG
        assert max(turns) <= BIG

    asyncio.run(run())


@pytest.mark.parametrize("body", [Body, SocketLike])
def test_words_of_a_body_lie_on_words_of_memory(body: type[Body]) -> None:
    async def run() -> None:
        desk = Desk(body=body())
        async with running(desk) as task:
            desk.body.send(bytes(4099))
            await desk.until_parsed(4099)
            desk.body.send(bytes(3 * BIG + 1))
            await desk.until_parsed(4100 + 3 * BIG)
            desk.body.send(bytes(BIG), end=True)
            await task
        assert len(desk.posting.addresses) > 5
        assert all(address % 4 == 0 for address in desk.posting.addresses)

    asyncio.run(run())


def test_a_fault_found_by_the_thread_ends_its_turn() -> None:
    async def run() -> None:
        body = SocketLike()
        desk = Desk(body=body)
        async with running(desk) as task:
            desk.body.send(bytes(BIG))
            await desk.until_parsed(BIG)
            desk.posting.fault = BadRequestError("wrong")
            desk.body.send(bytes(4 * BIG))
            with pytest.raises(BadRequestError, match="wrong"):
                await task
        assert len(desk.posting.data) <= 2 * BIG
        assert (body.opened, body.reader.closed) == (1, 1)

    asyncio.run(run())


def test_small_pieces_of_a_fast_body_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def recorded(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", recorded)
    monkeypatch.setattr(pump_module, "_QUIET_SECONDS", 60)
    # A busy machine must not cut a turn in two, of which the second would be small.
    monkeypatch.setattr(pump_module, "_TURN_SECONDS", 60)

    async def run() -> None:
        desk = Desk(body=SocketLike())
        async with running(desk):
            size = 0
            for piece, expected in [(100, 0), (100, 0), (BIG, 0), (9, 0), (9, 1), (BIG, 0), (9, 0)]:
                waits.clear()
                desk.body.send(bytes(piece))
                size += piece
                await desk.until_parsed(size)
                while not desk.body.waits:
                    await sleep(0)
                assert waits == [pump_module._GATHER_SECONDS] * expected

    asyncio.run(run())
