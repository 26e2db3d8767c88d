"""A bounded number of threads for parsing and encoding, shared fairly.

Most calls take milliseconds: a piece of a body is parsed, a group of tiles is read. Some take
seconds or more: a compressed file is read to its end because somebody registers it. In a
plain pool two of these would stop all others, so this one has three rules:

    calls of each owner ── a queue per owner ──▶ running ──▶ done
                            │                      │
                            │ in turn: the owner   │ after 25 ms a call is *long*: it no longer
                            │ with the fewest      │ counts, and its thread is replaced by
                            │ running calls first  │ another, up to four times as many

1. Owners take turns, and none has more than half of all threads.
2. A call that has become long gives its place to the next. It keeps its thread, and the
   system shares the cores among all that run.
3. *Quick* calls (one tile, one batch, a description) have a lane of their own, with the same
   rules and threads of its own. So a small read waits neither for long work nor behind other
   calls of its client. The threads of the other lane have a lower priority, and their calls give
   way (:mod:`.precedence`). A thread cannot raise its priority again, so lanes share no threads.

The alternative, to say of each call in advance how long it takes, is not possible: a plain
GET may be the first to open a large file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from .budgets import inherited
from .precedence import Precedence, lower_priority

P = ParamSpec("P")
T = TypeVar("T")

LONG_SECONDS = 0.025
"""Running time after which a call is long."""
_OF_OWNER, _OF_ALL = 2, 4
"""Calls of one owner and of all that run in a lane at most, as multiples of its width."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits or runs."""

    owner: str
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    since: float
    """When it was submitted, then when it was started, by the monotonic clock."""


class _Lane:
    """The calls of one kind, and their threads; the caller of most methods holds the lock.

    Args:
        width: calls that may run at once, long ones not counted.
        precedence: that of its calls over others; None if they have none.
        niceness: of the process, where its threads are of lower priority; None otherwise.
    """

    def __init__(self, width: int, precedence: Precedence | None, niceness: int | None) -> None:
        self.waiting: OrderedDict[str, deque[_Call]] = OrderedDict()
        """By owner; whose turn is next comes first."""
        self.running: set[_Call] = set()
        self.threads: set[threading.Thread] = set()
        self.lock = threading.Lock()
        self.width = width
        self._precedence = precedence
        self._niceness = niceness
        self._owners: dict[str, int] = {}
        self._ready: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    def add(self, call: _Call) -> None:
        """Queue a call, and start it if it may."""
        calls = self.waiting.get(call.owner)
        if calls is None:
            self.waiting[call.owner] = calls = deque()
        calls.append(call)
        self.dispatch(call.since)

    def dispatch(self, now: float) -> None:
        """Hand all calls that may start to threads."""
        while (call := self._next(now)) is not None:
            if call.future.cancelled():
                continue
            call.since = now
            self.running.add(call)
            self._owners[call.owner] = self._owners.get(call.owner, 0) + 1
            if self._precedence is not None:
                self._precedence.claim(now + LONG_SECONDS)
            self._ready.put(call)
            while len(self.threads) < max(len(self.running), self.width):
                # Daemons: an application that was never closed must not stay.
                thread = threading.Thread(target=self._work, name="worker", daemon=True)
                self.threads.add(thread)
                thread.start()

    def _next(self, now: float) -> _Call | None:
        """Remove the call whose turn it is from the queue; None if none may start."""
        if not self.waiting:
            return None
        running = self.running
        if len(running) >= self.width:
            if len(running) >= _OF_ALL * self.width:
                return None
            young = sum(1 for call in running if now - call.since < LONG_SECONDS)
            if young >= self.width:
                return None
        owner = min(self.waiting, key=lambda owner: self._owners.get(owner, 0))
        if self._owners.get(owner, 0) >= _OF_OWNER * self.width:
            return None
        calls = self.waiting[owner]
        call = calls.popleft()
        if calls:
            self.waiting.move_to_end(owner)
        else:
            del self.waiting[owner]
        return call

    def _work(self) -> None:
        if self._niceness is not None:
            lower_priority(self._niceness)
        while (call := self._ready.get()) is not None:
            is_surplus = self._run(call)
            # Nothing of a call must live until the next one comes.
            del call
            if is_surplus:
                return

    def _run(self, call: _Call) -> bool:
        """Run a call; return whether this thread is to end, for there are enough others."""
        result, error = None, None
        try:
            try:
                result = call.function()
            except BaseException as e:  # noqa: BLE001 - for whoever awaits it
                error = e
            with self.lock:
                self._end(call)
                is_surplus = len(self.threads) > max(len(self.running), self.width)
                if is_surplus:
                    self.threads.discard(threading.current_thread())
            with contextlib.suppress(RuntimeError):
                # The loop may have ended.
                call.loop.call_soon_threadsafe(_deliver, call.future, result, error)
        finally:
            # The error refers to this frame.
            del call, result, error
        return is_surplus

    def _end(self, call: _Call) -> None:
        self.running.discard(call)
        left = self._owners[call.owner] - 1
        if left:
            self._owners[call.owner] = left
        else:
            del self._owners[call.owner]
        if self._precedence is not None and not self.running:
            self._precedence.end()
        self.dispatch(time.monotonic())

    def drop(self) -> list[_Call]:
        """Remove and return the calls that wait."""
        dropped = [call for calls in self.waiting.values() for call in calls]
        self.waiting.clear()
        return dropped

    def stop(self) -> list[threading.Thread]:
        """Have all threads end after their calls; return them."""
        threads = list(self.threads)
        for _ in threads:
            self._ready.put(None)
        return threads


