"""Threads that wait for jobs; the last to become idle gets the next one.

A queue would wake one thread too many for each job, if several wait: whoever takes a job wakes the
next, which finds nothing. For that it needs the interpreter's lock, and makes all others wait. So
here each idle thread has a lock of its own to wait for, and exactly one is woken::

    run(job) ──▶ idle: a, b, c ──▶ c wakes, runs the job, and the jobs that it returns ──▶ idle
                     │ none
                     ╰──▶ a new thread

The one that became idle last is the quickest to start, and the others become old enough to end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Job = Callable[[], Any]
"""A job. What it returns is the next job of its thread; None if there is none."""

IDLE_SECONDS = 10.0
"""Seconds after which an idle thread ends if there are more than are usually needed."""


class _Idler:
    """A thread as long as it waits."""

    __slots__ = ("job", "wake")

    def __init__(self, job: Job | None) -> None:
        self.job = job
        self.wake = threading.Lock()
        self.wake.acquire()


class Threads:
    """Any number of threads; see the module.

    Args:
        name: of each.
        kept: how many are kept when they are idle.
    """

    def __init__(self, name: str, kept: int) -> None:
        self._name = name
        self._kept = kept
        self._lock = threading.Lock()
        self._idle: list[_Idler] = []
        self._waiting: deque[Job] = deque()
        """Jobs for which no thread could be started."""
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._threads)

    def run(self, job: Job) -> None:
        """Have a thread run a job.

        Raises:
            RuntimeError: they were closed, or the system allows not even one thread.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads have ended")
            if self._hand_over(job):
                return
            further = 0 if self._threads else self._kept - 1
        self._start(job)
        # Those that are kept anyway start before there is much to do.
        for _ in range(further):
            self._start(None)

    def _start(self, job: Job | None) -> None:
        """Start a thread, which runs a job first."""
        # Daemons: an application that was never closed must not stay.
        thread = threading.Thread(
            target=self._work, args=(_Idler(job),), name=self._name, daemon=True
        )
        with self._lock:
            self._threads.add(thread)
        try:
            # This waits until the thread runs, beside busy ones for many milliseconds; so threads
            # stay for a while.
            thread.start()
        except RuntimeError:
            with self._lock:
                self._threads.discard(thread)
                if job is None:
                    return
                if not self._threads:
                    raise
                if not self._hand_over(job):
                    self._waiting.append(job)

    def _hand_over(self, job: Job) -> bool:
        """Have an idle thread run a job; return whether there is one. The lock is held."""
        if not self._idle:
            return False
        idler = self._idle.pop()
        idler.job = job
        idler.wake.release()
        return True

    def _work(self, idler: _Idler) -> None:
        while True:
            job, idler.job = idler.job, None
            while job is not None:
                job = job()
            with self._lock:
                if self._waiting:
                    idler.job = self._waiting.popleft()
                    continue
                if self._closed:
                    return
                self._idle.append(idler)
            while not idler.wake.acquire(timeout=IDLE_SECONDS):
                if self._leave(idler):
                    return

    def _leave(self, idler: _Idler) -> bool:
        """Take this idle thread out if there are more than needed; return whether it is to end."""
        with self._lock:
            leaves = idler in self._idle and len(self._threads) > self._kept
            if leaves:
                self._idle.remove(idler)
                self._threads.discard(threading.current_thread())
        return leaves

    def close(self) -> None:
        """Finish the running jobs, and end all threads."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads = list(self._threads)
        for idler in idle:
            idler.wake.release()
        for thread in threads:
            thread.join()
