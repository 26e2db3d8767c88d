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
those above the level get equal shares: each is paced down to the level, but not below a little more
than the mean of all recent owners. Who is alone, or uses as much as everybody else, is not paced at
all: it would only leave the loop idle.

A request that waits has been identified, but nothing of its body is read: TCP stops the sender.
Nothing is refused that would have been accepted. A wait ends early when the client leaves, and when
a drain begins: what has arrived before is still answered.

Requests are charged for the loop's CPU time until their answer starts: when they start, for what
their owner's requests take on average, and then as soon as they take more. Otherwise hundreds that
come at once would all start before the first is charged. What comes after that is paced by its
client, and by slots. All of it is for the thread of the event loop alone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Self

from .precedence import FINE_SECONDS, HOLD_SECONDS, LAG_SECONDS

_LOWEST, _HIGHEST = 0.1, 1.0
"""Bounds of the level."""
_SLACK = 1.25
"""By how much one may exceed the mean. Whoever is paced down to the mean of two soon uses no more
than the other: then both would be paced in turn, though one of them never asked for much."""
_FALL, _RISE = 0.7, 1.02
"""Factors of the level per measurement of the lag. It rises slowly: of a hundred small reads, which
take several turns each, one may be slow, so no more than one turn in nineteen should be late."""
_WINDOW = 1.0
"""Seconds after which use counts for 1/e."""
_RECENT = 1e-3
"""CPU seconds per second from which on an owner counts as one who uses the loop."""
_HEAD_SECONDS = 0.0004
"""CPU seconds of a request before it is known whose it is: its connection and its head."""
_STEP_SECONDS = 0.0002
"""CPU seconds that a request takes before it is charged for them."""
_LONGEST = 5.0
"""Seconds that a request waits at most."""
_PROMPT = 0.1
"""Seconds up to which nothing ends a wait: to watch events for so little costs more."""


class _Use:
    """CPU seconds used lately."""

    __slots__ = ("_since", "_used")

    def __init__(self, now: float) -> None:
        self._used = 0.0
        self._since = now

    def rate(self, now: float) -> float:
        """Return the CPU seconds per second."""
        self._used *= math.exp((self._since - now) / _WINDOW)
        self._since = now
        return self._used / _WINDOW

    def add(self, now: float, seconds: float) -> None:
        """Note that so many CPU seconds were used now."""
        self.rate(now)
        self._used += seconds


class _Account(_Use):
    """The requests of one owner."""

    __slots__ = ("cost", "next")

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.next = 0.0
        """When its next request may start."""
        self.cost = 0.0
        """CPU seconds of one of its requests, on average."""


class Pacing:
    """Spaces requests of those who use most of a late event loop; see the module.

    Args:
        clock: seconds.

    Attributes:
        paced: requests that have waited.
        paced_seconds: for how long they waited together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.paced = 0
        self.paced_seconds = 0.0
        self._clock = clock
        self._until = 0.0
        self._level = _HIGHEST
        self._accounts: dict[str, _Account] = {}
        self._all = _Use(0.0)
        """What the requests of all accounts have used."""
        self._recent = 0
        """Owners who used the loop when the lag was last measured."""

    def note_lag(self, seconds: float) -> None:
        """Note by how much the event loop called something back too late."""
        now = self._clock()
        if seconds > LAG_SECONDS:
            self._until = now + HOLD_SECONDS
        elif now >= self._until:
            self._level = _HIGHEST
            self._accounts.clear()
            self._all, self._recent = _Use(now), 0
            return
        factor = _FALL if seconds > FINE_SECONDS else _RISE
        self._level = min(max(factor * self._level, _LOWEST), _HIGHEST)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop the accounts of owners who no longer use the loop, and count the others."""
        idle = [owner for owner, a in self._accounts.items() if a.rate(now) < _RECENT]
        self._recent = len(self._accounts) - len(idle)
        for owner in idle:
            if self._accounts[owner].next < now:
                del self._accounts[owner]

    @property
    def is_late(self) -> bool:
        """Whether the event loop was late within the last seconds."""
        return self._clock() < self._until

    async def wait(self, owner: str, *wake: asyncio.Event) -> None:
        """Wait until a request of an owner may start, and charge it for its head.

        Args:
            owner: whose request it is.
            wake: each ends the wait at once.
        """
        begin = self._clock()
        if begin >= self._until:
            return
        seconds = self._delay(owner, begin)
        if seconds <= 0:
            return
        self.paced += 1
        try:
            await _sleep(seconds, wake)
        finally:
            self.paced_seconds += self._clock() - begin

    def _delay(self, owner: str, now: float) -> float:
        """Return how long a request has to wait, and take its place."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account(now)
        rate = account.rate(now)
        cost = _HEAD_SECONDS + account.cost
        self._use(account, now, cost)
        allowed = self._allowed(now)
        start = max(account.next, now)
        if start > now or rate > allowed:
            account.next = min(start + cost / allowed, now + _LONGEST)
        return start - now

    def _allowed(self, now: float) -> float:
        """Return the CPU seconds per second that each owner may use."""
        mean = self._all.rate(now) / max(self._recent, 1)
        return max(self._level, _SLACK * mean)

    def _use(self, account: _Account, now: float, seconds: float) -> None:
        account.add(now, seconds)
        self._all.add(now, seconds)

    def charge(self, owner: str, seconds: float, paid: float | None = None) -> float:
        """Charge an owner for a request that the event loop has worked on.

        Args:
            owner: whose request it is.
            seconds: CPU seconds it has taken so far.
            paid: those of them that were charged before; default: the average.

        Returns:
            The seconds charged so far.
        """
        account = self._accounts.get(owner)
        if account is None:
            return seconds
        paid = account.cost if paid is None else paid
        if seconds > paid:
            self._use(account, self._clock(), seconds - paid)
        return max(seconds, paid)

    def note_cost(self, owner: str, seconds: float) -> None:
        """Note what a request has taken in all, for the average of its owner."""
        account = self._accounts.get(owner)
        if account is not None:
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
        paid = self.charge(owner, 0.0)

        def charge(seconds: float) -> None:
            nonlocal paid
            if seconds > paid + _STEP_SECONDS:
                paid = self.charge(owner, seconds, paid)

        metered = _Metered(work, started, charge)
        try:
            await metered
        finally:
            self.charge(owner, metered.seconds, paid)
            self.note_cost(owner, metered.seconds)


async def _sleep(seconds: float, wake: Sequence[asyncio.Event]) -> None:
    """Sleep for some seconds, or until one of the events is set."""
    if seconds <= _PROMPT or not wake:
        await asyncio.sleep(seconds)
        return
    tasks = [asyncio.create_task(event.wait()) for event in wake]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class _Metered(Generator[Any, Any, None]):
    """Measures the CPU time of a request in its thread until its answer has started.

    Args:
        work: the request.
        started: tells whether its answer has started.
        spent: called with the CPU seconds so far, whenever it has taken some.
    """

    def __init__(
        self,
        work: Awaitable[None],
        started: Callable[[], bool],
        spent: Callable[[float], None],
    ) -> None:
        self._work = work.__await__()
        self._started = started
        self._spent = spent
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
            self._spent(self.seconds)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as above
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()
