"""Groups of items, prepared ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from app.engine.request_budget import BudgetLimits, RequestBudget
from app.engine.workers import Workers
from app.streams.ahead import FAST_BYTES, GROUP_BYTES, GROUP_ITEMS, Ahead
from core.errors import StateError
from tests.app.harness import wait_until
from tests.app.streams.fakes import Number, Numbers


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


def groups(workers: Workers, numbers: Numbers) -> list[list[int]]:
    """The values of all groups."""

    async def run() -> list[list[int]]:
        ahead: Ahead[Number] = Ahead(iter(numbers), workers.start)
        found: list[list[int]] = []
        while True:
            await ahead.upcoming()
            group = [number.value for number in ahead.take()]
            if not group:
                await ahead.close()
                return found
            found.append(group)

    return asyncio.run(run())


def test_small_items_come_many_at_a_time(workers: Workers) -> None:
    found = groups(workers, Numbers(3 * GROUP_ITEMS))
    assert [value for group in found for value in group] == list(range(3 * GROUP_ITEMS))
    assert max(map(len, found)) <= GROUP_ITEMS


def test_large_items_come_one_at_a_time(workers: Workers) -> None:
    assert groups(workers, Numbers(3, nbytes=GROUP_BYTES)) == [[0], [1], [2]]


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, FAST_BYTES), (0.1, GROUP_BYTES)])
def test_groups_grow_for_a_client_that_is_fast(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, seconds: float, largest: int
) -> None:
    """The clock stands still, or passes on between two groups."""
    clock = Clock()
    monkeypatch.setattr("app.streams.ahead.time", clock)

    async def run() -> list[int]:
        ahead: Ahead[Number] = Ahead(iter(Numbers(40, nbytes=GROUP_BYTES // 2)), workers.start)
        sizes: list[int] = []
        while True:
            await ahead.upcoming()
            clock.now += seconds
            group = ahead.take()
            if not group:
                await ahead.close()
                return sizes
            sizes.append(sum(number.nbytes for number in group))

    sizes = asyncio.run(run())
    assert sum(sizes) == 20 * GROUP_BYTES
    assert sizes[0] == GROUP_BYTES
    assert max(sizes) == largest


class Clock:
    """A clock that the test moves."""

    now = 1.0

    def perf_counter(self) -> float:
        return self.now


def test_the_next_group_is_prepared_while_one_is_used(workers: Workers) -> None:
    async def run() -> None:
        free = threading.Semaphore(1)
        numbers = Numbers(3, nbytes=GROUP_BYTES, free=free)
        ahead: Ahead[Number] = Ahead(iter(numbers), workers.start)
        await ahead.upcoming()
        assert [number.value for number in ahead.take()] == [0]
        free.release(1)
        await asyncio.to_thread(wait_until, lambda: numbers.made == 2)
        free.release(1)
        await ahead.close()
        assert numbers.made == 2

    asyncio.run(run())


def test_the_same_group_is_coming_until_it_is_taken(workers: Workers) -> None:
    async def run() -> None:
        ahead: Ahead[Number] = Ahead(iter(Numbers(1)), workers.start)
        assert ahead.upcoming() is ahead.upcoming()
        await ahead.upcoming()
        ahead.take()
        await ahead.close()

    asyncio.run(run())


def test_a_failure_waits_for_the_items_before_it(workers: Workers) -> None:
    async def run() -> None:
        numbers = Numbers(3, fails=2, failure=StateError("no"))
        ahead: Ahead[Number] = Ahead(iter(numbers), workers.start)
        await ahead.upcoming()
        assert [number.value for number in ahead.take()] == [0, 1]
        await asyncio.wait({ahead.upcoming()})
        with pytest.raises(StateError):
            ahead.take()
        await ahead.close()

    asyncio.run(run())


def test_closing_stops_the_iterator_and_waits_for_it(workers: Workers) -> None:
    async def run() -> None:
        stopped = threading.Event()
        left = threading.Event()

        def slow() -> Iterator[Number]:
            assert stopped.wait(10)
            left.set()
            yield Number(0)
            raise AssertionError("it was asked for another item")

        ahead: Ahead[Number] = Ahead(slow(), workers.start, stopped)
        ahead.upcoming()
        await ahead.close()
        assert left.is_set()

    asyncio.run(run())


def test_a_group_is_counted_while_it_is_made(workers: Workers) -> None:
    async def run() -> None:
        numbers = Numbers(count=4, nbytes=GROUP_BYTES // 4)
        never = threading.Event()
        budget = RequestBudget(BudgetLimits(), never, never)
        ahead = Ahead(iter(numbers), lambda call: workers.start(budget.run, call))
        await ahead.upcoming()
        assert len(ahead.take()) == 4
        await ahead.close()
        assert budget.peak >= GROUP_BYTES

    asyncio.run(run())
