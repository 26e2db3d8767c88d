"""Threads that compute."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from app.engine import workers as workers_module
from app.engine.workers import Workers, resting, share_of_cores
from tests.app.harness import wait_until


def test_a_call_runs_in_a_thread_and_returns_to_the_loop() -> None:
    async def run() -> str:
        return await workers.start(lambda: threading.current_thread().name)

    workers = Workers(2)
    assert asyncio.run(run()).startswith("worker")
    workers.close()


def test_what_a_call_raises_arrives() -> None:
    async def run() -> None:
        await workers.start(int, "x")

    workers = Workers(1)
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(run())
    workers.close()


class Gate:
    """Calls that run until the test opens the gate."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._count = threading.Semaphore(0)

    def __call__(self) -> None:
        self._count.release()
        assert self.open.wait(20)

    async def passed(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._count.acquire, timeout=20)


def test_an_owner_of_whom_no_call_runs_waits_for_nobody() -> None:
    owner = ""

    async def run() -> None:
        nonlocal owner
        gate, owner = Gate(), "abuser"
        stuck = [workers.start(gate) for _ in range(100)]
        await gate.passed(2)
        owner = "alice"
        assert await asyncio.wait_for(workers.start(int, "7"), 20) == 7
        assert (workers.running, workers.waiting) == (2, 98)
        gate.open.set()
        await asyncio.gather(*stuck)
        assert (workers.running, workers.waiting) == (0, 0)

    workers = Workers(2, lambda: owner)
    asyncio.run(run())
    workers.close()


def test_a_call_that_rests_gives_its_place_away() -> None:
    async def run() -> None:
        gate, order = Gate(), list[int]()

        def rest() -> None:
            with resting():
                gate()

        rests = [workers.start(rest) for _ in range(3)]
        await gate.passed(3)
        assert await asyncio.wait_for(workers.start(int, "7"), 20) == 7
        # Those that go on have places again.
        gate.open.set()
        await asyncio.gather(*rests)
        following = Gate()
        stuck, waits = workers.start(following), workers.start(order.append, 1)
        await following.passed(1)
        assert (workers.running, workers.waiting) == (1, 1)
        following.open.set()
        await asyncio.gather(stuck, waits)

    workers = Workers(1)
    asyncio.run(run())
    workers.close()


def test_calls_that_rest_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_RESTING", 2)

    async def run() -> None:
        gate = Gate()

        def rest() -> None:
            with resting():
                gate()

        rests = [workers.start(rest) for _ in range(9)]
        await gate.passed(3)
        assert (workers.running, workers.waiting) == (3, 6)
        gate.open.set()
        await asyncio.gather(*rests)

    workers = Workers(1)
    asyncio.run(run())
    workers.close()


def test_threads_outside_of_pools_have_no_place_to_give_away() -> None:
    with resting():
        pass


def test_a_thread_waits_for_what_it_submits() -> None:
    def fail() -> None:
        raise ValueError("no")

    workers = Workers(2)
    assert workers.submit(int, "7").result(20) == 7
    with pytest.raises(ValueError, match="no"):
        workers.submit(fail).result(20)
    workers.close()
    with pytest.raises(RuntimeError, match="ended"):
        workers.submit(int)


def test_calls_of_threads_take_turns_with_those_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_OF_ALL", 1)
    owner, order = "", list[str]()

    async def run() -> None:
        nonlocal owner
        gate, owner = Gate(), "abuser"
        stuck = workers.start(gate)
        await gate.passed(1)
        calls = [asyncio.wrap_future(workers.submit(order.append, owner)) for _ in range(50)]
        owner = "alice"
        calls += [workers.start(order.append, owner) for _ in range(2)]
        gate.open.set()
        await asyncio.gather(stuck, *calls)

    workers = Workers(1, lambda: owner)
    asyncio.run(run())
    workers.close()
    assert sorted(order[:4]) == ["abuser", "abuser", "alice", "alice"]


def test_a_submitted_call_that_was_cancelled_or_dropped_never_runs() -> None:
    ran: list[int] = []
    gate = Gate()
    workers = Workers(1)
    stuck, cancelled = workers.submit(gate), workers.submit(ran.append, 1)
    assert cancelled.cancel()
    dropped = workers.submit(ran.append, 2)
    closing = threading.Thread(target=workers.close)
    closing.start()
    wait_until(dropped.cancelled)
    gate.open.set()
    closing.join()
    stuck.result(20)
    assert ran == []


def test_owners_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a call of each beside another, their order would be that of the system.
    monkeypatch.setattr(workers_module, "_OF_ALL", 1)
    owner = ""
    order: list[str] = []

    async def run() -> None:
        nonlocal owner
        gate = Gate()
        stuck = workers.start(gate)
        await gate.passed(1)
        calls = []
        for name in ("abuser", "alice", "bob"):
            owner = name
            calls += [workers.start(order.append, name) for _ in range(3)]
        gate.open.set()
        await asyncio.gather(stuck, *calls)

    workers = Workers(1, lambda: owner)
    asyncio.run(run())
    workers.close()
    assert sorted(order[:3]) == sorted(order[3:6]) == ["abuser", "alice", "bob"]


def test_a_short_call_does_not_wait_for_long_ones_of_its_owner() -> None:
    async def run() -> None:
        gate = Gate()
        stuck = workers.start(gate)
        await gate.passed(1)
        assert await asyncio.wait_for(workers.start(int, "1"), 20) == 1
        assert await asyncio.wait_for(asyncio.wrap_future(workers.submit(int, "2")), 20) == 2
        gate.open.set()
        await stuck

    workers = Workers(1)
    asyncio.run(run())
    workers.close()


def test_a_cancelled_call_that_waits_never_runs() -> None:
    ran: list[int] = []

    async def run() -> None:
        gate = Gate()
        stuck = workers.start(gate)
        await gate.passed(1)
        waiting = workers.start(ran.append, 1)
        waiting.cancel()
        gate.open.set()
        await stuck
        await workers.start(int)

    workers = Workers(1)
    asyncio.run(run())
    workers.close()
    assert ran == []


def test_an_error_and_its_frames_are_gone_after_it_was_raised() -> None:
    class Thing:
        pass

    seen: list[weakref.ref[Thing]] = []

    def fail() -> None:
        thing = Thing()
        seen.append(weakref.ref(thing))
        raise ValueError(str(thing))

    async def run() -> None:
        with contextlib.suppress(ValueError):
            await workers.start(fail)
        await workers.start(int)

    workers = Workers(1)
    gc.disable()
    try:
        asyncio.run(run())
        # The thread lets go of a call a moment after its result is there.
        wait_until(lambda: seen[0]() is None, 20.0)
    finally:
        gc.enable()
        workers.close()


def test_closing_waits_for_the_current_call_and_drops_the_next() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert go_on.wait(10)
        done.append(1)

    async def run() -> None:
        current, following = workers.start(work), workers.start(done.append, 2)
        assert await asyncio.to_thread(begun.wait, 10)
        closing = asyncio.create_task(asyncio.to_thread(workers.close))
        with pytest.raises(asyncio.CancelledError):
            await following
        assert not closing.done()
        go_on.set()
        await current
        await closing

    workers = Workers(1)
    asyncio.run(run())
    assert done == [1]


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.workers.count_cores", lambda: 12)
    assert [share_of_cores(count) for count in (1, 2, 4, 6, 12, 50)] == [12, 6, 3, 2, 2, 2]
