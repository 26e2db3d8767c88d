"""Long calls give way while the service is strained."""

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
    """Stands in for the module ``time``: sleeping takes no time, and is counted."""

    def __init__(self) -> None:
        self.slept = 0
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds == precedence_module._PAUSE
        self.slept += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(precedence_module, "time", clock)
    return clock


def test_a_long_call_gives_way_while_the_service_is_strained(clock: Clock) -> None:
    precedence, begun = Precedence(), clock.now
    long = begun + 2 * LONG_SECONDS
    precedence.give_way(long, begun)
    precedence.note_lag(LAG_SECONDS / 2)
    precedence.give_way(long, begun)
    assert clock.slept == 0
    precedence.note_lag(LAG_SECONDS * 2)
    precedence.give_way(long, begun)
    assert clock.slept == 1
    precedence.give_way(begun + LONG_SECONDS / 2, begun)
    precedence.give_way(begun + 1000.0, begun)
    assert clock.slept == 1


def test_checks_of_budgets_give_way_in_threads_and_never_in_the_event_loop(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precedence_module, "LONG_SECONDS", 0.0)
    precedence = Precedence()

    async def request() -> None:
        with Budgets(precedence=precedence).of_request("ann", threading.Event()):
            # What spends no time of its own is asked once per millisecond only.
            current().spend("stage", 1, 1e-9)
            assert clock.slept == 0
            await workers.start(lambda: current().spend("stage", 1, 1e-9))
            assert clock.slept == 1

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
