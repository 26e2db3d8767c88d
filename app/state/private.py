"""Directories for what several processes share as long as their service runs.

Each is for its user alone, below TMPDIR, and locked as long as the process that made it, or one
forked from that, is there. The kernel releases the lock with them, however they end. So a
directory that can be locked was left by a service that was killed, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .base import StorageError

_PREFIX = "thalweg-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def private_directory(purpose: str) -> Iterator[Path]:
    """Make a directory, which is removed at the end of the block.

    Args:
        purpose: a word; what killed services have left for it is removed.

    Raises:
        StorageError: there is no place, or no room, for it.
    """
    try:
        path, lock = _make(f"{_PREFIX}{purpose}-")
    except OSError as e:
        raise StorageError(f"TMPDIR has no room for a directory of the service: {e}") from e
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _make(prefix: str) -> tuple[Path, int]:
    """Return a new directory, and a descriptor that holds its lock."""
    _remove_abandoned(prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        # Another service may take it for an abandoned one before it is locked.
        if (lock := _locked(path)) is not None:
            return path, lock


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the lock of our directory; None if it is not to be had."""
    try:
        file = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_uid == os.geteuid() and os.fstat(file).st_nlink:
            return file
    except OSError:
        pass
    os.close(file)
    return None
