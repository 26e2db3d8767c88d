"""Getting the kernels ready beside the event loop."""

from __future__ import annotations

import threading

import structlog

from core.warmup import warm_up


class WarmUp:
    """Compiles or loads every kernel in a thread."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def start(self) -> None:
        """Start."""
        threading.Thread(target=self._run, name="warm-up", daemon=True).start()

    def _run(self) -> None:
        seconds = warm_up()
        self._done.set()
        structlog.get_logger().info("kernels ready", seconds=round(sum(seconds.values()), 2))

    def problem(self) -> str | None:
        """Why requests should wait, if they should."""
        return None if self._done.is_set() else "kernels are being compiled"
