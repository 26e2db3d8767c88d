"""Waiting for a run to change: at once within a process, by looking again across processes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict

INTERVAL = 0.2
"""Seconds after which to look again: what another process changes is announced to nobody."""


class Watch:
    """Tells who waits that a run, or a stream of it, may have changed.

    Args:
        interval: maximum seconds to wait for an announcement.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._lock = threading.Lock()

    def announce(self, run: str) -> None:
        """Wake all who wait for a run; from any thread."""
        with self._lock:
            waiting = self._waiting.pop(run, set())
        for future in waiting:
            # The loop of a process that ends is closed.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_wake, future)

    async def changed(self, run: str, seconds: float | None = None) -> None:
        """Wait until a run may have changed; the caller reads it, and compares.

        Args:
            run: its id.
            seconds: maximum wait; default: the interval of the watch.
        """
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting[run].add(future)
        try:
            await asyncio.wait({future}, timeout=self._interval if seconds is None else seconds)
        finally:
            with self._lock:
                self._waiting[run].discard(future)
                if not self._waiting[run]:
                    del self._waiting[run]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
