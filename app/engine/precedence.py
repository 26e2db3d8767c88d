"""Which work goes first when there is more than the cores can do.

Two things decide how long a small read waits while large ones run. One is the operating system,
which shares the cores among threads: threads of large work have a lower priority, and with it a
smaller share. The other is the interpreter's lock, which knows no priorities: whoever waits gets
it in turn, and each holder keeps it for a switch interval. So threads of large work *give way*.
At the checks of their budget, a millisecond apart, they ask whether a quick call is running, and
if so they sleep for a moment, in which they ask for no lock:

    quick call     ....|=====|.................|===|......
    large work     ====|.    ^.  ==|===========|.   ==|===
                          sleeping, at most _PAUSE per check

They sleep once per check and not until all quick calls have ended, so an owner who sends nothing
but quick calls slows others down by a constant factor, and stops nobody. A quick call that takes
long, because it has to open a large file, is given way to for its first moments only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

_PAUSE = 0.004
"""Seconds that a thread sleeps at a check while quick calls run."""
SWITCH_SECONDS = 0.0005
"""Switch interval of the interpreter: a thread that waits for its lock gets it after about that,
times the number of threads that wait too."""
_LOWER = 5
"""By how much the threads of large work are nicer than the others: a third of their share."""


class Precedence:
    """Notes until when quick calls go first; for any number of threads, without a lock."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def claim(self, until: float) -> None:
        """Have other work give way until then, by the monotonic clock."""
        self._until = until

    def end(self) -> None:
        """Let other work go on: no quick call runs any more."""
        self._until = 0.0

    def give_way(self, now: float) -> None:
        """Sleep for a moment if a quick call runs."""
        if now < self._until:
            time.sleep(_PAUSE)


def lower_priority(base: int) -> None:
    """Lower the priority of this thread below that of the process; it cannot be raised again.

    Args:
        base: niceness of the process.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), base + _LOWER)


def shorten_switches() -> None:
    """Have threads that compute hand over the interpreter's lock more often."""
    sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
