"""The driver of every resumable answer.

A product provides a *supply* of items, after each of which a client can resume, and an
*encoder* of their form on the wire. Everything else happens here, once for loss streams,
tiles, reductions and batches:

    supply ── group of items ──▶ limits, drain ──▶ encoder ──▶ sender ──▶ client
      ▲                              │
      └── prepared ahead in workers  └─▶ END with a reason, ERROR with a problem,
                                         or a broken connection

An answer goes through these states:

    waiting ──first bytes──▶ started ──END──▶ ended        reason: a limit, drain, exhausted
       │                        │
       │                        ├──failure──▶ ERROR         the token continues before it
       │                        ├──over budget after some items──▶ ended, as after a limit
       │                        └──no END in this format──▶ aborted
       └──failure──▶ raised: the client gets a problem document instead of a stream

The status line waits for the first item, so that a failure before it becomes an ordinary
problem document. If the first item takes long, heartbeats start the answer. A format that
cannot express how it ended (csv, plain bytes) is aborted rather than ended early: an answer
without an ending is truncated by definition.

An item that exceeds the budget of the request ends the answer before it, if the answer has
items: the client goes on from the token, with a budget of its own for that item. Only if that
does not suffice either, it gets the problem.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from app.errors import Problem, ServiceError, problem_of
from app.http.bodies import Threads
from app.http.keys import lapse_of
from app.http.trail import note_problem
from app.server.body import ClientDisconnected
from app.server.drain import Drain
from app.server.responses import Exchange
from core.budget import current
from core.errors import BudgetExceededError, CoreError

from .ahead import Sized
from .frames import Buffers
from .sender import TOGETHER, Head, Sender

HEARTBEAT_SECONDS = 10.0
"""Interval of heartbeats while the client waits for an item."""
DRAIN = "drain"
EXHAUSTED = "exhausted"
MAX_COUNT = 1 << 24
MAX_BYTES = 1 << 44
MAX_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one answer, in items, payload bytes, seconds and epochs.

    They are checked before each item, so an answer may exceed them by one item.
    """

    count: int = MAX_COUNT
    nbytes: int = MAX_BYTES
    seconds: float = MAX_SECONDS
    epochs: int | None = None

    @classmethod
    def clamped(
        cls,
        count: int | None = None,
        nbytes: int | None = None,
        seconds: float | None = None,
        epochs: int | None = None,
    ) -> Limits:
        """Return the requested limits, lowered to those of the server."""
        return cls(
            MAX_COUNT if count is None else min(count, MAX_COUNT),
            MAX_BYTES if nbytes is None else min(nbytes, MAX_BYTES),
            MAX_SECONDS if seconds is None else min(seconds, MAX_SECONDS),
            epochs,
        )


