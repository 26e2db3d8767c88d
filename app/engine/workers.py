"""A bounded number of threads for parsing and encoding, shared fairly.

Most calls take milliseconds: a piece of a body is parsed, a group of tiles is read. Some take
seconds or more: a compressed file is read to its end because somebody registers it. In a
plain pool two of these would stop all others, so this one has two rules:

    calls of each owner ── a queue per owner ──▶ running ──▶ done
                            │                      │
                            │ in turn: the owner   │ after 25 ms a call is *long*: it no longer
                            │ with the fewest      │ counts, and its thread is replaced by
                            │ running calls first  │ another, up to four times as many

1. Owners take turns, and none has more than half of all threads.
2. A call that has become long gives its place to the next. It keeps its thread, and the
   system shares the cores among all that run. Most long calls wait, for a decoder or a disk, and
   a core would be idle meanwhile.

The alternative, to say of each call in advance how long it takes, is not possible: a plain
GET may be the first to open a large file. Small reads wait for none of these, as they have
processes of their own (:mod:`app.server.lanes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.cores import count_cores

from .inheriting import inherited
from .results import Result
from .threads import Job, Threads

P = ParamSpec("P")
T = TypeVar("T")

LONG_SECONDS = 0.025
"""Running time after which a call is long."""
_OF_OWNER, _OF_ALL = 2, 4
"""Calls of one owner and of all that run at most, as multiples of the width."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits or runs."""

    owner: str
    function: Callable[[], Any]
    future: Result[Any]
    loop: asyncio.AbstractEventLoop
    since: float
    """When it was submitted, then when it was started, by the monotonic clock."""


@dataclass(slots=True)
class _Queue:
    """All calls, and whose turn it is."""

    width: int
    """Calls that may run at once, long ones not counted."""
    waiting: OrderedDict[str, deque[_Call]] = field(default_factory=OrderedDict)
    """By owner; whose turn is next comes first."""
    running: set[_Call] = field(default_factory=set)
    owners: dict[str, int] = field(default_factory=dict)
    """Number of running calls of each owner."""

    def next(self, now: float) -> _Call | None:
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
        owner = min(self.waiting, key=lambda owner: self.owners.get(owner, 0))
        if self.owners.get(owner, 0) >= _OF_OWNER * self.width:
            return None
        calls = self.waiting[owner]
        call = calls.popleft()
        if calls:
            self.waiting.move_to_end(owner)
        else:
            del self.waiting[owner]
        return call

    def begin(self, call: _Call, now: float) -> None:
        call.since = now
        self.running.add(call)
        self.owners[call.owner] = self.owners.get(call.owner, 0) + 1

    def end(self, call: _Call) -> None:
        self.running.discard(call)
        left = self.owners[call.owner] - 1
        if left:
            self.owners[call.owner] = left
        else:
            del self.owners[call.owner]


class Workers:
    """Threads that compute, so that the event loop never does; see the module.

    Args:
        threads: calls that run at once, long ones not counted.
        owner: returns who the current task works for.
    """

    def __init__(self, threads: int, owner: Callable[[], str] = str) -> None:
        self._owner = owner
        self._calls = _Queue(threads)
        self._lock = threading.Lock()
        self._threads = Threads("worker", kept=threads)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def running(self) -> int:
        """Number of calls that run."""
        return len(self._calls.running)

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a thread."""
        with self._lock:
            return sum(len(calls) for calls in self._calls.waiting.values())

    def longest_wait(self) -> float:
        """Return how long the oldest waiting call has waited, in seconds; 0 if none waits."""
        now = time.monotonic()
        with self._lock:
            heads = [calls[0].since for calls in self._calls.waiting.values()]
        return max((now - since for since in heads), default=0.0)

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call in a thread, under the budget of the request; await its result."""
        loop = asyncio.get_running_loop()
        future: Result[Any] = Result(loop)
        now = time.monotonic()
        work = partial(inherited(function), *args, **kwargs)
        call = _Call(self._owner(), work, future, loop, now)
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads have ended")
            waiting = self._calls.waiting
            calls = waiting.get(call.owner)
            if calls is None:
                waiting[call.owner] = calls = deque()
            calls.append(call)
            self._dispatch(now)
            if waiting and self._timer is None:
                self._timer = loop.call_later(LONG_SECONDS, self._look_again, loop)
        return future

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start what may be started by now: calls that run may have become long."""
        with self._lock:
            self._timer = None
            self._dispatch(time.monotonic())
            if self._calls.waiting:
                self._timer = loop.call_later(LONG_SECONDS, self._look_again, loop)

    def _dispatch(self, now: float) -> None:
        """Hand all calls that may start to threads; the lock is held."""
        while (call := self._begin_next(now)) is not None:
            self._threads.run(partial(self._run, call))

    def _begin_next(self, now: float) -> _Call | None:
        """Begin a call that may start; None if there is none. The lock is held."""
        while (call := self._calls.next(now)) is not None:
            if not call.future.cancelled():
                self._calls.begin(call, now)
                return call
        return None

    def _run(self, call: _Call) -> Job | None:
        """Run a call; return the next one."""
        result, error = None, None
        try:
            try:
                result = call.function()
            except BaseException as e:  # noqa: BLE001 - for whoever awaits it
                error = e
            following = self._end(call)
            with contextlib.suppress(RuntimeError):
                # The loop may have ended.
                call.loop.call_soon_threadsafe(call.future.settle, result, error)
        finally:
            # The error refers to this frame.
            del call, result, error
        return None if following is None else partial(self._run, following)

    def _end(self, call: _Call) -> _Call | None:
        """End a call; return the next one for its thread."""
        now = time.monotonic()
        with self._lock:
            self._calls.end(call)
            following = self._begin_next(now)
            self._dispatch(now)
        return following

    def close(self) -> None:
        """Finish the running calls, drop the others, and stop."""
        with self._lock:
            self._closed = True
            dropped = [call for calls in self._calls.waiting.values() for call in calls]
            self._calls.waiting.clear()
        for call in dropped:
            with contextlib.suppress(RuntimeError):
                call.loop.call_soon_threadsafe(call.future.cancel)
        self._threads.close()


def share_of_cores(processes: int) -> int:
    """Return the number of threads per process: at least two, so that no call blocks all."""
    return max(2, count_cores() // processes)
