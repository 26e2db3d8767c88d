"""Small buffers of an answer are written together, large ones as they are."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.streams.sender import TOGETHER, Head, Sender
from tests.app.streams.fakes import FakeExchange


class Writes(FakeExchange):
    """Remembers the very objects that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: list[Any] = []

    async def write(self, data: bytes | memoryview) -> None:
        if data:
            self.objects.append(data)
        await super().write(data)


def send(buffers: list[bytes | memoryview], *, live: bool) -> Writes:
    exchange = Writes()

    async def run() -> None:
        sender = Sender(cast("Any", exchange), Head({}), cast("Any", None), None, live=live)
        await sender.add(buffers)
        await sender.finish([])

    asyncio.run(run())
    return exchange


@pytest.mark.parametrize("live", [True, False])
def test_hundreds_of_small_buffers_are_one_write(live: bool) -> None:
    buffers: list[bytes | memoryview] = [bytes([k % 256]) * 5000 for k in range(400)]
    exchange = send(buffers, live=live)
    assert b"".join(exchange.writes) == b"".join(buffers)
    assert len(exchange.objects) == 1


def test_large_buffers_are_not_copied_and_stay_in_order() -> None:
    large = [bytes([k]) * (2 * TOGETHER) for k in range(3)]
    buffers: list[bytes | memoryview] = [b"a", large[0], b"b", b"c", large[1], large[2], b"d"]
    exchange = send(buffers, live=True)
    assert b"".join(exchange.writes) == b"".join(buffers)
    assert [len(data) for data in exchange.objects if len(data) < TOGETHER] == [1, 2, 1]
    written = [data for data in exchange.objects if len(data) >= TOGETHER]
    assert all(a is b for a, b in zip(written, large, strict=True))
