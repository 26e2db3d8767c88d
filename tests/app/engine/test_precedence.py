"""Requests that compute for long give way while the service is strained."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from app.engine import precedence as precedence_module
from app.engine.budgets import Budgets
from app.engine.precedence import (
    LAG_SECONDS,
    LONG_SECONDS,
    SWITCH_SECONDS,
    Precedence,
    shorten_switches,
)
from app.engine.workers import Workers
from core.budget import current


class Clock:
    """Stands in for the module ``time``: sleeping takes no time, and is noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(precedence_module, "time", clock)
    return clock


LONG = 2 * LONG_SECONDS


def test_long_requests_give_way_while_the_service_is_strained(clock: Clock) -> None:
    precedence = Precedence()
    precedence.give_way(clock.now, "ann", LONG)
    precedence.note_lag(LAG_SECONDS / 2)
    precedence.give_way(clock.now, "ann", LONG)
    assert not clock.slept
    precedence.note_lag(LAG_SECONDS * 2)
    precedence.give_way(clock.now, "ann", LONG)
    assert len(clock.slept) == 1
    precedence.give_way(clock.now, "ann", LONG_SECONDS / 2)
    precedence.give_way(clock.now + 1000.0, "ann", LONG)
    assert len(clock.slept) == 1


def test_the_only_request_does_not_give_way(clock: Clock) -> None:
    precedence = Precedence()

    def waits() -> bool:
        before = len(clock.slept)
        precedence.give_way(clock.now, "ann", LONG)
        return len(clock.slept) > before

    precedence.note_lag(LAG_SECONDS * 2)
    precedence.begin()
    assert waits(), "others may have come and gone"
    clock.now += 2.0
    assert not waits()
    precedence.begin()
    assert waits(), "another is in progress"
    clock.now += 2.0
    assert waits()
    precedence.end()
    assert not waits()


def test_budgets_tell_how_many_requests_there_are(clock: Clock) -> None:
    precedence = Precedence()
    budgets = Budgets(precedence=precedence)

    def waits() -> bool:
        clock.now += 2.0
        precedence.note_lag(LAG_SECONDS * 2)
        before = len(clock.slept)
        precedence.give_way(clock.now, "ann", LONG)
        return len(clock.slept) > before

    with budgets.of_request("ann", threading.Event()):
        assert not waits()
        with budgets.of_request("bob", threading.Event()):
            assert waits()
        assert not waits()


def test_threads_of_one_owner_take_slots_one_after_the_other(clock: Clock) -> None:
    precedence = Precedence()
    precedence.note_lag(1.0)
    for _ in range(4):
        precedence.give_way(clock.now, "ann", LONG)
    waits = [after - before for before, after in zip(clock.slept, clock.slept[1:], strict=False)]
    assert waits == pytest.approx([waits[0]] * 3)
    assert waits[0] >= precedence_module._CLOSEST


def test_an_owner_with_many_threads_slows_down_another_by_half_only(clock: Clock) -> None:
    precedence = Precedence()
    precedence.note_lag(1.0)
    precedence.give_way(clock.now, "ann", LONG)
    alone = clock.slept[-1]
    for _ in range(50):
        precedence.give_way(clock.now, "bob", LONG)
    clock.now += clock.slept[0]
    precedence.give_way(clock.now, "ann", LONG)
    assert clock.slept[-1] == pytest.approx(2 * alone)


def test_nobody_waits_so_long_that_a_cancellation_would_go_unnoticed(clock: Clock) -> None:
    precedence = Precedence()
    precedence.note_lag(1.0)
    for _ in range(1000):
        precedence.give_way(clock.now, "ann", LONG)
    assert max(clock.slept) <= precedence_module._LONGEST + 1e-9


def test_slots_move_apart_while_the_event_loop_is_late_and_together_once_it_is_not(
    clock: Clock,
) -> None:
    precedence = Precedence()

    def wait() -> float:
        clock.now += 1.0
        precedence.note_lag(LAG_SECONDS * 2)
        precedence.give_way(clock.now, "ann", LONG)
        return clock.slept[-1]

    first = wait()
    for _ in range(10):
        precedence.note_lag(LAG_SECONDS * 2)
    assert wait() > 2 * first
    for _ in range(50):
        precedence.note_lag(0.0)
    assert wait() <= 2 * first


def test_checks_of_budgets_give_way_in_threads_and_never_in_the_event_loop(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precedence_module, "LONG_SECONDS", -1.0)
    precedence = Precedence()

    async def request() -> None:
        with Budgets(precedence=precedence).of_request("ann", threading.Event()):
            # What spends no time of its own is asked once per millisecond only.
            current().spend("stage", 1, 1e-9)
            assert not clock.slept
            await workers.start(lambda: current().spend("stage", 1, 1e-9))
            # At the beginning of the call, and at the check.
            assert len(clock.slept) == 2

    clock.now += 1000.0
    precedence.note_lag(1.0)
    workers = Workers(1)
    try:
        asyncio.run(request())
    finally:
        workers.close()


def test_a_request_of_many_short_calls_becomes_long(clock: Clock) -> None:
    precedence = Precedence()

    async def request() -> None:
        with Budgets(precedence=precedence).of_request("ann", threading.Event()) as budget:
            while budget.worked <= LONG_SECONDS:
                assert not clock.slept
                await workers.start(sum, range(10_000))
            await workers.start(sum, range(10_000))
            assert clock.slept

    clock.now += 1000.0
    precedence.note_lag(1.0)
    workers = Workers(1)
    try:
        asyncio.run(request())
    finally:
        workers.close()


def test_the_interpreter_hands_its_lock_over_often() -> None:
    before = sys.getswitchinterval()
    try:
        shorten_switches()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
        sys.setswitchinterval(SWITCH_SECONDS / 2)
        shorten_switches()
        assert sys.getswitchinterval() < SWITCH_SECONDS
    finally:
        sys.setswitchinterval(before)
