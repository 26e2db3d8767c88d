"""Callers take turns at the event loop, so that a flood of one delays another by a few requests.

One client may send hundreds of requests in one moment, and each costs the event loop half a
millisecond in its next turn. Whoever else asks would wait for all of them, and again at the next
step of each. So a turn of the loop starts a few requests at most, of one caller after another
(without it, ``python -m tests.bench.lanes --only flood`` rises)::

    arrived in one turn     a1 a2 a3 a4 a5 a6    b1
    turn 1                  a1 a2
    turn 2                  a3     b1
    turn 3                  a4 a5
    turn 4                  a6
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

PER_TURN = 2
"""Calls of each kind per turn. The work of a turn is then about twice what the turn itself costs:
with more, turns last longer; with fewer, all would take longer together."""


class Spread:
    """Makes calls of one kind, a few per turn of the event loop; see the module.

    For the thread of the event loop alone. While it has little to do, calls are made at once.
    """

    def __init__(self) -> None:
        self._made = 0
        """Calls made in this turn."""
        self._waiting: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()
        """By caller; whose turn is next comes first."""

    def call(
        self, loop: asyncio.AbstractEventLoop, caller: Hashable, function: Callable[[], object]
    ) -> None:
        """Call a function, now or in one of the next turns.

        Args:
            loop: the running event loop.
            caller: for whom; calls for one caller are made in order.
            function: must not raise.
        """
        if self._made < PER_TURN and not self._waiting:
            self._count(loop)
            function()
        else:
            self._waiting.setdefault(caller, deque()).append(function)

    def _count(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._made:
            loop.call_soon(self._next_turn, loop)
        self._made += 1

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._made = 0
        while self._waiting and self._made < PER_TURN:
            self._count(loop)
            caller, functions = self._waiting.popitem(last=False)
            function = functions.popleft()
            if functions:
                self._waiting[caller] = functions
            function()
