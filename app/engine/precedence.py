"""Which work goes first when there is more than the cores can do.

The event loop needs the interpreter's lock dozens of times per turn: every system call gives it
up. Beside a thread that computes, getting it back takes a switch interval, beside ten of them
ten, and a small read needs several turns. The lock knows no priorities; whoever waits gets it.
So there are two rules:

1. The switch interval is short. That costs nothing while nobody waits.
2. While the service is *strained*, long calls *give way*: at the checks of their budget, a
   millisecond apart, they sleep for a few, in which they ask for no lock.

       lag of the event loop   ..|.||||.|.................
       strained                ....|=====================|......
       long call               ======|  =|  =|  =|  =|  =|======

The service is strained for some seconds after the event loop called something back late. So work
costs nothing more as long as the cores suffice for all, and however strained the service is, a
long call goes on at a fifth of its speed or more.

Threads of large work have the priority of all others in the system's scheduler. With a lower one,
the event loop would wait for the lock of a thread that waits for a core.
"""

from __future__ import annotations

import sys
import time

LONG_SECONDS = 0.025
"""Running time after which a call is long."""
LAG_SECONDS = 0.02
"""Delay of a callback in the event loop from which on the service is strained."""
_HOLD = 5.0
"""Seconds for which it is strained after such a delay."""
_PAUSE = 0.004
"""Seconds that a long call sleeps at a check."""
SWITCH_SECONDS = 0.0005
"""Switch interval of the interpreter."""


class Precedence:
    """Has long calls give way while the service is strained; for any number of threads."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def note_lag(self, seconds: float) -> None:
        """Note by how much the event loop called something back too late."""
        if seconds > LAG_SECONDS:
            self._until = time.monotonic() + _HOLD

    def give_way(self, now: float, begun: float) -> None:
        """Sleep for a moment if the call of this thread is long, and the service strained.

        Args:
            now: the monotonic clock.
            begun: when the call began, by that clock.
        """
        if now < self._until and now - begun > LONG_SECONDS:
            time.sleep(_PAUSE)


def shorten_switches() -> None:
    """Have threads that compute hand over the interpreter's lock more often."""
    sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
