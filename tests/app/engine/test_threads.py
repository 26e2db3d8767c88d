"""Threads that wait for jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.engine import threads as threads_module
from app.engine.threads import Threads
from tests.app.harness import wait_until


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads("test", kept=2)
    yield threads
    threads.close()


class Gate:
    """Jobs that note their thread, and wait until they are let go on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.passed: list[threading.Thread] = []
        self.done: list[threading.Thread] = []

    def __call__(self) -> None:
        self.passed.append(threading.current_thread())
        assert self.open.wait(20.0)
        self.done.append(threading.current_thread())


def burst(threads: Threads, jobs: int) -> set[threading.Thread]:
    """Run jobs side by side; return their threads once these are idle."""
    gate = Gate()
    for _ in range(jobs):
        threads.run(gate)
    wait_until(lambda: len(gate.passed) == jobs, 20.0)
    gate.open.set()
    wait_until(lambda: len(threads._idle) == len(threads), 20.0)
    assert len(gate.done) == jobs
    return set(gate.done)


def test_jobs_side_by_side_have_a_thread_each_and_later_ones_the_same(threads: Threads) -> None:
    used = burst(threads, 5)
    assert len(used) == 5
    assert burst(threads, 3) < used
    assert burst(threads, 5) == used


def test_those_that_are_kept_start_with_the_first_job(threads: Threads) -> None:
    assert len(threads) == 0
    burst(threads, 1)
    assert len(threads) == 2


def test_the_last_to_become_idle_runs_the_next_job(threads: Threads) -> None:
    burst(threads, 4)
    first = burst(threads, 1)
    for _ in range(20):
        assert burst(threads, 1) == first


def test_a_job_wakes_one_thread_alone(threads: Threads) -> None:
    burst(threads, 4)
    others = [idler.wake for idler in threads._idle[:-1]]
    gate = Gate()
    threads.run(gate)
    wait_until(lambda: len(gate.passed) == 1, 20.0)
    assert all(wake.locked() for wake in others)
    gate.open.set()


def test_a_job_that_returns_another_has_it_run_by_the_same_thread(threads: Threads) -> None:
    seen: list[threading.Thread] = []
    done = threading.Event()

    def last() -> None:
        seen.append(threading.current_thread())
        done.set()

    def first() -> object:
        seen.append(threading.current_thread())
        return last

    threads.run(first)
    assert done.wait(20.0)
    assert len(set(seen)) == 1
    assert len(seen) == 2


def test_idle_threads_end_after_a_while_but_some_stay(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    burst(threads, 6)
    assert len(threads) == 6
    # Each notices the shorter time after its next job.
    monkeypatch.setattr(threads_module, "IDLE_SECONDS", 0.01)
    burst(threads, 6)
    wait_until(lambda: len(threads) == 2, 20.0)
    assert len(burst(threads, 2)) == 2


def test_a_job_without_a_thread_of_its_own_waits_for_another(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    for _ in range(2):
        threads.run(gate)
    wait_until(lambda: len(gate.passed) == 2, 20.0)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.run(done.set)
    assert not done.is_set()
    assert len(threads) == 2
    gate.open.set()
    assert done.wait(20.0)


def test_without_any_thread_a_job_is_refused(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        threads.run(int)
    assert len(threads) == 0


def test_closing_finishes_jobs_and_ends_all_threads() -> None:
    threads = Threads("test", kept=2)
    burst(threads, 3)
    gate = Gate()
    threads.run(gate)
    wait_until(lambda: len(gate.passed) == 1, 20.0)
    threading.Timer(0.1, gate.open.set).start()
    alive = list(threads._threads)
    threads.close()
    assert len(gate.done) == 1
    assert not any(thread.is_alive() for thread in alive)
    with pytest.raises(RuntimeError, match="ended"):
        threads.run(int)