class Workers:
    """Threads that compute, so that the event loop never does; see the module.

    Args:
        threads: calls that run at once in each lane, long ones not counted.
        owner: returns who the current task works for.
        precedence: that of quick calls; None for none.
    """

    def __init__(
        self,
        threads: int,
        owner: Callable[[], str] = str,
        precedence: Precedence | None = None,
    ) -> None:
        self._owner = owner
        self._quick = _Lane(threads, precedence, None)
        self._ordinary = _Lane(threads, None, os.getpriority(os.PRIO_PROCESS, 0))
        self._lanes = (self._quick, self._ordinary)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def running(self) -> int:
        """Number of calls that run."""
        return sum(len(lane.running) for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a thread."""
        count = 0
        for lane in self._lanes:
            with lane.lock:
                count += sum(map(len, lane.waiting.values()))
        return count

    def longest_wait(self) -> float:
        """Return how long the oldest waiting call has waited, in seconds; 0 if none waits."""
        heads = []
        for lane in self._lanes:
            with lane.lock:
                heads += [calls[0].since for calls in lane.waiting.values()]
        return time.monotonic() - min(heads) if heads else 0.0

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call in a thread, under the budget of the request; await its result."""
        return self._submit(self._ordinary, inherited(partial(function, *args, **kwargs)))

    def quick(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call of a small read, for which a place is kept free; see ``start``."""
        call = inherited(partial(function, *args, **kwargs), quick=True)
        return self._submit(self._quick, call)

    def _submit(self, lane: _Lane, function: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        call = _Call(self._owner(), function, future, loop, time.monotonic())
        with lane.lock:
            if self._closed:
                raise RuntimeError("the threads have ended")
            lane.add(call)
        if lane.waiting and self._timer is None:
            self._timer = loop.call_later(LONG_SECONDS, self._look_again, loop)
        return future

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start what may be started by now: calls that run may have become long."""
        self._timer = None
        for lane in self._lanes:
            with lane.lock:
                lane.dispatch(time.monotonic())
        if any(lane.waiting for lane in self._lanes):
            self._timer = loop.call_later(LONG_SECONDS, self._look_again, loop)

    def close(self) -> None:
        """Finish the running calls, drop the others, and stop."""
        dropped: list[_Call] = []
        threads: list[threading.Thread] = []
        self._closed = True
        for lane in self._lanes:
            with lane.lock:
                dropped += lane.drop()
                threads += lane.stop()
        for call in dropped:
            with contextlib.suppress(RuntimeError):
                call.loop.call_soon_threadsafe(call.future.cancel)
        for thread in threads:
            thread.join()


def _deliver(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def share_of_cores(processes: int) -> int:
    """Return the number of threads per process: at least two, so that no call blocks all."""
    return max(2, len(os.sched_getaffinity(0)) // processes)
