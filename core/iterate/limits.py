"""Limits by count, bytes and time over any iterator of batches.

A limit is looked at before each batch, so that bytes and time are overrun by one batch at
most. None is no limit, 0 lets nothing through. When a limit ends the iteration it is still
known whether the data had come to its end as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, Protocol, TypeVar

from ..errors import OptionError, StateError
from .base import Block, Schema, Sequential, State
from .columns import block_length, empty_block
from .inorder import check_state

T = TypeVar("T")

Reason = Literal["exhausted", "count", "bytes", "time"]

VERSION = 1
_NANOSECONDS = 1_000_000_000


class Clock(Protocol):
    """Where time comes from."""

    def __call__(self) -> float:
        """Seconds since some moment; never less than before."""


class Peekable(Iterator[T], Generic[T]):
    """An iterator of which can be told whether there is more; nothing is lost by asking."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._ahead: list[T] = []

    def __next__(self) -> T:
        if self._ahead:
            return self._ahead.pop()
        return next(self._items)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left; reads one item ahead to know.

        Raises:
            Exception: what reading that item raises.
        """
        if not self._ahead:
            for item in self._items:
                self._ahead.append(item)
                break
        return not self._ahead


class Limited(Iterator[T], Generic[T]):
    """As much of an iterator as limits allow; threads may share one.

    Args:
        items: what is read; a :class:`Peekable` keeps what was read ahead to tell a tie,
            for whoever goes on after the limit.
        count: at most so many items.
        nbytes: no further item once so many bytes were given; needs ``size_of``.
        seconds: no further item once so much time passed since the first was asked for,
            and before states that were restored; needs ``clock``.
        size_of: bytes of an item.
        clock: where time comes from.

    Raises:
        OptionError: a negative limit, or one without what it needs.
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
            raise OptionError("a limit of bytes without size_of")
        if seconds is not None and clock is None:
            raise OptionError("a limit of time without a clock")
        self._items = items if isinstance(items, Peekable) else Peekable(items)
        self._limits = (count, nbytes, seconds)
        self._size_of = size_of
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._bytes = 0
        self._before = 0
        self._started: float | None = None
        self._reason: Reason | None = None
        self._finished = False

    @property
    def reason(self) -> Reason | None:
        """Why it ended; None while it has not."""
        return self._reason

    @property
    def data_finished(self) -> bool:
        """Whether the data ended, be it at the very item a limit ended at."""
        return self._finished

    def __next__(self) -> T:
        with self._lock:
            self._reason = self._hit()
            if self._reason is not None:
                self._finished = self._limits[0] != 0 and self._items.exhausted
                raise StopIteration
            try:
                item = next(self._items)
            except StopIteration:
                self._reason, self._finished = "exhausted", True
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
        """Nanoseconds, with those before the state it was restored from."""
        if self._clock is None:
            return self._before
        now = self._clock()
        if self._started is None:
            self._started = now
        return self._before + max(0, round((now - self._started) * _NANOSECONDS))

    def getstate(self) -> dict[str, Any]:
        """What was used up, as JSON values; where the items are is their own state."""
        with self._lock:
            elapsed = self._elapsed() if self._started is not None else self._before
            return {
                "version": VERSION,
                "count": self._count,
                "bytes": self._bytes,
                "nanoseconds": elapsed,
            }

    def setstate(self, state: dict[str, Any] | None) -> None:
        """Go on with what an earlier one had used up; None for nothing.

        Raises:
            StateError: it is no such state.
        """
        numbers = (0, 0, 0) if state is None else _numbers(state)
        with self._lock:
            self._count, self._bytes, self._before = numbers
            self._started = None
            self._reason, self._finished = None, False


def _numbers(state: object) -> tuple[int, int, int]:
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("not a state of limits of this version")
    numbers = tuple(state.get(name) for name in ("count", "bytes", "nanoseconds"))
    match numbers:
        case (int(count), int(nbytes), int(elapsed)) if min(count, nbytes, elapsed) >= 0:
            return count, nbytes, elapsed
    raise StateError("a state of limits whose numbers are none")


class Head(Sequential):
    """The first items of a sequential stage; its state begins with how many were given.

    Args:
        inner: what it takes items from.
        count: how many items at most.
    """

    def __init__(self, inner: Sequential, count: int) -> None:
        if count < 0:
            raise OptionError(f"count is {count}", hint="0 is nothing.")
        self.inner = inner
        self._count = count

    @property
    def schema(self) -> Schema:
        """That of the inner stage."""
        return self.inner.schema

    @property
    def initial(self) -> State:
        """No item given, and the state of the inner stage."""
        return (0, *self.inner.initial)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items, up to the limit.

        Raises:
            StateError: it cannot be a state of this stage.
        """
        check_state(state, self.initial)
        if state[0] > self._count:
            raise StateError(f"{state[0]} items given of {self._count}")
        size = min(count, self._count - state[0])
        if not size:
            return empty_block(self.schema), state
        block, after = self.inner.take(state[1:], size)
        return block, (state[0] + block_length(block), *after)
