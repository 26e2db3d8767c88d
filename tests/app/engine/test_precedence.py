"""Quick calls go first: other work sleeps at its checks, and its threads have a lower priority."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from app.engine import precedence as precedence_module
from app.engine import workers as workers_module
from app.engine.budgets import Budgets
from app.engine.local import LocalEngine
from app.engine.precedence import SWITCH_SECONDS, Precedence, shorten_switches
from app.engine.workers import Workers
from core.budget import current


class Clock:
    """Stands in for the module ``time``: sleeping takes no time, and is noted."""

    def __init__(self) -> None:
        self.slept: list[str] = []

    def sleep(self, seconds: float) -> None:
        assert seconds == precedence_module._PAUSE
        self.slept.append(threading.current_thread().name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(precedence_module, "time", clock)
    # A quick call is quick however long the test takes.
    monkeypatch.setattr(workers_module, "LONG_SECONDS", 1000.0)
    return clock


@pytest.fixture
def precedence() -> Precedence:
    return Precedence()


@pytest.fixture
def workers(precedence: Precedence) -> Iterator[Workers]:
    workers = Workers(1, precedence=precedence)
    yield workers
    workers.close()


def look() -> None:
    """Check the budget, as work does once per millisecond."""
    current().spend("stage", 1, 1e-9)


def under_budget(precedence: Precedence, run: object) -> None:
    async def request() -> None:
        with Budgets(precedence=precedence).of_request("ann", threading.Event()):
            await run()  # type: ignore[operator]  # a coroutine function

    asyncio.run(request())


def test_other_work_sleeps_at_its_checks_while_a_quick_call_runs(
    workers: Workers, precedence: Precedence, clock: Clock
) -> None:
    async def run() -> None:
        begun, end = threading.Event(), threading.Event()

        def quick() -> None:
            look()
            begun.set()
            assert end.wait(20)

        await workers.start(look)
        assert clock.slept == []
        call = workers.quick(quick)
        assert await asyncio.to_thread(begun.wait, 20)
        assert clock.slept == [], "quick calls give way to nobody"
        await workers.start(look)
        assert len(clock.slept) == 1
        end.set()
        await call
        await workers.start(look)
        assert len(clock.slept) == 1

    under_budget(precedence, run)


def test_a_quick_call_that_takes_long_loses_its_precedence(
    workers: Workers,
    precedence: Precedence,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers_module, "LONG_SECONDS", 0.0)

    async def run() -> None:
        begun, end = threading.Event(), threading.Event()

        def quick() -> None:
            begun.set()
            assert end.wait(20)

        call = workers.quick(quick)
        assert await asyncio.to_thread(begun.wait, 20)
        await workers.start(look)
        assert clock.slept == []
        end.set()
        await call

    under_budget(precedence, run)


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_threads_of_large_work_are_nicer_and_those_of_quick_calls_are_not() -> None:
    async def run() -> tuple[int, int]:
        # The thread of the first call starts that of the second, and must not pass it on.
        await asyncio.gather(*(workers.start(niceness) for _ in range(4)))
        return await workers.start(niceness), await workers.quick(niceness)

    workers = Workers(2)
    engine = LocalEngine(1)
    try:
        here = niceness()
        ordinary, quick = asyncio.run(run())
        assert quick == here
        assert ordinary == engine.submit(niceness).result() == min(here + 5, 19)
    finally:
        engine.close()
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
