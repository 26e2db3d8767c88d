"""Read-ahead: prepare the next items of a stream while earlier ones are being sent.

A product supplies a plain iterator. It runs in worker threads, one call at a time, one
group of items ahead of the answer. A group is about a megabyte, because a trip to a thread
and back costs as much as preparing a few kilobytes; it is cut short after GROUP_SECONDS,
so that slow items reach the client one by one. For a client that takes a megabyte in less time
than such a trip deserves, groups grow to four. Every item renews the budget of the request.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from app.errors import ServiceError
from app.tracebacks import forget_locals
from core.budget import current
from core.errors import CoreError

GROUP_BYTES = 1 << 20
FAST_BYTES = 4 * GROUP_BYTES
"""Size of groups for a client that takes ``GROUP_BYTES`` in ``_FAST_SECONDS``."""
_FAST_SECONDS = 0.002
GROUP_ITEMS = 1024
GROUP_SECONDS = 0.05


class Sized(Protocol):
    """An item of a stream."""

    @property
    def nbytes(self) -> int:
        """Bytes of its payload."""


T = TypeVar("T", bound=Sized)


class Ahead(Generic[T]):
    """Items of an iterator, prepared one group ahead.

    Args:
        items: the iterator; an error in it ends the stream after the items before.
        start: starts a call in a thread.
        stopped: set when no more items are needed; slow iterators should check it.
    """

    def __init__(
        self,
        items: Iterator[T],
        start: Callable[[Callable[[], list[T]]], asyncio.Future[list[T]]],
        stopped: threading.Event | None = None,
    ) -> None:
        self._items = items
        self._start = start
        self._stopped = stopped or threading.Event()
        self._failure: CoreError | ServiceError | None = None
        self._upcoming: asyncio.Future[list[T]] | None = None
        self._sending = self._leaving = 0
        self._limit = GROUP_BYTES
        self._time = 0.0
        self.seconds = 0.0
        """Total time that the iterator has run."""

    def upcoming(self) -> asyncio.Future[list[T]]:
        """Return the future of the next group; the same one until it is taken."""
        if self._upcoming is None:
            self._upcoming = self._start(self._group)
        return self._upcoming

    def take(self) -> Sequence[T]:
        """Return the group that is ready and start the next; empty after the last item.

        Raises:
            CoreError, ServiceError: the next item could not be prepared.
        """
        group = self.upcoming().result()
        self._upcoming = None
        now = time.perf_counter()
        is_fast = (now - self._time) * GROUP_BYTES < _FAST_SECONDS * self._sending
        self._time = now
        self._limit = FAST_BYTES if is_fast else GROUP_BYTES
        if group:
            self.upcoming()
        return group

    async def close(self) -> None:
        """Stop, and wait until the iterator no longer runs."""
        self._stopped.set()
        if self._upcoming is not None:
            await settle(self._upcoming)

    def _group(self) -> list[T]:
        if self._failure is not None:
            raise self._failure
        group: list[T] = []
        size = 0
        begin = time.perf_counter()
        budget = current()
        # The group before this one is being sent meanwhile, and the end of the one before that.
        budget.hold("answer", self._sending + self._leaving)
        while not self._stopped.is_set():
            try:
                item = next(self._items, None)
                budget.hold("answer", 0 if item is None else item.nbytes)
            except (CoreError, ServiceError) as error:
                if not group:
                    raise
                # Send the items before the failure first.
                forget_locals(error)
                self._failure = error
                break
            if item is None:
                break
            group.append(item)
            budget.renew()
            size += item.nbytes
            late = time.perf_counter() - begin > GROUP_SECONDS
            if late or size >= self._limit or len(group) >= GROUP_ITEMS:
                break
        self.seconds += time.perf_counter() - begin
        self._sending, self._leaving = size, self._sending
        return group


async def settle(future: asyncio.Future[Any]) -> None:
    """Wait for a call in a thread, which cannot be cancelled, and discard its outcome."""
    await asyncio.wait({future})
    future.cancelled() or future.exception()
