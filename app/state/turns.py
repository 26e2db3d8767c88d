"""A lock among the threads of all processes of a machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from .base import StoreBusyError

Turn: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Returns a context in which no other holder of the same lock runs."""

_BUSY = "others held the stored data for too long"
_PAUSES = (0.0005, 0.01)
"""Seconds between two attempts to lock the file: the first pause, and the longest."""


class Turns:
    """A lock file; the kernel releases the lock of a process that dies.

    ``flock`` excludes other processes, but not other threads of this one, which share the
    descriptor: they queue at a lock in memory first.

    Args:
        path: path of the file, created if it does not exist.
        wait: maximum seconds to wait for a turn.
        busy: what is said to those whose turn has not come by then.

    Raises:
        OSError: the file cannot be created or opened.
    """

    def __init__(self, path: Path, wait: float, busy: str = _BUSY) -> None:
        self._wait = wait
        self._busy = busy
        self._threads = threading.Lock()
        self._file: int | None = open_private(path)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock until the end of the block.

        Raises:
            StoreBusyError: the lock did not become free in time.
            OSError: the file is closed.
        """
        end = time.monotonic() + self._wait
        if not self._threads.acquire(timeout=self._wait):
            raise StoreBusyError(self._busy, retry_after=1)
        try:
            if self._file is None:
                raise OSError(errno.EBADF, "the lock file is closed")
            take_lock(self._file, fcntl.LOCK_EX, end, self._busy)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the file after the turn of this process, if it has one; may be called twice."""
        with self._threads:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)


def take_lock(file: int, mode: int, end: float, busy: str = _BUSY) -> None:
    """Lock a file as ``flock`` does, and wait for that until a monotonic time.

    Raises:
        StoreBusyError: the lock did not become free in time.
        OSError: the file cannot be locked.
    """
    pause, longest = _PAUSES
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise StoreBusyError(busy, retry_after=1) from None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        else:
            return


def open_private(path: Path) -> int:
    """Open a file for reading and writing; create it for its owner alone if it is missing.

    Raises:
        OSError: the file cannot be created or opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
