"""Threads that compute."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from app.engine.workers import Workers, share_of_cores


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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert [share_of_cores(count) for count in (1, 2, 4, 6, 12, 50)] == [12, 6, 3, 2, 2, 2]
