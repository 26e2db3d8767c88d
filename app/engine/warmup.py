"""Getting the kernels ready: in two processes where they have to be compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import structlog

from core._jit import absorb, is_build_published
from core.warmup import Wait, halves, tasks, warm_up

_BOUND = """
import sys
from app.decoding.worker.sandbox import die_with
die_with(int(sys.argv.pop(1)))
"""
"""Has a process end with the thread that started it."""
_APART = "from core.warmup import compile_apart; print(compile_apart(sys.argv[1:]))"


def warm_kernels() -> dict[str, float]:
    """Compile or load every kernel; return the seconds each task took."""
    return warm_up(_start)


def load_kernels() -> None:
    """Load every kernel, or compile those that no other process has compiled for this one."""
    warm_up()


def compiling() -> Callable[[], None] | None:
    """Return what compiles every kernel for the process that this one was forked from.

    Returns:
        None if all are compiled.
    """
    return None if is_build_published() else _compile


def _compile() -> None:
    mine, theirs = halves(tasks())
    wait = _start([task.name for task in theirs])
    for task in mine:
        task.use()
    build = wait()
    if build is not None:
        absorb(build)


def _start(names: Sequence[str]) -> Wait:
    """Compile the kernels of these tasks in another process; if it fails, this one does it."""
    command = [sys.executable, "-c", _BOUND + _APART, str(os.getpid()), *names]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    except OSError as e:
        structlog.get_logger().warning("kernels are compiled in one process", reason=str(e))
        return lambda: None

    def wait() -> str | None:
        build = process.communicate()[0].strip()
        return build if process.returncode == 0 and build not in {"", "None"} else None

    return wait


class WarmUp:
    """Compiles or loads every kernel in a thread, beside the event loop.

    Attributes:
        warms: loads or compiles the kernels; returns the seconds that each took.
        on_loaded: called in the thread once all kernels are loaded, before the service is ready.
    """

    def __init__(self) -> None:
        self.on_loaded: Callable[[], object] | None = None
        self.warms: Callable[[], Mapping[str, float]] = warm_kernels
        self._done = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="warm-up", daemon=True).start()

    def _run(self) -> None:
        seconds = self.warms()
        if self.on_loaded is not None:
            self.on_loaded()
        self._done.set()
        structlog.get_logger().info("kernels ready", seconds=round(sum(seconds.values()), 2))

    def problem(self) -> str | None:
        """Return why the service is not ready; None if it is."""
        return None if self._done.is_set() else "kernels are being compiled"
