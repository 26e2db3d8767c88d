"""Telling the application that the process is about to end."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Scope

DRAIN_EXTENSION = "thalweg.drain"


class Drain:
    """State of an orderly end; of one server process.

    Attributes:
        draining: No new work should be begun; readiness is to say 503.
        deadline: ``time.monotonic()`` at which running requests are cut; None before.
        hard: Set shortly before the deadline: streams should end now, in good order.
    """

    def __init__(self) -> None:
        self.draining = False
        self.deadline: float | None = None
        self.hard = asyncio.Event()

    def begin(self, seconds: float) -> None:
        """Start draining; running requests have ``seconds``. Later calls do nothing."""
        if not self.draining:
            self.deadline = time.monotonic() + seconds
            self.draining = True

    def left(self) -> float | None:
        """Seconds to the deadline, not below 0; None while not draining."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)


def drain_of(scope: Scope) -> Drain:
    """The drain of the server of a request; one that never begins under other servers."""
    drain: Drain | None = (scope.get("extensions") or {}).get(DRAIN_EXTENSION)
    return drain or Drain()
