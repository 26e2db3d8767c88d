"""Locks of run directories: one run at a time writes an output.

A lock is a file that a process locks, so it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from core.errors import InputError

from .files import failing_as


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name in a folder.

    Args:
        folder: it exists.
        name: of what is written, such as ``gul``.

    Raises:
        InputError: another process holds the lock, or its file cannot be made.
    """
    path = folder / f".thalweg-{name}.lock"
    with failing_as("cannot be locked", folder):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"another run writes {name} in this directory (process {holder})",
                hint="Wait for it, or give each run a directory of its own",
                source=str(folder),
            ) from e
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)
