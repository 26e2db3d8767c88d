"""Several requests at once: in order, in bounds, and given up when nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from app.datasets.files import fetching
from app.datasets.files.fetching import AT_ONCE, Fetching, Wanted
from app.engine.ledger import Ledger
from app.engine.request_budget import BudgetLimits, RequestBudget
from core.arrays import Octets
from core.budget import installed
from core.errors import CancelledError


def octets_of(value: int, size: int = 10) -> Octets:
    return np.full(size, value, np.uint8)


def test_results_come_in_order_and_so_many_are_under_way() -> None:
    running = threading.Semaphore(AT_ONCE)

    def call(number: int) -> int:
        assert running.acquire(blocking=False)
        time.sleep(0.002 if number % 3 else 0.02)
        running.release()
        return number

    assert list(Fetching().each(partial(call, k) for k in range(50))) == list(range(50))


def test_an_error_is_raised_in_its_turn() -> None:
    def call(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        return number

    seen: list[int] = []
    with pytest.raises(KeyError, match="3"):
        seen.extend(Fetching().each(partial(call, k) for k in range(50)))
    assert len(seen) <= 3


class Leaving:
    """The budget of somebody who leaves after some looks."""

    held = 0

    def __init__(self, looks: int) -> None:
        self.left = looks

    def check(self, _stage: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise CancelledError("nobody waits")

    def spend(self, stage: str, _items: int, _seconds: float = 0.0) -> None:
        self.check(stage)

    def hold(self, _stage: str, _nbytes: int) -> None:
        pass

    def release(self, _nbytes: int) -> None:
        pass

    def renew(self) -> None:
        pass


def test_who_leaves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_STEP", 0.01)
    monkeypatch.setattr(fetching, "_THREADS", 1)
    begun, end = list[int](), threading.Event()

    def call(number: int) -> None:
        begun.append(number)
        end.wait(30)

    fetch = Fetching()
    with installed(Leaving(3)), pytest.raises(CancelledError):
        list(fetch.each(partial(call, k) for k in range(50)))
    end.set()
    assert fetch.start(lambda: 1).result(30) == 1
    assert begun == [0]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(100, 100)


def calls(count: int) -> Iterator[tuple[Wanted, Octets]]:
    for k in range(count):
        yield Wanted(("a",), 10 * k, 10 * k + 10), octets_of(k)


def test_what_is_ahead_is_in_the_ledger_until_it_is_taken(ledger: Ledger) -> None:
    fetch = Fetching(ledger)
    for wanted, octets in calls(5):
        fetch.fetch_ahead(wanted, partial(octets.view))
        fetch.fetch_ahead(wanted, partial(pytest.fail, "it is under way"))
    assert ledger.held == 50
    future, at = fetch.take(Wanted(("a",), 22, 30)) or pytest.fail("not kept")
    assert (future.result().tobytes(), at) == (octets_of(2).tobytes(), 2)
    assert ledger.held == 40
    for other in (Wanted(("a",), 20, 30), Wanted(("b",), 10, 20), Wanted(("a",), 15, 25)):
        assert fetch.take(other) is None


def test_where_memory_is_short_nothing_is_fetched_ahead(ledger: Ledger) -> None:
    fetch = Fetching(ledger)
    with ledger.hold("alice", 95, "tiles"):
        fetch.fetch_ahead(Wanted(("a",), 0, 10), partial(pytest.fail, "there is no memory"))
    for wanted, octets in calls(8):
        fetch.fetch_ahead(wanted, partial(octets.view))
    assert ledger.held == 80
    with ledger.hold("alice", 60, "tiles"):
        assert ledger.held == 100
        assert fetch.take(Wanted(("a",), 0, 10)) is None
        assert fetch.take(Wanted(("a",), 70, 80)) is not None


def test_no_more_than_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_AHEAD", 30)
    fetch = Fetching()
    for wanted, octets in calls(5):
        fetch.fetch_ahead(wanted, partial(octets.view))
    kept = [fetch.take(wanted) is not None for wanted, _ in calls(5)]
    assert kept == [False, False, True, True, True]


def test_what_is_ahead_is_given_up_with_its_reader(ledger: Ledger) -> None:
    """When the last of its threads has left; others keep what is ahead of them."""
    fetch = Fetching(ledger)
    readers = [RequestBudget(BudgetLimits(), threading.Event(), threading.Event()) for _ in "ab"]
    for (wanted, octets), reader in zip(calls(4), 2 * readers, strict=True):
        with reader.in_thread():
            fetch.fetch_ahead(wanted, partial(octets.view))
    with readers[0].in_thread():
        readers[0].close()
        assert ledger.held == 40
    assert ledger.held == 20
    assert [fetch.take(wanted) is not None for wanted, _ in calls(4)] == [False, True] * 2
