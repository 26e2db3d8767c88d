"""A function called by several threads, with results in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from app.engine.workers import LONG_SECONDS, Workers
from app.losses.analyses import OrderedCalls, OrderedThreads


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_order(count: int) -> None:
    gate = threading.Event()

    def call(element: int) -> int:
        if element == 1:
            gate.set()
        elif element == 0 and count > 1:
            # The first result waits for the second.
            assert gate.wait(60)
        return element * element

    threads: OrderedThreads[int, int] = OrderedThreads(count)
    assert list(threads(call, range(20))) == [i * i for i in range(20)]


def test_elements_are_not_taken_far_ahead_of_results() -> None:
    taken: list[int] = []

    def elements() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    threads: OrderedThreads[int, int] = OrderedThreads(2)
    results = threads(lambda i: i, elements())
    assert next(results) == 0
    assert len(taken) <= 4
    assert list(results) == list(range(1, 100))


def test_an_error_is_raised_in_its_turn() -> None:
    def call(element: int) -> int:
        return 1 // element

    threads: OrderedThreads[int, int] = OrderedThreads(2)
    results = threads(call, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_no_more_calls_run_at_once_than_the_engine_has_places() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def call(element: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # The engine lets an owner of long calls begin others.
        time.sleep(2.5 * LONG_SECONDS)
        with lock:
            running -= 1
        return element

    async def run(workers: Workers) -> list[int]:
        await workers.start(int)
        calls: OrderedCalls[int, int] = OrderedCalls(workers)
        return await asyncio.to_thread(lambda: list(calls(call, range(5))))

    workers = Workers(2)
    try:
        assert asyncio.run(run(workers)) == list(range(5))
    finally:
        workers.close()
    assert most == 2
