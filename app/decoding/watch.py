"""The clocks that a worker is watched by while the service waits for it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from core.budget import current

_STEP = 0.25
"""Maximum seconds between two looks at the clocks."""
_CPU_CLOCK = 2
"""Number of the clock in the id of a process's CPU clock, see clock_getcpuclockid(3)."""


class TimeUpError(Exception):
    """A worker used up its time."""


class Watch:
    """Gives up on a worker when its wall or CPU time is used up.

    Args:
        channel: the connection, whose timeout it sets.
        pid: the worker.
        seconds: wall time allowed.
        cpu_seconds: CPU time allowed.
    """

    def __init__(
        self, channel: socket.socket, pid: int, seconds: float, cpu_seconds: float
    ) -> None:
        self._channel = channel
        self._clock = (~pid << 3) | _CPU_CLOCK
        self._seconds, self._cpu_seconds = seconds, cpu_seconds
        self._end = time.monotonic() + seconds
        self._last_cpu = self._cpu()
        self._cpu_end = self._last_cpu + cpu_seconds
        self._budget = current()

    @property
    def waited(self) -> float:
        """Seconds since it began, without those in which the worker waited."""
        return self._seconds - self._end + time.monotonic()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Do not count the time of a block, in which the worker waits."""
        before = time.monotonic()
        yield
        self._end += time.monotonic() - before

    def _cpu(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # it is gone, which the socket will tell
            return 0.0

    def __call__(self) -> None:
        """Charge the worker's CPU time to the request, and set the timeout of the next wait.

        Raises:
            TimeUpError: the time is used up.
            WorkStoppedError: the budget of the request is exceeded, or it was cancelled.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeUpError(f"took more than {self._seconds:.3g} seconds")
        cpu = self._cpu()
        used, self._last_cpu = max(cpu - self._last_cpu, 0.0), max(cpu, self._last_cpu)
        self._budget.spend("decode", 0, used)
        cpu_left = self._cpu_end - cpu
        if cpu_left <= 0:
            raise TimeUpError(f"took more than {self._cpu_seconds:.3g} seconds of CPU time")
        timeout = max(min(left, cpu_left, _STEP), 0.001)
        if timeout != self._channel.gettimeout():  # to set it takes a system call
            self._channel.settimeout(timeout)
