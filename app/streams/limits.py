"""Limits and progress of one answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_COUNT = 1 << 24
MAX_BYTES = 1 << 44
MAX_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one answer, in items, payload bytes, seconds and epochs.

    They are checked before each item, so an answer may exceed them by one item.
    """

    count: int = MAX_COUNT
    nbytes: int = MAX_BYTES
    seconds: float = MAX_SECONDS
    epochs: int | None = None

    @classmethod
    def clamped(
        cls,
        count: int | None = None,
        nbytes: int | None = None,
        seconds: float | None = None,
        epochs: int | None = None,
    ) -> Limits:
        """Return the requested limits, lowered to those of the server."""
        return cls(
            MAX_COUNT if count is None else min(count, MAX_COUNT),
            MAX_BYTES if nbytes is None else min(nbytes, MAX_BYTES),
            MAX_SECONDS if seconds is None else min(seconds, MAX_SECONDS),
            epochs,
        )


@dataclass(slots=True)
class Progress:
    """Progress of one answer, in items, payload bytes and epochs."""

    count: int = 0
    nbytes: int = 0
    epochs: int = 0
    waited: float = 0.0
    """Seconds spent waiting for items."""
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the answer began."""
        return self.clock() - self.began

    def reached(self, limits: Limits) -> str | None:
        """Return the limit that is reached: ``count``, ``bytes``, ``epoch``, ``time`` or None."""
        if self.count >= limits.count:
            return "count"
        if self.nbytes >= limits.nbytes:
            return "bytes"
        if limits.epochs is not None and self.epochs >= limits.epochs:
            return "epoch"
        return "time" if self.seconds >= limits.seconds else None
