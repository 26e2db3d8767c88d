"""Where tables are written: what is not settled can be undone, a file is whole or not there."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xxhash import xxh3_64

from ..errors import StateError
from ..losses.window import BLOCK

_SPOOL = 64 << 20
"""Bytes of an answer that wait in memory for its end; more wait on disk."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an output was written: enough to go on, and to notice that it was changed.

    Attributes:
        size: settled bytes.
        digest: xxh3-64 of them, in hexadecimal digits.
    """

    size: int
    digest: str


class Output(Protocol):
    """Somewhere a table can be written to."""

    def write(self, data: memoryview | bytes) -> None:
        """Take bytes that may have to be undone."""

    def settle(self) -> None:
        """What was written is right."""

    def undo(self) -> None:
        """Forget what was written since it was last settled."""

    def mark(self) -> Mark | None:
        """How far it is settled; None if another process cannot go on with it."""

    def finish(self) -> None:
        """Everything was written."""

    def close(self, *, keep: bool) -> None:
        """Stop; keep what is settled for another process, or leave nothing."""


class FileOutput:
    """A file, written beside its place as ``<name>.partial`` and moved there at the end.

    Args:
        path: its place.
        mark: how far it was written before; None to begin.

    Raises:
        StateError: what is there is not what the mark says, or is being written.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._fd = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock_partial(self._fd, self._partial)
            self._digest = xxh3_64()
            self._size = 0
            if mark is not None:
                self._resume(mark)
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except (StateError, OSError):
            os.close(self._fd)
            raise
        self._settled_digest = self._digest.copy()
        self._settled_size = self._size

    def _resume(self, mark: Mark) -> None:
        buffer = bytearray(BLOCK)
        while self._size < mark.size:
            view = memoryview(buffer)[: mark.size - self._size]
            count = os.preadv(self._fd, [view], self._size)
            if not count:
                break
            self._digest.update(view[:count])
            self._size += count
        if (self._size, self._digest.hexdigest()) != (mark.size, mark.digest):
            raise StateError(f"{self._partial} is not what it was when its state was written")

    def write(self, data: memoryview | bytes) -> None:
        """Write bytes that may have to be undone."""
        write_all(self._fd, data)
        self._digest.update(data)
        self._size += len(data)

    def settle(self) -> None:
        """What was written is right."""
        self._settled_digest = self._digest.copy()
        self._settled_size = self._size

    def undo(self) -> None:
        """Cut off what is not settled."""
        if self._size != self._settled_size:
            os.ftruncate(self._fd, self._settled_size)
            os.lseek(self._fd, self._settled_size, os.SEEK_SET)
            self._digest = self._settled_digest.copy()
            self._size = self._settled_size

    def mark(self) -> Mark:
        """How far it is settled."""
        return Mark(self._settled_size, self._settled_digest.hexdigest())

    def finish(self) -> None:
        """Move the file to its place."""
        self._partial.replace(self._path)
        os.close(self._fd)

    def close(self, *, keep: bool) -> None:
        """Keep the file beside its place, or remove it."""
        if not keep:
            self._partial.unlink(missing_ok=True)
        os.close(self._fd)


class StreamOutput:
    """A pipe, terminal or device, which takes nothing back: settled bytes only are sent.

    Args:
        fd: open for writing.
        owned: whether to close it.
    """

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - kept

    def write(self, data: memoryview | bytes) -> None:
        """Let bytes wait."""
        self._spool.write(data)

    def settle(self) -> None:
        """Send what waits.

        Raises:
            BrokenPipeError: the reader has gone.
        """
        self._spool.seek(0)
        while data := self._spool.read(BLOCK):
            write_all(self._fd, data)
        self.undo()

    def undo(self) -> None:
        """Forget what waits."""
        self._spool.seek(0)
        self._spool.truncate()

    def mark(self) -> None:
        """Another process cannot go on with it."""
        return

    def finish(self) -> None:
        """Everything was sent."""
        self.close(keep=True)

    def close(self, *, keep: bool) -> None:  # noqa: ARG002 - part of Output
        """Stop; what was sent stays sent."""
        self._spool.close()
        if self._owned:
            os.close(self._fd)


def open_output(path: Path | int, mark: Mark | None = None) -> Output:
    """A file to be made, or what is there already if that is a pipe or device.

    Args:
        path: a path, or a file descriptor.
        mark: how far the file was written before.

    Raises:
        OSError: it cannot be written.
        StateError: what is there is not what the mark says.
    """
    if isinstance(path, int):
        return StreamOutput(path, owned=False)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        return StreamOutput(os.open(path, os.O_WRONLY), owned=True)
    return FileOutput(path, mark)


def lock_partial(fd: int, path: Path) -> None:
    """Keep other processes from writing a file until it is closed.

    Raises:
        StateError: another one writes it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise StateError(f"{path} is being written by another process") from e


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of the bytes, also to a descriptor that does not block.

    Raises:
        BrokenPipeError: the reader has gone.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
