"""A bounded number of threads for all that computes, shared fairly.

Pieces of bodies are parsed, groups of tiles read, chunks of frames reduced, segments of runs added
up: calls of milliseconds, and a few of seconds. They run here, whether a task of the event loop
awaits them (``start``) or a thread that does nothing else waits (``submit``, as the engine of
reductions and seals), so that a core has one queue and owners take turns at all of it::

    calls of each owner ── a queue per owner ──▶ running: as many as the width ──▶ done
                            │                      │
                            │ in turn: the owner   │ waits for a decoder: another one
                            │ with the fewest      │ has its place meanwhile (``resting``)
                            │ running calls first  │

1. Owners take turns at the places.
2. An owner of whom no call runs, or only *long* ones, of more than 0.1 s, waits for none. No call
   can be interrupted, and one may last for as long as a request may compute, but the system shares
   the cores among threads. So an owner's short calls wait neither for long ones of others nor for
   its own.
3. A call that waits for a decoder gives its place away, or cores would be idle.

In ``python -m tests.bench.lanes --only turns``, without the second rule no post ends beside batches
of another owner that never come, with it there are four a second; without the third, what an owner
posts or reduces beside hdf5 readers of its own falls to a tenth. A small post beside four psept
posts of its own owner takes 0.05 s, and would take up to six if only other owners had the second
rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.cores import count_cores
from app.tracing import Trace

from .request_budget import current_owner, current_trace, inherited
from .threads import Job, Threads

P = ParamSpec("P")
T = TypeVar("T")


class Result(asyncio.Future[T]):
    """The result of a call in a thread, which wakes its task at once.

    A future of asyncio has its task go on in the next turn of the event loop, after all that is
    ready by then. A result from a thread has already waited for one turn: the one that it woke the
    loop for. Under load a turn takes milliseconds, and a small read has few; so here the task goes
    on in that same turn, as ``settle`` calls the callbacks itself::

        asyncio.Future   thread ──wake──▶ turn: set_result ─────▶ next turn: the task goes on
        Result           thread ──wake──▶ turn: settle, the task goes on
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._waiting: list[tuple[Callable[[Any], object], Context]] = []

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """See asyncio.Future."""
        if self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._waiting.append((fn, copy_context() if context is None else context))

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        """See asyncio.Future."""
        kept = [pair for pair in self._waiting if pair[0] != fn]
        removed = len(self._waiting) - len(kept)
        self._waiting = kept
        return removed + super().remove_done_callback(fn)

    def cancel(self, msg: Any = None) -> bool:  # noqa: ANN401 - as in asyncio.Future
        """See asyncio.Future."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            waiting, self._waiting = self._waiting, []
            for fn, context in waiting:
                super().add_done_callback(fn, context=context)
        return is_cancelled

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """Set the result or the error, and call whoever waits for it; nothing if it is done.

        To be called by the event loop itself, never by a task: no two tasks run at once.
        """
        if self.done():
            return
        if error is None:
            self.set_result(result)  # type: ignore[arg-type]  # None only where T is None
        else:
            self.set_exception(error)
        waiting, self._waiting = self._waiting, []
        for fn, context in waiting:
            context.run(fn, self)


LONG_SECONDS = 0.1
"""Running time after which a call is long."""
_OF_OWNER, _OF_ALL = 2, 4
"""Calls of one owner and of all that run at most, as multiples of the width."""
_RESTING = 16
"""Calls that give their places away at most: each keeps a thread."""
_here = threading.local()
"""The call of each thread, and whose it is."""


@dataclass(slots=True, eq=False)
class _Call(ABC):
    """A call that waits or runs."""

    owner: str
    function: Callable[[], Any]
    since: float
    """When it was submitted, then when it was started, by the monotonic clock."""
    trace: Trace
    """What it is a part of."""
    waited: float = field(default=0.0, init=False)
    """Seconds between the two."""

    @abstractmethod
    def begin(self) -> bool:
        """Whether anybody still wants the call, which is about to run."""

    @abstractmethod
    def end(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - its result
        """Pass on what came of it."""

    @abstractmethod
    def drop(self) -> None:
        """Pass on that it will not run."""


@dataclass(slots=True, eq=False)
class _Awaited(_Call):
    """A call that a task of the event loop awaits."""

    future: Result[Any]
    loop: asyncio.AbstractEventLoop

    def begin(self) -> bool:
        return not self.future.cancelled()

    def end(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - as above
        with contextlib.suppress(RuntimeError):
            # The loop may have ended.
            self.loop.call_soon_threadsafe(self.future.settle, result, error)

    def drop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.future.cancel)


@dataclass(slots=True, eq=False)
class _Submitted(_Call):
    """A call that another thread waits for."""

    future: Future[Any]

    def begin(self) -> bool:
        return self.future.set_running_or_notify_cancel()

    def end(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - as above
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)

    def drop(self) -> None:
        self.future.cancel()


@dataclass(slots=True)
class _Queue:
    """All calls, and whose turn it is."""

    width: int
    """Calls that run at once, but for those of owners of whom no short call runs."""
    waiting: OrderedDict[str, deque[_Call]] = field(default_factory=OrderedDict)
    """By owner; whose turn is next comes first."""
    running: int = 0
    owners: defaultdict[str, set[_Call]] = field(default_factory=lambda: defaultdict(set))
    """Running calls of each owner."""
    resting: int = 0
    """Calls that gave their places away."""

    def next(self, now: float) -> _Call | None:
        """Remove the call whose turn it is from the queue; None if none may start."""
        if not self.waiting or self.running >= _OF_ALL * self.width:
            return None
        owner = min(self.waiting, key=lambda owner: len(self.owners.get(owner, ())))
        if self.running >= self.width and not self._may_have_more(owner, now):
            return None
        calls = self.waiting[owner]
        call = calls.popleft()
        if calls:
            self.waiting.move_to_end(owner)
        else:
            del self.waiting[owner]
        return call

    def _may_have_more(self, owner: str, now: float) -> bool:
        """Whether a call of an owner may run beyond the width."""
        running = self.owners.get(owner, ())
        return len(running) < _OF_OWNER * self.width and all(
            now - call.since >= LONG_SECONDS for call in running
        )

    def begin(self, call: _Call) -> None:
        self.running += 1
        self.owners[call.owner].add(call)

    def end(self, call: _Call) -> None:
        self.running -= 1
        running = self.owners[call.owner]
        running.discard(call)
        if not running:
            del self.owners[call.owner]


class Workers:
    """Threads that compute, so that the event loop never does; see the module. An Engine.

    Args:
        width: calls that run at once, but for those of owners of whom no short call runs.
        owner: returns who the current task or thread works for.
    """

    def __init__(self, width: int, owner: Callable[[], str] = current_owner) -> None:
        self.width = width
        self._owner = owner
        self._calls = _Queue(width)
        self._lock = threading.Lock()
        self._threads = Threads("worker", kept=width)
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = False
        """Whether the loop will look again what may start."""

    @property
    def running(self) -> int:
        """Number of calls that run."""
        return self._calls.running + self._calls.resting

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a thread."""
        with self._lock:
            return sum(len(calls) for calls in self._calls.waiting.values())

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call in a thread, under the budget of the request; await its result."""
        self._loop = loop = asyncio.get_running_loop()
        future: Result[Any] = Result(loop)
        work = partial(inherited(function), *args, **kwargs)
        self._add(_Awaited(self._owner(), work, time.monotonic(), current_trace(), future, loop))
        return future

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """See Engine; for threads of others, as one of these would wait for its own place."""
        future: Future[Any] = Future()
        work = partial(inherited(function), *args)
        self._add(_Submitted(self._owner(), work, time.monotonic(), current_trace(), future))
        return future

    def _add(self, call: _Call) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads have ended")
            self._calls.waiting.setdefault(call.owner, deque()).append(call)
            self._dispatch()

    def _dispatch(self) -> None:
        """Hand all calls that may start to threads; the lock is held."""
        while (call := self._begin_next()) is not None:
            self._threads.run(partial(self._run, call))
        if self._calls.waiting and not self._looks and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                # The loop may have ended.
                self._loop.call_soon_threadsafe(self._loop.call_later, LONG_SECONDS, self._look)
                self._looks = True

    def _look(self) -> None:
        """Start what may start by now: calls that run may have become long."""
        with self._lock:
            self._looks = False
            if not self._closed:
                self._dispatch()

    def _begin_next(self) -> _Call | None:
        """Begin a call that may start; None if there is none. The lock is held."""
        now = time.monotonic()
        while (call := self._calls.next(now)) is not None:
            if call.begin():
                call.waited, call.since = now - call.since, now
                self._calls.begin(call)
                return call
        return None

    def _run(self, call: _Call) -> Job | None:
        """Run a call; return the next one."""
        result, error = None, None
        _here.place = self, call
        call.trace.past("wait for a thread", call.waited)
        try:
            try:
                result = call.function()
            except BaseException as e:  # noqa: BLE001 - for whoever awaits it
                error = e
            following = self._end(call)
            call.end(result, error)
        finally:
            _here.place = None
            # The error refers to this frame.
            del call, result, error
        return None if following is None else partial(self._run, following)

    def _end(self, call: _Call) -> _Call | None:
        """End a call; return the next one for its thread."""
        with self._lock:
            self._calls.end(call)
            following = self._begin_next()
            self._dispatch()
        return following

    @contextlib.contextmanager
    def _away(self, call: _Call) -> Iterator[None]:
        """Give the place of this thread's call away until the block ends."""
        calls = self._calls
        with self._lock:
            rests = calls.resting < _RESTING
            if rests:
                calls.resting += 1
                calls.end(call)
                self._dispatch()
        try:
            yield
        finally:
            if rests:
                with self._lock:
                    calls.resting -= 1
                    # It does not wait again: the next ones do.
                    calls.begin(call)

    def close(self) -> None:
        """Finish the running calls, drop the others, and stop."""
        with self._lock:
            self._closed = True
            dropped = [call for calls in self._calls.waiting.values() for call in calls]
            self._calls.waiting.clear()
        for call in dropped:
            call.drop()
        self._threads.close()


def resting() -> contextlib.AbstractContextManager[None]:
    """Let others compute while this thread waits for what another process does."""
    place: tuple[Workers, _Call] | None = getattr(_here, "place", None)
    return contextlib.nullcontext() if place is None else place[0]._away(place[1])  # noqa: SLF001


def share_of_cores(processes: int) -> int:
    """Return the number of threads per process: at least two, so that no call blocks all."""
    return max(2, count_cores() // processes)
