"""How long the event loop and the pool of threads keep a small piece of work waiting.

Counting what waits says little: a queue of a thousand short calls is no problem, one call
behind two long ones is. So a piece of work that does nothing is sent through both, again and
again, and what it has to wait is what a request would have to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

_INTERVAL = 0.1
"""Seconds between two pieces of work."""
_KEPT = 1.0
"""Seconds for which a wait that has ended is still shown."""

Start = Callable[[Callable[[], object]], "asyncio.Future[Any]"]
"""Starts a call in the pool of threads."""


class _Wait:
    """The longest recent wait of one piece of work after another."""

    def __init__(self) -> None:
        self._sent: float | None = None
        self._last = (0.0, 0.0)

    def begin(self) -> None:
        self._sent = time.monotonic()

    def end(self) -> None:
        now = time.monotonic()
        if self._sent is None:
            return
        waited, (seconds, at) = now - self._sent, self._last
        if waited >= seconds or now - at >= _KEPT:
            self._last = waited, now
        self._sent = None

    @property
    def is_waiting(self) -> bool:
        return self._sent is not None

    def recent(self) -> float:
        """Seconds of the present wait, or of a recent one if that was longer."""
        now, sent = time.monotonic(), self._sent
        seconds, at = self._last
        return max(0.0 if sent is None else now - sent, seconds if now - at < _KEPT else 0.0)


class LoopLagProbe:
    """Measures waits as long as its task runs.

    Args:
        start: starts a call in the pool of threads.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._loop = _Wait()
        self._threads = _Wait()
        self._task: asyncio.Task[None] | None = None

    @property
    def loop_seconds(self) -> float:
        """How long the event loop kept a callback waiting; may be read in any thread."""
        return max(self._loop.recent() - _INTERVAL, 0.0)

    @property
    def thread_seconds(self) -> float:
        """How long the pool kept a call waiting; likewise."""
        return self._threads.recent()

    def start(self) -> None:
        """Start in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="lag probe")

    async def stop(self) -> None:
        """Stop measuring."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            if not self._threads.is_waiting:
                self._threads.begin()
                self._start(time.monotonic).add_done_callback(lambda _: self._threads.end())
            self._loop.begin()
            await asyncio.sleep(_INTERVAL)
            self._loop.end()
