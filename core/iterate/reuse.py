"""Scratch memory that a stage keeps from one call to the next, to save time.

A call removes an entry it can use and returns it when done. So two threads never work in
the same arrays, and no result depends on what the pool happens to hold.
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

    def give(self, entry: T) -> None:
        """Return an entry to the pool."""
        self._entries.append(entry)
