"""A progress bar for terminals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ..losses.saving import Progress
from ..tiles.saving import TileProgress

_INTERVAL = 0.1
"""Seconds between two drawings."""
_WIDTH = 24
_MEGABYTE = 1e6


class Bar:
    """Draws progress in one line, which is cleared at the end.

    Args:
        out: the terminal.
        clock: seconds.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._began = clock()
        self._from: int | None = None
        self._drawn = -_INTERVAL

    def __call__(self, progress: Progress | TileProgress) -> None:
        """Draw the progress, unless it was drawn a moment ago."""
        at = self._clock() - self._began
        if self._from is None:
            self._from = progress.bytes
        if at - self._drawn < _INTERVAL:
            return
        self._drawn = at
        rate = (progress.bytes - self._from) / at if at else 0.0
        self._out.write(f"\r\x1b[K{describe(progress, rate)}")
        self._out.flush()

    def clear(self) -> None:
        """Leave an empty line."""
        self._out.write("\r\x1b[K")
        self._out.flush()


def describe(progress: Progress | TileProgress, rate: float) -> str:
    """Progress as a line of text.

    Args:
        progress: of a post or a view.
        rate: bytes per second.
    """
    done = f"{progress.bytes / _MEGABYTE:,.1f}"
    bar = ""
    if progress.total:
        share = min(progress.bytes / progress.total, 1.0)
        bar = f"{share:4.0%} [{'#' * int(share * _WIDTH):{_WIDTH}}] "
        done += f"/{progress.total / _MEGABYTE:,.1f}"
    if isinstance(progress, TileProgress):
        count = f"{progress.tiles:,} tiles"
    else:
        count = f"{progress.events:,} events"
    return f"{bar}{done} MB  {rate / _MEGABYTE:,.0f} MB/s  {count}"
