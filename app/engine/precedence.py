"""Which work goes first when there is more than the cores can do.

The event loop needs the interpreter's lock dozens of times per turn: every system call gives it
up. Beside a thread that computes, getting it back takes a switch interval, beside ten of them
ten, and a small read needs several turns. The lock knows no priorities; whoever waits gets it.
So there are two rules:

1. The switch interval is short. That costs nothing while nobody waits.
2. While the service is *strained*, requests that have computed for long *give way*. At the
   checks of their budget, a millisecond of work apart, each waits for the next *slot*, and while
   it waits it asks for no lock::

       lag of the event loop   ..|.||||.|.................
       strained                ....|=====================|......
       slots of owner A            | a1  | a2  | a1  | a2         a1, a2: threads of A
       slots of owner B            | b1  | b1  | b1  | b1

   Owners have slots of their own, so whoever starts a hundred threads slows down none but
   themselves. How far slots lie apart follows the lag of the event loop: further as long as it
   is late, closer once it is in time. So long work takes what small reads leave.

The service is strained for some seconds after the event loop called something back late. So work
costs nothing more as long as the cores suffice for all. The only request there is never gives way:
it may be other programs that make the event loop late, and nobody would gain.

With lanes (:mod:`app.server.lanes`) nothing gives way: kinds of work have processes of their own,
which the system schedules.

Threads of large work have the priority of all others in the system's scheduler. With a lower one,
the event loop would wait for the lock of a thread that waits for a core.
"""

from __future__ import annotations

import math
import sys
import threading
import time

LONG_SECONDS = 0.025
"""Running time after which a call is long, and CPU time after which a request is."""
LAG_SECONDS = 0.01
"""Delay of a callback in the event loop from which on the service is strained."""
HOLD_SECONDS = 5.0
"""Seconds for which it is strained after such a delay."""
FINE_SECONDS = 0.004
"""Delay of a callback up to which slots move closer together again."""
_CLOSEST, _FURTHEST = 0.01, 0.1
"""Bounds of the seconds between two slots of all owners together."""
_APART, _TOGETHER = 1.5, 0.95
"""Factors of these seconds per measurement of the lag. A small read takes several turns of the loop
and has the delay of each: so one late turn in nine already keeps slots apart."""
_LONGEST = 0.2
"""Seconds that a call waits at most, so that it notices soon when nobody needs it any more."""
_RECENT = 0.2
"""Seconds for which an owner counts after a slot."""
_ALONE_SECONDS = 1.0
"""Seconds after the last request began from which on the only one in progress is alone."""
SWITCH_SECONDS = 0.0002
"""Switch interval of the interpreter. The shorter it is, the sooner small reads are answered, and
the more often calls that compute side by side are interrupted: at 0.1 ms they do a seventh less."""


class Precedence:
    """Has long requests give way while the service is strained; for any number of threads."""

    __slots__ = ("_begun", "_lock", "_requests", "_slots", "_spacing", "_until")

    def __init__(self) -> None:
        self._until = 0.0
        self._requests = 0
        """Requests in progress."""
        self._begun = -math.inf
        """When the last one began."""
        self._spacing = _CLOSEST
        self._lock = threading.Lock()
        self._slots: dict[str, float] = {}
        """The last slot of each recent owner, by the monotonic clock."""

    def begin(self) -> None:
        """Note that a request begins; for the event loop alone, as ``end`` is."""
        self._requests += 1
        self._begun = time.monotonic()

    def end(self) -> None:
        """Note that a request has ended."""
        self._requests -= 1

    def note_lag(self, seconds: float) -> None:
        """Note by how much the event loop called something back too late."""
        if seconds > LAG_SECONDS:
            self._until = time.monotonic() + HOLD_SECONDS
        if seconds > FINE_SECONDS:
            self._spacing = min(_APART * self._spacing, _FURTHEST)
        else:
            self._spacing = max(_TOGETHER * self._spacing, _CLOSEST)

    def give_way(self, now: float, owner: str, worked: float) -> None:
        """Wait for a slot if the request has computed for long, and the service is strained.

        Args:
            now: the monotonic clock.
            owner: whose request it is.
            worked: CPU seconds that the request has taken.
        """
        is_alone = self._requests == 1 and now > self._begun + _ALONE_SECONDS
        if now < self._until and worked > LONG_SECONDS and not is_alone:
            time.sleep(self._take_slot(now, owner) - now)

    def _take_slot(self, now: float, owner: str) -> float:
        """Return when the next slot of an owner begins, which nobody else gets."""
        slots = self._slots
        with self._lock:
            for other in [other for other, at in slots.items() if at < now - _RECENT]:
                del slots[other]
            last = slots.get(owner, now)
            # Of the slots of all, each recent owner has the same share.
            slot = max(now, last + self._spacing * max(len(slots), 1))
            slot = min(slot, now + _LONGEST)
            slots[owner] = slot
        return slot


def shorten_switches() -> None:
    """Have threads that compute hand over the interpreter's lock more often."""
    sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
