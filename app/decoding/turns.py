"""Which owner gets the next worker, and how many of them one owner may hold.

Nobody can be interrupted while a worker decodes, and a large read takes many seconds. So it is
not enough that owners take turns at workers that become free: an owner who holds all of them
would make every other wait for a whole read. Two rules, then:

1. The next worker is for the waiting owner who holds the fewest; among equals, in turn.
2. As long as somebody else asks, or has asked within the last minute, an owner leaves one
   worker free, where there are two or more:

       nobody else for a minute   [alice] [alice] [alice]
       bob asks                   [alice] [alice] [alice]  bob waits for the first that ends
       from then on               [alice] [alice] [     ]  and bob finds one free

The first read of a newcomer may wait, no later one does. A worker kept free for newcomers at all
times would cost a service with a single user half of the default two.

Workers and owners are those of all processes of the service, but a queue is that of one process:
where several wait for the same worker, the first that looks gets it.

Of all who asked, two are remembered: the last one, and the last other one. Whoever asks is one of
them, or neither; so one of the two is company, if anybody is.

An instance is not synchronized: the pool calls it under its lock.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

from app.tally import DECODING, MOST, Column, Table, Tally

_RECENT_SECONDS = 60.0
"""Time for which an owner who asked counts as present."""
_LAST, _OTHER = (1, 2), (3, 4)
"""Notes of the table: an owner, and when it last asked or gave a worker back."""
_KEY_BITS = (1 << 52) - 1
"""Bits of an owner's hash that a note holds."""


class DecoderTurns:
    """The owners who wait for workers or hold them.

    Requests outside of any, such as scans, have the owner ``""``. It waits and holds like others,
    but nobody leaves a worker free for it.

    Args:
        workers: maximum number of workers.
        clock: monotonic, in seconds, the same for all processes.
        column: where the service counts the workers of this process; default: it is alone.
    """

    def __init__(
        self,
        workers: int,
        clock: Callable[[], float] = time.monotonic,
        column: Column | None = None,
    ) -> None:
        column = column or Column(Table())
        self._workers = workers
        self._clock = clock
        self._held = Tally(column, DECODING, MOST, MOST)
        """Workers of each owner that are busy or starting for it."""
        self._notes, self._lock = column.table.notes, column.table.lock
        self._waiting: OrderedDict[str, deque[object]] = OrderedDict()
        """By owner; whose turn is next comes first."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return sum(map(len, self._waiting.values()))

    def join(self, owner: str) -> object:
        """Begin to wait; return the place in the queue."""
        self._note(owner)
        turn = object()
        self._waiting.setdefault(owner, deque()).append(turn)
        return turn

    def leave(self, owner: str, turn: object) -> None:
        """Stop waiting, with a worker or without."""
        turns = self._waiting[owner]
        turns.remove(turn)
        if not turns:
            del self._waiting[owner]

    def is_next(self, turn: object) -> bool:
        """Whether the next worker is for this place in the queue."""
        owner = min(self._waiting, key=self._held.of)
        return turn is self._waiting[owner][0] and not self.has_share(owner)

    def has_share(self, owner: str) -> bool:
        """Whether an owner holds as many workers as it may at present."""
        share = self._workers
        if share > 1 and self._has_company(owner):
            share -= 1
        return self._held.of(owner) >= share

    def take(self, owner: str) -> None:
        """Count a worker as an owner's, whose next turn comes after those of others."""
        self._waiting.move_to_end(owner)
        self._held.add(owner, 1)

    def give_back(self, owner: str) -> None:
        """Count a worker as the owner's no longer."""
        self._note(owner)
        self._held.remove(owner, 1)

    @property
    def held(self) -> int:
        """Number of workers that owners hold, in all processes."""
        return self._held.total

    def _has_company(self, owner: str) -> bool:
        if not {"", owner}.issuperset(self._waiting):
            return True
        notes, oldest = self._notes, self._clock() - _RECENT_SECONDS
        return any(
            notes[key] not in {0.0, _key(owner)} and notes[stamp] > oldest
            for key, stamp in (_LAST, _OTHER)
        )

    def _note(self, owner: str) -> None:
        if not owner:
            return
        notes, key = self._notes, _key(owner)
        with self._lock:
            if notes[_LAST[0]] != key:
                for last, other in zip(_LAST, _OTHER, strict=True):
                    notes[other] = notes[last]
            notes[_LAST[0]], notes[_LAST[1]] = key, self._clock()


def _key(owner: str) -> float:
    return float(hash(owner) & _KEY_BITS or 1)
