"""What a stage keeps from one call to the next, only to be fast.

A call takes what it can use out of here and gives it back when it is done, so that two
threads never work in the same arrays and nothing depends on what was kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ReusePool(Generic[T]):
    """At most ``limit`` things that the next call may use; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._things: deque[T] = deque(maxlen=limit)

    def take(self, usable: Callable[[T], bool]) -> T | None:
        """Take out one that is usable, or None."""
        for _ in range(len(self._things)):
            try:
                thing = self._things.pop()
            except IndexError:  # another thread took the last
                return None
            if usable(thing):
                return thing
            self._things.appendleft(thing)
        return None

    def give(self, thing: T) -> None:
        """Keep one for the next call."""
        self._things.append(thing)
