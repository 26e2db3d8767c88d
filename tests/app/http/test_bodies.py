"""Whole bodies in memory, of any length, and what is left of those that never end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.ledger import Ledger
from app.engine.workers import Workers
from app.errors import BusyError, ShareExceededError, StalledError, TooLargeError
from app.http.bodies import PIECE_BYTES, MinimumRate, Pieces, read_whole
from app.http.decompression import Decoder
from app.server.body import BodyStalled

MIB = 1 << 20


class Body:
    """Brings some bytes; then it ends, or stalls."""

    def __init__(self, data: bytes, *, stalls: bool = False) -> None:
        self._data = memoryview(data)
        self._stalls = stalls

    async def wait(self) -> None:
        """Wait for nothing."""

    def in_thread(self) -> None:
        """Have no socket."""

    async def read_into(self, view: memoryview) -> int:
        return self.read_now(view)

    def read_now(self, view: memoryview) -> int:
        count = min(len(view), len(self._data))
        if not count and self._stalls:
            raise BodyStalled("no byte for 30 s")
        view[:count], self._data = self._data[:count], self._data[count:]
        return count


class Socket:
    """A body that threads may read; notes which do."""

    def __init__(self, data: bytes) -> None:
        self._body = Body(data)
        self.on_loop, self.in_threads = 0, 0
        self.open = 0

    async def wait(self) -> None:
        """Wait for nothing."""

    async def read_into(self, view: memoryview) -> int:
        count = await self._body.read_into(view)
        self.on_loop += count
        return count

    def in_thread(self) -> Socket:
        self.open += 1
        return self

    def read(self, view: memoryview) -> int:
        assert threading.current_thread() is not threading.main_thread()
        count = self._body.read_now(view)
        self.in_threads += count
        return count

    def close(self) -> None:
        self.open -= 1


class Identity:
    """Undoes no coding; notes the threads."""

    def __init__(self) -> None:
        self.threads: Counter[str] = Counter()

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        self.threads[threading.current_thread().name] += 1
        yield data

    def end(self) -> None:
        """Accept any end."""


class Growing(Identity):
    """Makes 20 MiB of every byte."""

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        for octet in data:
            for _ in range(20):
                self.threads[threading.current_thread().name] += 1
                yield memoryview(bytes([octet]) * MIB)


def read(body: Any, ledger: Ledger, decode: Decoder | None = None) -> bytearray:  # noqa: ANN401
    async def whole() -> bytearray:
        threads = Workers(1)
        try:
            with ledger.hold("ann", 0, "inputs") as hold:
                coding = Identity() if decode is None else decode
                data = await read_whole(body, hold, coding, MinimumRate(0), threads)
                assert hold.nbytes >= len(data)
                return data
        finally:
            await asyncio.get_running_loop().shutdown_default_executor()
            threads.close()

    return asyncio.run(whole())


def mapped() -> int:
    """Number of mappings of this process."""
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("size", [0, 100, MIB, 5 * MIB + 3])
def test_a_body_is_read_to_its_end(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    ledger = Ledger(64 * MIB, 64 * MIB)
    assert read(Body(data), ledger) == data
    assert ledger.held == 0


def test_nothing_is_left_of_a_long_body_that_stalls() -> None:
    ledger, before = Ledger(200 * MIB, 200 * MIB), mapped()
    with pytest.raises(StalledError):
        read(Body(bytes(40 * MIB), stalls=True), ledger)
    assert ledger.held == 0
    assert mapped() < before + 30


def test_threads_read_a_long_body_that_comes_fast() -> None:
    data = np.random.default_rng(1).bytes(30 * MIB + 5)
    body = Socket(data)
    assert read(body, Ledger(200 * MIB, 200 * MIB)) == data
    # The loop learns by reading that the body becomes long.
    assert body.on_loop <= MIB + (1 << 16)
    assert body.in_threads == len(data) - body.on_loop
    assert body.open == 0


def test_the_event_loop_reads_a_short_body_alone() -> None:
    body = Socket(bytes(MIB))
    assert read(body, Ledger(64 * MIB, 64 * MIB)) == bytes(MIB)
    assert body.in_threads == body.open == 0


def test_a_thread_decodes_what_becomes_long() -> None:
    decode = Growing()
    data = read(Body(b"ab"), Ledger(200 * MIB, 200 * MIB), decode)
    assert data == b"a" * (20 * MIB) + b"b" * (20 * MIB)
    assert decode.threads[threading.main_thread().name] == 1
    assert decode.threads["worker"] == 39


def test_a_body_that_breaks_off_in_a_thread_leaves_nothing() -> None:
    ledger, body = Ledger(8 * MIB, 8 * MIB), Socket(bytes(20 * MIB))
    before = mapped()
    with pytest.raises((TooLargeError, BusyError, ShareExceededError)):
        read(body, ledger)
    assert ledger.held == body.open == 0
    assert mapped() < before + 30


SIZES = [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 5 * PIECE_BYTES - 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("most", [1 << 16, 3 << 20])
def test_a_body_is_the_same_however_it_arrives(size: int, most: int) -> None:
    rng = np.random.default_rng(size + most)
    body = rng.bytes(size)
    pieces, at = Pieces(), 0
    while at < size:
        step = int(rng.integers(1, most))
        pieces.add(memoryview(body)[at : at + step])
        at += step
        assert len(pieces) == min(at, size)
    assert pieces.is_short == (size <= PIECE_BYTES)
    assert pieces.take() == body
    assert len(pieces) == 0


def test_nothing_of_a_long_body_is_moved_or_stays_mapped() -> None:
    pieces, before = Pieces(), mapped()
    pieces.add(bytes(PIECE_BYTES))
    first = pieces._first
    for _ in range(40 * PIECE_BYTES >> 16):
        pieces.add(bytes(1 << 16))
    assert pieces._first is first
    assert len(first) == PIECE_BYTES
    assert len(pieces._pieces) == 40
    pieces.clear()
    assert len(pieces) == 0
    assert mapped() < before + 10


def test_bytes_after_a_taken_body_begin_another() -> None:
    pieces = Pieces()
    pieces.add(b"a" * (PIECE_BYTES + 5))
    assert len(pieces.take()) == PIECE_BYTES + 5
    pieces.add(b"b")
    assert pieces.take() == b"b"
