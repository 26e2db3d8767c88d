"""Conditions that have lasted for some time, whatever the clock of the machine does.

Times in the stores are those of the wall clock, which an operator or a time server may set by a
day. Before anything is removed because of such a time, it must have looked removable for a
while by a clock that never jumps, and unchanged: what is in use changes in that while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class Lasting:
    """Tells whether something has been in one state for long.

    Args:
        seconds: how long.
        clock: monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[str, tuple[Hashable, float]] = {}

    def has_lasted(self, name: str, state: Hashable) -> bool:
        """Note that something is in a state; return whether it has been since long ago."""
        now = self._clock()
        known, since = self._since.get(name, (None, now))
        if name not in self._since or known != state:
            since = now
        self._since[name] = (state, since)
        return now - since >= self._seconds

    def forget(self, name: str) -> None:
        """Forget something that is not in question, or gone."""
        self._since.pop(name, None)
