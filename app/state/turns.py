"""One at a time among the threads of all processes of a machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSES = (0.0005, 0.01)
"""Seconds between two looks at what another process has: at first, and at most."""


class Turns:
    """A lock file. Whoever dies with its lock gives it back at once.

    Args:
        path: made if it is not there.
        wait: seconds to wait for a turn.

    Raises:
        OSError: the file cannot be made or opened.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._wait = wait
        self._threads = threading.Lock()
        self._file: int | None = open_private(path)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Alone until the end of the block.

        Raises:
            TimeoutError: others were not done in time.
            OSError: it is closed.
        """
        end = time.monotonic() + self._wait
        if not self._threads.acquire(timeout=self._wait):
            raise TimeoutError("other threads were not done in time")
        try:
            if self._file is None:
                raise OSError(errno.EBADF, "it is closed")
            self._lock(self._file, end)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def _lock(self, file: int, end: float) -> None:
        pause, longest = _PAUSES
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise TimeoutError("other processes were not done in time") from None
                time.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                return

    def close(self) -> None:
        """Let go of the file when nobody of this process has its turn; may be called twice."""
        with self._threads:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)


def open_private(path: Path) -> int:
    """A file to be written, made for its owner alone if it is not there.

    Raises:
        OSError: it cannot be made or opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
