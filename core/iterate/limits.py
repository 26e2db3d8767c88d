"""Limits on count, bytes and time for any iterator.

Limits are checked before each item, so at most one item exceeds a limit of bytes or time. None
is no limit, and 0 lets nothing through. After a limit has ended an iteration, it is still
possible to tell whether the data ended there too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, Protocol, TypeVar

from ..errors import OptionError, StateError
from .base import Block, Sequential, State, check_state
from .columns import block_length, empty_block

T = TypeVar("T")

Reason = Literal["exhausted", "count", "bytes", "time"]

VERSION = 1
_NANOSECONDS = 1_000_000_000


class Clock(Protocol):
    """A monotonic clock, such as ``time.monotonic``."""

    def __call__(self) -> float:
        """Seconds since an arbitrary moment."""


class Peekable(Iterator[T], Generic[T]):
    """An iterator that can tell whether it has a further item."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._ahead: list[T] = []

    def __next__(self) -> T:
        if self._ahead:
            return self._ahead.pop()
        return next(self._items)

    @property
    def exhausted(self) -> bool:
        """Whether no item is left; reads one item ahead and keeps it.

        Raises:
            Exception: whatever reading that item raises.
        """
        if not self._ahead:
            for item in self._items:
                self._ahead.append(item)
                break
        return not self._ahead


class Limited(Iterator[T], Generic[T]):
    """The items of an iterator up to a limit; threads may share one.

    Args:
        items: the iterator. To go on reading from it after the limit, pass a
            :class:`Peekable`, which keeps the item that ``data_finished`` reads ahead.
        count: most items.
        nbytes: bytes after which no further item follows; requires ``size_of``.
        seconds: time after which no further item follows, counted from the first request,
            and across restored states; requires ``clock``.
        size_of: returns the bytes of an item.
        clock: measures time.

    Raises:
        OptionError: a limit is negative, or lacks ``size_of`` or ``clock``.
    """

    def __init__(  # noqa: PLR0913 - each limit is independent of the others
        self,
        items: Iterable[T],
        *,
        count: int | None = None,
        nbytes: int | None = None,
        seconds: float | None = None,
        size_of: Callable[[T], int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        for name, limit in (("count", count), ("nbytes", nbytes), ("seconds", seconds)):
            if limit is not None and not limit >= 0:
                raise OptionError(f"{name} is {limit}", hint="0 is nothing, None is no limit.")
        if nbytes is not None and size_of is None:
            raise OptionError("nbytes is given without size_of")
        if seconds is not None and clock is None:
            raise OptionError("seconds is given without a clock")
        self._items = items if isinstance(items, Peekable) else Peekable(items)
        self._limits = (count, nbytes, seconds)
        self._size_of = size_of
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._bytes = 0
        self._before = 0
        self._started: float | None = None
        self.reason: Reason | None = None
        """Why the iteration ended; None before it has."""
        self._finished = False

    @property
    def data_finished(self) -> bool:
        """Whether the data ended, even if a limit ended the iteration at the same item.

        After a limit, this reads one item ahead, so save a state of the items first. A
        :class:`Peekable` keeps that item.

        Raises:
            Exception: whatever reading that item raises.
        """
        with self._lock:
            limited = self.reason is not None and self._limits[0] != 0
            if limited and not self._finished:
                self._finished = self._items.exhausted
            return self._finished

    def __next__(self) -> T:
        with self._lock:
            self.reason = self._hit()
            if self.reason is not None:
                raise StopIteration
            try:
                item = next(self._items)
            except StopIteration:
                self.reason, self._finished = "exhausted", True
                raise
            self._count += 1
            if self._size_of is not None:
                self._bytes += self._size_of(item)
            return item

    def _hit(self) -> Reason | None:
        count, nbytes, seconds = self._limits
        if count is not None and self._count >= count:
            return "count"
        if nbytes is not None and self._bytes >= nbytes:
            return "bytes"
        if seconds is not None and self._elapsed() >= seconds * _NANOSECONDS:
            return "time"
        return None

    def _elapsed(self) -> int:
        """Nanoseconds used, including those before a restored state."""
        if self._clock is None:
            return self._before
        now = self._clock()
        if self._started is None:
            self._started = now
        return self._before + max(0, round((now - self._started) * _NANOSECONDS))

    def getstate(self) -> dict[str, Any]:
        """Count, bytes and time used up, as JSON values; not the place in the items."""
        with self._lock:
            elapsed = self._elapsed() if self._started is not None else self._before
            return {
                "version": VERSION,
                "count": self._count,
                "bytes": self._bytes,
                "nanoseconds": elapsed,
            }

    def setstate(self, state: dict[str, Any] | None) -> None:
        """Count from what an earlier iteration used up; None starts over.

        Raises:
            StateError: it is not a state of limits.
        """
        numbers = (0, 0, 0) if state is None else _numbers(state)
        with self._lock:
            self._count, self._bytes, self._before = numbers
            self._started = None
            self.reason, self._finished = None, False


def _numbers(state: object) -> tuple[int, int, int]:
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("not a state of limits of this version")
    numbers = tuple(state.get(name) for name in ("count", "bytes", "nanoseconds"))
    match numbers:
        case (int(count), int(nbytes), int(elapsed)) if min(count, nbytes, elapsed) >= 0:
            return count, nbytes, elapsed
    raise StateError("count, bytes and nanoseconds are not all integers from 0")


class Head(Sequential):
    """The first items of a sequential stage; the number taken precedes the state of the stage.

    Args:
        inner: stage the items come from.
        count: most items.
    """

    def __init__(self, inner: Sequential, count: int) -> None:
        if count < 0:
            raise OptionError(f"count is {count}", hint="0 is nothing.")
        self.inner = inner
        self._count = count
        self.schema = self.inner.schema
        self.initial = (0, *self.inner.initial)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read up to the limit.

        Raises:
            StateError: it cannot be a state of this stage.
        """
        check_state(state, self.initial)
        if state[0] > self._count:
            raise StateError(f"{state[0]} items taken of {self._count}")
        size = min(count, self._count - state[0])
        if not size:
            return empty_block(self.schema), state
        block, after = self.inner.take(state[1:], size)
        return block, (state[0] + block_length(block), *after)
