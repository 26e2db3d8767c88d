"""A small pool of intermediate results that a later call of the same stage may reuse.

A call takes an entry out of the pool and gives it back when done. So two threads never work in
the same arrays, and an empty pool costs time but changes no result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ReusePool(Generic[T]):
    """At most ``limit`` entries for later calls; the oldest are dropped first."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[T] = deque(maxlen=limit)

    def take(self, usable: Callable[[T], bool]) -> T | None:
        """Remove and return a usable entry, or None."""
        for _ in range(len(self._entries)):
            try:
                entry = self._entries.pop()
            except IndexError:  # another thread took the last
                return None
            if usable(entry):
                return entry
            self._entries.appendleft(entry)
        return None

    def kept(self) -> list[T]:
        """All entries that are in the pool now."""
        return list(self._entries)

    def give(self, entry: T) -> None:
        """Return an entry to the pool."""
        self._entries.append(entry)
