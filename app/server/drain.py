"""Draining: telling the application that the process is about to end."""

from __future__ import annotations

import time

from starlette.types import Scope

from .flow import Flag

DRAIN_EXTENSION = "thalweg.drain"


class Drain:
    """The state of draining of one server process.

    Attributes:
        draining: Whether to refuse new work and report 503 as readiness.
        begun: Set in the thread of the event loop soon after draining began, for what waits.
        deadline: ``time.monotonic()`` at which running requests are cut; None before
            draining.
        hard: Set shortly before the deadline, when streams should end in an orderly way.
    """

    def __init__(self) -> None:
        self.draining = False
        self.deadline: float | None = None
        self.begun = Flag()
        self.hard = Flag()

    def begin(self, seconds: float) -> None:
        """Start draining with ``seconds`` for running requests; later calls do nothing."""
        if not self.draining:
            self.deadline = time.monotonic() + seconds
            self.draining = True

    def left(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None before draining."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)


def drain_of(scope: Scope) -> Drain:
    """Return the drain of the process that answers a request."""
    drain: Drain = scope["extensions"][DRAIN_EXTENSION]
    return drain
