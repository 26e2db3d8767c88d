"""While the service waits for a worker: clocks to watch it by, and bytes that it asks for."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from app.errors import ServiceError
from core.budget import current

from . import wire
from .base import Request

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


_FETCHED_TIMES = 4
"""Times the size of a file that is fetched for a request at most, besides a few megabytes."""


class NotFetchedError(Exception):
    """The bytes that a worker asked for could not be had."""

    def __init__(self, failure: ServiceError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Fetched:
    """Bytes of a file that the worker cannot open, and asks for.

    Args:
        request: what it is doing.
        channel: the connection.

    Attributes:
        failure: why bytes could not be had; the worker is only told that they could not.
    """

    def __init__(self, request: Request, channel: socket.socket) -> None:
        self.failure: ServiceError | None = None
        self._fetch = request.fetch
        self._key = request.subject.key
        self._channel = channel
        self._left = (
            _FETCHED_TIMES * int(request.subject.arguments.get("size", 0)) + wire.KEEP_BYTES
        )

    def send(self, wanted: Any, watch: Watch) -> None:  # noqa: ANN401 - anything
        """Send bytes in memory of their own; none if they cannot be had.

        Raises:
            TimeUpError: the worker goes round in circles.
            TypeError, ValueError: what it wants is nothing that it may want.
        """
        key, start, size = wanted
        if self._fetch is None or key != self._key:
            raise ValueError(key)
        start, size = count(start, 1 << 63), count(size, wire.KEEP_BYTES)
        self._left -= size
        if self._left < 0:
            raise TimeUpError("asked for the same bytes again and again")
        try:
            with watch.resting():
                octets = self._fetch(start, start + size)
        except ServiceError as e:
            self.failure = e
            octets = b""
        descriptor = os.memfd_create("thalweg-fetched", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, octets)
            wire.send(self._channel, {"size": len(octets)}, [descriptor], watch)
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Check that the worker had all bytes that it asked for.

        Raises:
            NotFetchedError: it had not.
        """
        if self.failure is not None:
            raise NotFetchedError(self.failure)


def count(value: Any, limit: int) -> int:  # noqa: ANN401 - anything
    """Return a number of a worker.

    Raises:
        MemoryError: it is above the limit.
        TypeError: it is no number.
    """
    if type(value) is not int or value < 0:
        raise TypeError("not a number")
    if value > limit:
        raise MemoryError
    return value
