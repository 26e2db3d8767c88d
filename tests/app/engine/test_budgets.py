from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.engine.budgets import Budgets
from app.engine.request_budget import CHARGE_BYTES, BudgetLimits, RequestBudget
from app.engine.workers import Workers
from app.errors import BusyError
from core.budget import UNLIMITED, Scope, current
from core.errors import BudgetExceededError, CancelledError

LIMITS = BudgetLimits(memory=1000, cpu_seconds=0.02, items=1 << 17)


@dataclass
class Charge:
    total: int = 0
    limit: int = 1 << 40
    owners: list[str] = field(default_factory=list)

    def hold(self, owner: str, nbytes: int, purpose: str) -> Charge:
        assert purpose == "requests"
        self.owners.append(owner)
        self.grow(nbytes)
        return self

    def grow(self, nbytes: int) -> None:
        if self.total + nbytes > self.limit:
            raise BusyError("no more")
        self.total += nbytes

    def release(self) -> None:
        self.total = 0


@pytest.fixture
def gone() -> threading.Event:
    return threading.Event()


@pytest.fixture
def budget(gone: threading.Event) -> Iterator[RequestBudget]:
    with Budgets(LIMITS).of_request("ann", gone) as budget:
        yield budget


def burn(stage: str) -> None:
    """Compute until the budget says stop."""
    while True:
        sum(range(10_000))
        current().check(stage)


def test_cpu_time_ends_and_the_error_names_stage_budget_limit_and_setting(
    budget: RequestBudget,
) -> None:
    with pytest.raises(BudgetExceededError, match="needs more than the 0\\.02") as info:
        budget.run(burn, "filter")
    error = info.value
    assert (error.stage_name, error.budget) == ("filter", "cpu")
    assert (error.limit, error.setting) == (0.02, "THALWEG_REQUEST_CPU_SECONDS")


def test_cpu_time_of_all_threads_counts(budget: RequestBudget) -> None:
    def work() -> None:
        with pytest.raises(BudgetExceededError):
            budget.run(burn, "chunk")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_items_end_and_count_again_from_zero_after_progress(budget: RequestBudget) -> None:
    with budget.in_thread() as mine:
        mine.spend("map", 1 << 17)
        with pytest.raises(BudgetExceededError, match="131072 items"):
            mine.spend("map", 1 << 16)
        mine.renew()
        mine.spend("map", 1 << 17)


def test_bytes_are_refused_before_they_are_held_and_released_at_the_end(
    budget: RequestBudget,
) -> None:
    with budget.in_thread() as mine:
        with Scope("window", 600):
            with pytest.raises(BudgetExceededError, match="1000 bytes of memory"):
                mine.hold("pad", 401)
            mine.hold("pad", 400)
        assert mine.held == 0
        mine.hold("batch", 10)
    assert (budget.held, budget.peak) == (0, 1000)


def test_large_bytes_that_are_released_are_there_for_other_threads(gone: threading.Event) -> None:
    memory = 64 << 20
    with Budgets(BudgetLimits(memory=memory)).of_request("ann", gone) as budget:
        with budget.in_thread() as one, budget.in_thread() as other:
            one.hold("tile", memory)
            with pytest.raises(BudgetExceededError):
                other.hold("tile", 1)
            one.release(memory)
            other.hold("tile", memory)
        assert budget.held == 0


def test_renewing_keeps_the_bytes(budget: RequestBudget) -> None:
    with budget.in_thread() as mine:
        mine.hold("batch", 900)
        mine.renew()
        with pytest.raises(BudgetExceededError):
            mine.hold("batch", 101)


def test_work_of_a_client_that_left_is_cancelled(
    budget: RequestBudget, gone: threading.Event
) -> None:
    with budget.in_thread() as mine:
        mine.check("tile")
        gone.set()
        with pytest.raises(CancelledError, match="client left"):
            mine.check("tile")
    with pytest.raises(CancelledError), budget.in_thread():
        pytest.fail("work began for nobody")


def test_work_ends_with_its_request_and_with_the_server(gone: threading.Event) -> None:
    budgets = Budgets(LIMITS)
    with budgets.of_request("ann", gone) as budget:
        pass
    with pytest.raises(CancelledError, match="has ended"):
        budget.run(burn, "tile")
    budgets.stop()
    with budgets.of_request("ann", gone) as other, pytest.raises(CancelledError, match="stopping"):
        other.run(burn, "tile")


def test_counters_learn_of_what_was_exceeded_and_cancelled(gone: threading.Event) -> None:
    budgets, seen = Budgets(LIMITS), []
    budgets.on_exceeded = lambda stage, kind: seen.append((stage, kind))
    budgets.on_cancelled = lambda kind: seen.append(("cancelled", kind))
    with budgets.of_request("ann", gone) as budget, budget.in_thread() as mine:
        with pytest.raises(BudgetExceededError):
            mine.hold("pad", 1001)
        gone.set()
        with pytest.raises(CancelledError):
            mine.check("pad")
    assert seen == [("pad", "memory"), ("cancelled", "client")]


def test_held_bytes_are_charged_to_the_owner_in_steps(gone: threading.Event) -> None:
    ledger: Any = Charge()
    budgets = Budgets(BudgetLimits(memory=1 << 30), ledger)
    with budgets.of_request("ann", gone) as budget, budget.in_thread() as mine:
        mine.hold("small", CHARGE_BYTES - 1)
        assert ledger.total == 0
        mine.hold("more", 2)
        assert ledger.total == 2 * CHARGE_BYTES
        mine.hold("within", 100)
        mine.release(CHARGE_BYTES)
        assert (ledger.total, ledger.owners) == (2 * CHARGE_BYTES, ["ann"])
        ledger.limit = ledger.total
        with pytest.raises(BusyError):
            mine.hold("too much", 2 * CHARGE_BYTES)
        assert budget.held == 101
    assert ledger.total == 0


def test_memory_is_charged_until_the_last_thread_has_noticed_the_end(
    gone: threading.Event,
) -> None:
    ledger: Any = Charge()
    holds, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        current().hold("large", 2 * CHARGE_BYTES)
        holds.set()
        assert goes_on.wait(20)

    with Budgets(BudgetLimits(memory=1 << 30), ledger).of_request("ann", gone) as budget:
        thread = threading.Thread(target=budget.run, args=(work,))
        thread.start()
        assert holds.wait(20)
    with pytest.raises(CancelledError):
        budget.run(burn, "tile")
    assert ledger.total == 2 * CHARGE_BYTES
    goes_on.set()
    thread.join()
    assert ledger.total == 0


def test_what_failed_work_held_is_freed_with_its_budget(budget: RequestBudget) -> None:
    arrays: list[weakref.ref[np.ndarray]] = []

    def fail() -> None:
        array = np.zeros(8)
        arrays.append(weakref.ref(array))
        raise ValueError(str(array))

    with pytest.raises(ValueError, match="0") as caught:
        budget.run(fail)
    assert caught.value.__traceback__ is not None
    assert arrays[0]() is None


def start_in_workers(function: Callable[[], object]) -> object:
    async def main() -> object:
        workers = Workers(1)
        try:
            return await workers.start(function)
        finally:
            workers.close()

    return asyncio.run(main())


def test_threads_of_pools_work_under_the_budget_of_their_caller(budget: RequestBudget) -> None:
    engine = Workers(1)

    def nested() -> object:
        return engine.submit(current).result()

    try:
        inner = start_in_workers(nested)
    finally:
        engine.close()
    assert getattr(inner, "request", None) is budget


def test_threads_without_a_request_have_no_budget() -> None:
    assert start_in_workers(current) is UNLIMITED
