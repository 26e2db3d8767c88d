"""Flags behave as events of asyncio."""

from __future__ import annotations

import asyncio

import pytest

from app.server.flag import Flag


@pytest.mark.parametrize("kind", [asyncio.Event, Flag])
def test_who_waits_is_woken_once(kind: type[asyncio.Event | Flag]) -> None:
    async def run() -> None:
        event = kind()
        assert not event.is_set()
        waits = [asyncio.create_task(event.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [True, False, False]
        event.set()
        event.clear()
        late = asyncio.create_task(event.wait())
        await asyncio.gather(*waits[1:])
        assert not event.is_set()
        assert not late.done()
        event.set()
        await late
        await event.wait()
        assert event.is_set()

    asyncio.run(run())


def test_a_future_of_its_own_may_be_cancelled() -> None:
    async def run() -> None:
        flag = Flag()
        left, stays = flag.future(), flag.future()
        left.cancel()
        await asyncio.sleep(0)
        assert flag._waiters is not None
        assert len(flag._waiters) == 1
        flag.set()
        await stays
        await flag.future()

    asyncio.run(run())
