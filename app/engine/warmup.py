"""Compilation of the kernels in the background."""

from __future__ import annotations

import threading

import structlog

from core.warmup import warm_up


class WarmUp:
    """Compiles every kernel, or loads it from the cache, in a thread."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="warm-up", daemon=True).start()

    def _run(self) -> None:
        seconds = warm_up()
        self._done.set()
        structlog.get_logger().info("kernels ready", seconds=round(sum(seconds.values()), 2))

    def problem(self) -> str | None:
        """Return why the service is not ready; None if it is."""
        return None if self._done.is_set() else "kernels are being compiled"