@dataclass(slots=True)
class Progress:
    """Progress of one answer, in items, payload bytes and epochs."""

    count: int = 0
    nbytes: int = 0
    epochs: int = 0
    waited: float = 0.0
    """Seconds spent waiting for items."""
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the answer began."""
        return self.clock() - self.began

    def reached(self, limits: Limits) -> str | None:
        """Return the limit that is reached: ``count``, ``bytes``, ``epoch``, ``time`` or None."""
        if self.count >= limits.count:
            return "count"
        if self.nbytes >= limits.nbytes:
            return "bytes"
        if limits.epochs is not None and self.epochs >= limits.epochs:
            return "epoch"
        return "time" if self.seconds >= limits.seconds else None


T = TypeVar("T", bound=Sized)
T_co = TypeVar("T_co", bound=Sized, covariant=True)
T_contra = TypeVar("T_contra", bound=Sized, contravariant=True)


class Supply(Protocol[T_co]):
    """The source of the items of an answer, group by group."""

    def upcoming(self) -> asyncio.Future[Any]:
        """Return a future that is done when a group is ready; the same one until it is taken."""

    def take(self) -> Sequence[T_co]:
        """Return the group that is ready; empty after the last item.

        Raises:
            CoreError, ServiceError: the next item could not be prepared.
        """

    async def close(self) -> None:
        """Stop preparing items; return when no thread works on them any more."""


class Encoder(Protocol[T_contra]):
    """The form of an answer on the wire. It sees every item that is sent, in order."""

    heavy: bool = False
    """Whether encoding an item is slow enough to belong in a worker thread."""
    finished: bool = False
    """Whether the last encoded item is known to be the last of the stream."""

    def begin(self) -> Buffers:
        """Encode what comes before the first item; without an override, nothing does."""
        return []

    def item(self, item: T_contra) -> Buffers:
        """Encode an item; later calls do not change the returned buffers."""

    def heartbeat(self) -> Buffers:
        """Encode a sign of life; empty if the format has none, as without an override."""
        return []

    def end(self, reason: str, progress: Progress) -> Buffers | None:
        """Encode the end; None if the answer is cut short and the format cannot tell."""

    def fail(self, problem: Problem) -> Buffers | None:
        """Encode a failure; None if the format cannot express it."""


@runtime_checkable
class Cancellable(Protocol):
    """The budget of a request whose threads can be stopped."""

    def cancel(self) -> None:
        """Stop the threads that work for the request at their next check."""


@dataclass(slots=True)
class Stream(Generic[T]):
    """One answer.

    Args:
        supply: the source of items; closed at the end.
        encoder: encodes them.
        head: status and headers.
        threads: run heavy encoding and compression.
        drain: ends the answer early once draining is hard; None if the supply does so.
        coding: content coding of the answer, None for identity.
        limits: limits of the answer.
        heartbeat: seconds between signs of life; None for none.
        live: see :class:`Sender`.
        sent: called with the number of items of every group that was sent, for metrics.
        over_budget: reason to end with after some items, by the budget that is exceeded;
            without one, the answer fails.
    """

    supply: Supply[T]
    encoder: Encoder[T]
    head: Head
    threads: Threads
    drain: Drain | None
    coding: str | None = None
    limits: Limits = field(default_factory=Limits)
    heartbeat: float | None = HEARTBEAT_SECONDS
    live: bool = True
    sent: Callable[[int], None] | None = None
    progress: Progress = field(default_factory=Progress)
    over_budget: Mapping[str, str] = field(default_factory=dict)

    async def send(self, exchange: Exchange) -> None:
        """Send the answer; to HEAD its head alone, without preparing an item.

        Raises:
            CoreError, ServiceError: a failure before anything was sent.
            ClientDisconnected: the client left.
        """
        if exchange.scope.get("method") == "HEAD":
            await self.supply.close()
            await exchange.start(self.head.status, self.head.headers)
        else:
            await self._send(exchange)

    async def _send(self, exchange: Exchange) -> None:
        sender = Sender(exchange, self.head, self.threads, self.coding, live=self.live)
        wait = _Wait(exchange, self.drain)
        begun = False

        async def add(buffers: Buffers) -> None:
            nonlocal begun
            if any(map(len, buffers)):
                before = [] if begun else self.encoder.begin()
                begun = True
                await sender.add(before + buffers)

        try:
            reason = self.progress.reached(self.limits)
            while reason is None:
                group = await self._next(wait, add, sender)
                if group is None:
                    reason = DRAIN
                    break
                reason = await self._send_group(group, add, wait)
                await sender.flush()
            last = self.encoder.end(reason, self.progress)
            before = [] if begun else self.encoder.begin()
            if last is None:
                exchange.abort()
            else:
                await sender.finish(before + last)
        except (CoreError, ServiceError) as error:
            if not exchange.started:
                raise
            last = self._failed(error, exchange)
            if last is None:
                exchange.abort()
            else:
                await sender.finish(last)
        finally:
            # The answer has ended: nobody needs the items that are being prepared.
            budget = current()
            if isinstance(budget, Cancellable):
                budget.cancel()
            await self.supply.close()
            await wait.close()

    def _failed(self, error: CoreError | ServiceError, exchange: Exchange) -> Buffers | None:
        """Encode the end after a failure."""
        if isinstance(error, BudgetExceededError) and self.progress.count:
            reason = self.over_budget.get(error.budget)
            if reason is not None:
                return self.encoder.end(reason, self.progress)
        # Whoever stores the error must not hold all of this through its traceback.
        problem = problem_of(error.with_traceback(None))
        last = self.encoder.fail(problem)
        if last is not None:
            note_problem(exchange.scope, problem.code)
        return last

    async def _send_group(
        self, group: Sequence[T], add: Callable[[Buffers], Any], wait: _Wait
    ) -> str | None:
        """Send the items of a group; return the reason to end the answer, if any.

        Raises:
            UnauthorizedError: the key of the request is no longer valid.
        """
        together: Buffers = []
        size = 0
        before = self.progress.count
        try:
            for item in group:
                wait.check_key()
                reason = self._reason()
                if reason is not None:
                    return reason
                if self.encoder.heavy:
                    together += await self.threads.start(self.encoder.item, item)
                else:
                    together += self.encoder.item(item)
                self.progress.count += 1
                self.progress.nbytes += item.nbytes
                size += item.nbytes
                if size >= TOGETHER:
                    ready, together, size = together, [], 0
                    await add(ready)
        finally:
            if self.sent is not None:
                self.sent(self.progress.count - before)
            await add(together)
        over = self.encoder.finished or not group
        return self._reason() or (EXHAUSTED if over else None)

    def _reason(self) -> str | None:
        """Return the reason to send no further item, or None."""
        limit = self.progress.reached(self.limits)
        draining = self.drain is not None and self.drain.hard.is_set()
        return limit or (DRAIN if draining else None)

    async def _next(
        self, wait: _Wait, add: Callable[[Buffers], Any], sender: Sender
    ) -> Sequence[T] | None:
        """Return the next group, sending heartbeats until then; None if draining is hard."""
        begin = time.perf_counter()
        upcoming = self.supply.upcoming()
        try:
            while not upcoming.done():
                if await wait.until(upcoming, self.heartbeat):
                    continue
                if wait.draining:
                    return None
                await add(self.encoder.heartbeat())
                await sender.flush()
            return self.supply.take()
        finally:
            self.progress.waited += time.perf_counter() - begin


class _Wait:
    """Waits for an item, or what ends the answer before: disconnect, draining, a lapse of the key.

    ``asyncio.wait`` would do, but attaches itself to all the futures and lets go of them again
    for every group; this attaches to those of the whole answer once.
    """

    def __init__(self, exchange: Exchange, drain: Drain | None) -> None:
        self._exchange = exchange
        self._drain = drain
        self._lapse = lapse_of(exchange.scope)
        self._others: list[asyncio.Future[Any]] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def draining(self) -> bool:
        """Whether draining is hard: running answers must end."""
        return self._drain is not None and self._drain.hard.is_set()

    def check_key(self) -> None:
        """Check that the key of the request is valid, if it has one.

        Raises:
            UnauthorizedError: it is not.
        """
        if self._lapse is not None:
            self._lapse.check()

    async def until(self, upcoming: asyncio.Future[Any], seconds: float | None) -> bool:
        """Wait for ``upcoming``; return False after a timeout in seconds, or when draining.

        Raises:
            ClientDisconnected: the client left.
            UnauthorizedError: the key of the request is no longer valid.
        """
        if not self._others:
            self._begin()
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        upcoming.add_done_callback(self._wake)
        try:
            if not any(other.done() for other in self._others):
                await waiter
        finally:
            upcoming.remove_done_callback(self._wake)
            if timer is not None:
                timer.cancel()
        if upcoming.done():
            return True
        if self._exchange.disconnected.is_set():
            raise ClientDisconnected("the client left")
        self.check_key()
        return False

    def _begin(self) -> None:
        # Only when an answer first has to wait: most groups are ready in time.
        events = [self._exchange.disconnected]
        if self._drain is not None:
            events.append(self._drain.hard)
        if self._lapse is not None:
            events.append(self._lapse)
        for event in events:
            other = event.future()
            other.add_done_callback(self._wake)
            self._others.append(other)

    def _wake(self, _done: asyncio.Future[Any] | None = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def close(self) -> None:
        """Cancel the futures."""
        for other in self._others:
            other.cancel()
        if self._others:
            await asyncio.wait(self._others)
