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

An instance is not synchronized: the pool calls it under its lock.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

_RECENT_SECONDS = 60.0
"""Time for which an owner who asked counts as present."""


class DecoderTurns:
    """The owners who wait for workers or hold them.

    Requests outside of any, such as scans, have the owner ``""``. It waits and holds like others,
    but nobody leaves a worker free for it.

    Args:
        workers: maximum number of workers.
        clock: monotonic, in seconds.
    """

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._held: Counter[str] = Counter()
        """Workers of each owner that are busy or starting for it."""
        self._waiting: OrderedDict[str, deque[object]] = OrderedDict()
        """By owner; whose turn is next comes first."""
        self._present: OrderedDict[str, float] = OrderedDict()
        """When each owner last asked or gave a worker back; the latest comes last."""

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
        owner = min(self._waiting, key=lambda owner: self._held[owner])
        return turn is self._waiting[owner][0] and not self.has_share(owner)

    def has_share(self, owner: str) -> bool:
        """Whether an owner holds as many workers as it may at present."""
        share = self._workers
        if share > 1 and self._has_company(owner):
            share -= 1
        return self._held[owner] >= share

    def take(self, owner: str) -> None:
        """Count a worker as an owner's, whose next turn comes after those of others."""
        self._waiting.move_to_end(owner)
        self._held[owner] += 1

    def give_back(self, owner: str) -> None:
        """Count a worker as the owner's no longer."""
        self._note(owner)
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]

    def _has_company(self, owner: str) -> bool:
        self._forget_the_absent()
        return not {"", owner}.issuperset((*self._present, *self._waiting))

    def _note(self, owner: str) -> None:
        self._present[owner] = self._clock()
        self._present.move_to_end(owner)
        self._forget_the_absent()

    def _forget_the_absent(self) -> None:
        oldest = self._clock() - _RECENT_SECONDS
        while self._present and next(iter(self._present.values())) <= oldest:
            self._present.popitem(last=False)
