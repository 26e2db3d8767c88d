"""A progress bar for terminals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ..losses.saving import Progress
from ..tiles.files import TileProgress

_INTERVAL = 0.1
"""Seconds between two drawings."""
_WIDTH = 24
_MEGABYTE = 1e6


class Bar:
    """Draws how far a post or a view is, in one line that is cleared at the end.

    Args:
        out: the terminal.
        clock: gives seconds.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._began = clock()
        self._from: int | None = None
        self._drawn = -_INTERVAL

    def __call__(self, now: Progress | TileProgress) -> None:
        """Draw it, if it was not drawn a moment ago."""
        at = self._clock() - self._began
        if self._from is None:
            self._from = now.bytes
        if at - self._drawn < _INTERVAL:
            return
        self._drawn = at
        rate = (now.bytes - self._from) / at if at else 0.0
        self._out.write(f"\r\x1b[K{describe(now, rate)}")
        self._out.flush()

    def clear(self) -> None:
        """Leave an empty line."""
        self._out.write("\r\x1b[K")
        self._out.flush()


def describe(now: Progress | TileProgress, rate: float) -> str:
    """How far a post or a view is, in a line.

    Args:
        now: how far it is.
        rate: bytes per second.
    """
    done = f"{now.bytes / _MEGABYTE:,.1f}"
    bar = ""
    if now.total:
        share = min(now.bytes / now.total, 1.0)
        bar = f"{share:4.0%} [{'#' * int(share * _WIDTH):{_WIDTH}}] "
        done += f"/{now.total / _MEGABYTE:,.1f}"
    things = f"{now.tiles:,} tiles" if isinstance(now, TileProgress) else f"{now.events:,} events"
    return f"{bar}{done} MB  {rate / _MEGABYTE:,.0f} MB/s  {things}"
