"""How long a small piece of work waits."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable

from app.engine.workers import Workers
from app.health.monitor import LoopLagProbe


async def become(done: Callable[[], bool]) -> None:
    """Wait until something is true of a measurement, which is no event."""
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_a_pool_that_is_taken_keeps_work_waiting() -> None:
    async def run() -> None:
        owners, free = itertools.cycle("abcd"), threading.Event()
        threads = Workers(1, lambda: next(owners))
        lag_probe = LoopLagProbe(threads.start)
        # Long calls give their places away, but there are only so many threads.
        taken = [threads.start(free.wait) for _ in range(4)]
        lag_probe.start()
        await become(lambda: lag_probe.thread_seconds >= 0.3)
        free.set()
        await asyncio.gather(*taken)
        await become(lambda: lag_probe.thread_seconds < 0.2)
        await lag_probe.stop()
        threads.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_loop_that_stands_still_is_seen_from_another_thread() -> None:
    seen: list[float] = []

    async def run() -> None:
        threads = Workers(1)
        lag_probe = LoopLagProbe(threads.start)
        lag_probe.start()
        await asyncio.sleep(0)
        assert lag_probe.loop_seconds < 0.2
        watcher = threading.Thread(target=watch, args=(lag_probe,))
        watcher.start()
        watcher.join()  # the loop stands still meanwhile
        await lag_probe.stop()
        threads.close()

    def watch(lag_probe: LoopLagProbe) -> None:
        deadline = time.monotonic() + 20
        while lag_probe.loop_seconds < 0.3 and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(lag_probe.loop_seconds)

    asyncio.run(run())
    assert seen[0] >= 0.3
