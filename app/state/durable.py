"""Files that are on the disk when a call returns: what has to be synced, and in which order.

A write, a new name and a removed one are each in memory until they are synced, and a machine
that stops keeps any of them and loses any other. So a file that is to appear whole is synced
before it is given its name, and the directory is synced after. A new directory has a name
too, in the directory above it.

All file operations go through ``os``: the tests record them there, and replay every crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.errors import ServiceError, StorageFullError

from .base import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError

_MAX_VECTORS = 512
"""Buffers per system call; Linux takes up to 1024."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    """Open a file for its owner alone, and close it after the block.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: the disk failed.
    """
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def make_directories(path: Path, mode: int = 0o777) -> None:
    """Create a directory and those above it, durably; no error if they exist.

    Raises:
        OSError: one cannot be created.
    """
    missing: list[Path] = []
    above = path
    while not above.is_dir():
        missing.append(above)
        above = above.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode)
        # Whoever created it may not have come to this yet.
        sync_directory(directory.parent)


def create_once(path: Path, content: bytes) -> None:
    """Create a file for its owner alone, whole, unless it exists.

    Raises:
        OSError: the disk is full, or failed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_at(descriptor, [content], 0)
        os.fsync(descriptor)
        # If another process was first, its file stays.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
    # Whoever created it may not have come to this.
    sync_directory(path.parent)


def write_at(descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], at: int) -> None:
    """Write all of the buffers, one after the other, from an offset on.

    Raises:
        OSError: the disk is full, or failed.
    """
    pending = _views(buffers)
    while pending:
        count = os.pwritev(descriptor, pending[:_MAX_VECTORS], at)
        at += count
        _pass(pending, count)


def read_into(descriptor: int, buffers: Sequence[bytearray | memoryview], at: int) -> bool:
    """Fill the buffers, one after the other, from an offset on; False if the file is shorter.

    Raises:
        OSError: the disk failed.
    """
    pending = _views(buffers)
    while pending:
        count = os.preadv(descriptor, pending[:_MAX_VECTORS], at)
        if not count:
            return False
        at += count
        _pass(pending, count)
    return True


def _views(buffers: Sequence[bytes | bytearray | memoryview]) -> list[memoryview]:
    return [view for buffer in buffers if (view := memoryview(buffer).cast("B")).nbytes]


def _pass(pending: list[memoryview], count: int) -> None:
    """Take so many bytes from the beginning of the buffers."""
    index = 0
    while index < len(pending) and count >= pending[index].nbytes:
        count -= pending[index].nbytes
        index += 1
    del pending[:index]
    if count:
        pending[0] = pending[0][count:]


@contextlib.contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into those of a store."""
    try:
        yield
    except OSError as e:
        raise store_error(e, path) from e


def store_error(error: OSError, path: Path) -> StoreError:
    """Return the error of a store for one of the system."""
    if error.errno in _FULL:
        return StoreFullError("the disk of the data directory is full", path=path)
    if error.errno in _READ_ONLY:
        return StoreReadOnlyError("the data directory is not writable", path=path)
    if error.errno == errno.EIO:
        return StoreDamagedError("the disk of the data directory failed", path=path)
    return StoreError(f"the data directory cannot be read or written: {error.strerror}", path=path)


def temporary_error(error: OSError, subject: str) -> ServiceError:
    """Return the error for what cannot be written to a temporary file, or read back.

    Args:
        error: the error of the system.
        subject: is stored there, in the plural.
    """
    detail = f"{subject} cannot be stored: {error.strerror}"
    if error.errno in _FULL or error.errno == errno.EFBIG:
        return StorageFullError(detail, retry_after=30)
    return StoreError(detail)
