"""Whole bodies in memory, of any length, and what is left of those that never end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.ledger import Ledger
from app.engine.workers import Workers
from app.errors import StalledError
from app.http.bodies import MinimumRate, read_whole
from app.server.body import BodyStalled

MIB = 1 << 20


class Body:
    """Brings some bytes; then it ends, or stalls."""

    def __init__(self, data: bytes, *, stalls: bool = False) -> None:
        self._data = memoryview(data)
        self._stalls = stalls

    async def read_into(self, view: memoryview) -> int:
        count = min(len(view), len(self._data))
        if not count and self._stalls:
            raise BodyStalled("no byte for 30 s")
        view[:count], self._data = self._data[:count], self._data[count:]
        return count


class Identity:
    """Undoes no coding."""

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        yield data

    def end(self) -> None:
        """Accept any end."""


def read(body: Any, ledger: Ledger) -> bytearray:  # noqa: ANN401 - part of a body
    async def whole() -> bytearray:
        threads = Workers(1)
        try:
            with ledger.hold("ann", 0, "inputs") as hold:
                data = await read_whole(body, hold, Identity(), MinimumRate(0), threads)
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
