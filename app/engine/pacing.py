"""Whose requests start first when the event loop is late.

Each small request costs the event loop about a millisecond: its head is parsed, it is routed, and
its answer written. Slots (:mod:`.precedence`) hold back calls that compute for long; hundreds of
small requests a second are held back here, before they start::

                        the level: CPU seconds per second that one owner's requests may take
    event loop late     ────────────╮                          ╭─────────
                                    ╰────╮              ╭──────╯
                                         ╰──────────────╯
    owner A, 20 a second      |  |  |  |  |  |  |  |  |  |  |         below the level: at once
    owner B, 300 a second     |||||||||||| | | |   |   |   | | |||    above it: spaced out

While the loop is late the level falls, else it rises. So whoever asks for little never notices, and
those above the level get equal shares: each is paced down to the level, but not below the mean of
all recent owners. Who is alone, or uses as much as everybody else, is not paced at all: it would
only leave the loop idle.

A request that waits has been identified, but nothing of its body is read: TCP stops the sender.
Nothing is refused that would have been accepted.

Requests are charged for the loop's CPU time until their answer starts. What comes after that is
paced by its client, and by slots. All of it is for the thread of the event loop alone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Self

from .precedence import FINE_SECONDS, HOLD_SECONDS, LAG_SECONDS

_LOWEST, _HIGHEST = 0.04, 1.0
"""Bounds of the level."""
_FALL, _RISE = 0.7, 1.1
"""Factors of the level per measurement of the lag."""
_WINDOW = 1.0
"""Seconds after which use counts for 1/e."""
_RECENT = 1e-3
"""CPU seconds per second from which on an owner counts as one who uses the loop."""
_HEAD_SECONDS = 0.0004
"""CPU seconds of a request before it is known whose it is: its connection and its head."""
_LONGEST = 5.0
"""Seconds that a request waits at most."""


class _Account:
    """What one owner's requests have used lately."""

    __slots__ = ("cost", "next", "since", "used")

    def __init__(self, now: float) -> None:
        self.used = 0.0
        self.since = now
        self.next = 0.0
        """When its next request may start."""
        self.cost = 0.0
        """CPU seconds of one of its requests, on average."""

    def rate(self, now: float) -> float:
        """CPU seconds per second."""
        self.used *= math.exp((self.since - now) / _WINDOW)
        self.since = now
        return self.used / _WINDOW


class Pacing:
    """Spaces requests of those who use most of a late event loop; see the module.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._level = _HIGHEST
        self._accounts: dict[str, _Account] = {}

    def note_lag(self, seconds: float) -> None:
        """Note by how much the event loop called something back too late."""
        now = self._clock()
        if seconds > LAG_SECONDS:
            self._until = now + HOLD_SECONDS
        elif now >= self._until:
            self._level = _HIGHEST
            self._accounts.clear()
            return
        factor = _FALL if seconds > FINE_SECONDS else _RISE
        self._level = min(max(factor * self._level, _LOWEST), _HIGHEST)
        for owner in [o for o, a in self._accounts.items() if a.rate(now) < _RECENT]:
            if self._accounts[owner].next < now:
                del self._accounts[owner]

    @property
    def is_late(self) -> bool:
        """Whether the event loop was late within the last seconds."""
        return self._clock() < self._until

    async def wait(self, owner: str) -> None:
        """Wait until a request of an owner may start, and charge it for its head."""
        now = self._clock()
        if now >= self._until:
            return
        seconds = self._delay(owner, now)
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _delay(self, owner: str, now: float) -> float:
        """Return how long a request has to wait, and take its place."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account(now)
        rate = account.rate(now)
        account.used += _HEAD_SECONDS
        allowed = self._allowed(now)
        start = max(account.next, now)
        if start > now or rate > allowed:
            cost = _HEAD_SECONDS + account.cost
            account.next = min(start + cost / allowed, now + _LONGEST)
        return start - now

    def _allowed(self, now: float) -> float:
        """Return the CPU seconds per second that each owner may use."""
        rates = [rate for a in self._accounts.values() if (rate := a.rate(now)) >= _RECENT]
        return max(self._level, sum(rates) / max(len(rates), 1))

    def charge(self, owner: str, seconds: float) -> None:
        """Charge an owner for a request that the event loop has worked on for so long."""
        account = self._accounts.get(owner)
        if account is not None:
            account.rate(self._clock())
            account.used += seconds
            account.cost += 0.1 * (seconds - account.cost)

    async def run(
        self,
        owner: str,
        work: Awaitable[None],
        started: Callable[[], bool],
    ) -> None:
        """Run a request, and charge its owner if the event loop is late.

        Args:
            owner: whose request it is.
            work: the request.
            started: tells whether its answer has started.
        """
        if self._clock() >= self._until:
            await work
            return
        metered = _Metered(work, started)
        try:
            await metered
        finally:
            self.charge(owner, metered.seconds)


class _Metered(Generator[Any, Any, None]):
    """Measures the CPU time of a request in its thread until its answer has started."""

    def __init__(self, work: Awaitable[None], started: Callable[[], bool]) -> None:
        self._work = work.__await__()
        self._started = started
        self.seconds = 0.0

    def __await__(self) -> Self:
        return self

    def send(self, value: Any) -> Any:  # noqa: ANN401 - whatever the event loop exchanges
        if self._started():
            return self._work.send(value)
        begin = time.thread_time()
        try:
            return self._work.send(value)
        finally:
            self.seconds += time.thread_time() - begin

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as above
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()
