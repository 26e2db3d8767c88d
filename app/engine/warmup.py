"""Getting the kernels ready: in two processes where they have to be compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import structlog

from app.cores import count_cores
from core._jit import is_build_begun, is_build_published
from core.warmup import tasks, warm_up

_BOUND = """
import sys
from app.decoding.worker.sandbox import die_with
die_with(int(sys.argv[1]))
"""
"""Has a process end with the thread that started it."""
_APART = "from app.engine.warmup import compile_claimed; compile_claimed(int(sys.argv[2]))"


def warm_kernels() -> dict[str, float]:
    """Compile or load every kernel; return the seconds each task took."""
    return warm_up(_claim)


def load_kernels() -> None:
    """Load every kernel, or compile those that no other process has compiled."""
    _tell_ready(warm_up())


def compiling() -> Callable[[], None] | None:
    """Return what compiles every kernel for the process that this one was forked from.

    Returns:
        None if all are compiled.
    """
    return None if is_build_published() else _compile


def _compile() -> None:
    _tell_compiling()
    listed = tasks()
    for number in _claim(len(listed)):
        listed[number].use()


_CPU_SECONDS = 80
"""Of compiling all kernels."""


def forecast() -> str | None:
    """Say how long two processes will compile beside what else the machine does.

    Returns:
        None if all kernels are compiled.
    """
    if is_build_published():
        return None
    share = min(1.0, count_cores() / (os.getloadavg()[0] + 2))
    least = "at most " if is_build_begun() else ""
    seconds = f"{least}about {_CPU_SECONDS / 2 / share:.0f} s"
    return f"compiling kernels: {seconds} on this machine, once"


def _tell_compiling() -> None:
    if (text := forecast()) is not None:
        structlog.get_logger().info(text)


def _tell_ready(seconds: Mapping[str, float]) -> None:
    structlog.get_logger().info("kernels ready", seconds=round(sum(seconds.values()), 2))


def _claim(count: int) -> Iterator[int]:
    """Yield the numbers of tasks, but for those that another process takes from the same pipe.

    It has done its tasks when this ends; what it failed to do is left.
    """
    reads, writes = os.pipe()
    with open(reads, "rb", buffering=0) as queue:  # noqa: PTH123 - a descriptor
        with open(writes, "wb", buffering=0) as numbers:  # noqa: PTH123 - as above
            numbers.write(bytes(range(count)))
        process = _start(reads)
        while number := queue.read(1):
            yield number[0]
    if process is not None:
        process.wait()


def _start(queue: int) -> subprocess.Popen[bytes] | None:
    command = [sys.executable, "-c", _BOUND + _APART, str(os.getpid()), str(queue)]
    try:
        return subprocess.Popen(command, pass_fds=[queue])  # noqa: S603
    except OSError as e:
        structlog.get_logger().warning("kernels are compiled in one process", reason=str(e))
        return None


def compile_claimed(queue: int) -> None:
    """Do the tasks whose numbers come from a pipe that another process reads, too."""
    listed = tasks()
    with open(queue, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            listed[number[0]].use()


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
        is_alone = self.warms is warm_kernels
        if is_alone:
            _tell_compiling()
        seconds = self.warms()
        if self.on_loaded is not None:
            self.on_loaded()
        self._done.set()
        if is_alone:
            _tell_ready(seconds)

    def problem(self) -> str | None:
        """Return why the service is not ready; None if it is."""
        return None if self._done.is_set() else "kernels are being compiled"
