"""Kills and cuts at random instants, and what they cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from tests.fault_proxy import GOOD, Cut, How
from tests.fault_proxy import Faults as ConnectionFaults

_SECONDS = 3.0
"""Mean time from a server that is ready to its end."""
_CLIENT_SECONDS = 4.0
"""Mean time from the start of a client that is a process to its end."""
_REACH = 16 << 20
"""Bytes of a connection within which it is cut."""


class Faults:
    """Kills a server and cuts connections until there were enough of both.

    Args:
        kills: of the server.
        cuts: of connections.
        seed: of instants and places.
    """

    def __init__(self, kills: int, cuts: int, seed: int) -> None:
        self.kills = 0
        self.cuts = 0
        self.client_kills = 0
        self.waits: list[float] = []
        """Seconds from the start of a server to the first byte that it accepted."""
        self.longest_stall = 0.0
        """Most seconds in which no byte of any upload was accepted."""
        self._accepted = 0.0
        self._wanted = kills, cuts
        self._rng = np.random.default_rng(seed)
        self._started = 0.0
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether there were enough."""
        return self.kills >= self._wanted[0] and self.cuts >= self._wanted[1]

    def plan(self, _number: int) -> ConnectionFaults:
        """The faults of a connection."""
        with self._lock:
            if self.cuts >= self._wanted[1] or self._rng.random() < 0.2:
                return GOOD
            self.cuts += 1
            # Most of what goes up is one long append; answers are short.
            up = self._rng.random() < 0.8
            reach = _REACH if up else 2000
            place = int(reach * self._rng.random() ** 2)
            how: How = "reset" if self._rng.random() < 0.5 else "close"
        return ConnectionFaults(cut=Cut("up" if up else "down", place, how))

    def kill_until(
        self, done: threading.Event, kill: Callable[[], None], *, often: bool = False
    ) -> None:
        """Kill at random instants until there were enough kills, or something is done.

        Args:
            done: set when it is.
            kill: kills, and returns when there is something to be killed again.
            often: whether to wait for 0.05 to 5 seconds, whose logarithm is uniform.
        """
        while self.kills < self._wanted[0]:
            seconds = self._rng.exponential(_SECONDS)
            if often:
                seconds = 0.05 * 100 ** self._rng.random()
            if done.wait(float(seconds)):
                return
            self._started = 0.0
            kill()
            self.kills += 1
            self._started = time.monotonic()

    def client_seconds(self) -> float | None:
        """Seconds after which to kill a client; None for never."""
        if self.over:
            return None
        with self._lock:
            return float(self._rng.exponential(_CLIENT_SECONDS))

    def accepted(self, *_: object) -> None:
        """A server has accepted bytes."""
        now = time.monotonic()
        started, self._started = self._started, 0.0
        if started:
            self.waits.append(now - started)
        with self._lock:
            last, self._accepted = self._accepted or now, now
            self.longest_stall = max(self.longest_stall, now - last)

    def rest(self) -> None:
        """Nothing is uploaded until bytes are accepted again."""
        self._accepted = 0.0

    def describe(self, sent: int, stored: int) -> str:
        """What the faults have cost.

        Args:
            sent: bytes that clients have sent.
            stored: bytes of what they uploaded.
        """
        text = f"{self.kills} kills, {self.cuts} cuts, {self.client_kills} kills of a client"
        if stored:
            text += f", {stored / 1e6:,.0f} MB of the others"
            text += f", sent again: {(sent - stored) / stored:.3f} of them"
        if self.waits:
            middle, most = median(self.waits), max(self.waits)
            text += f"; from ready to the first byte accepted: {middle:.2f} s, {most:.2f} s at most"
            text += f"; longest stall of all uploads: {self.longest_stall:.1f} s"
        return text
