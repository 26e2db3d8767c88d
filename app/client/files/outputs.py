"""Output files that are complete or absent, and survive a kill.

A reader of ``out.csv`` must never see half of it, and running a killed command again must write
each row exactly once. Three rules ensure both::

    out.csv.partial          ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░
                             settled: size and digest    not settled
                             are in the state file       (arrives again)

1. Bytes go to a file *beside* the target, locked while it is written. It replaces the
   target in one step, ``rename``, once everything is there.
2. Bytes are written first and *settled* later, when the position that follows them is known.
   After a cut connection ``undo`` truncates to the last settled byte; the rest arrives again.
3. The state file, itself replaced whole, says how many bytes are settled and their digest,
   and the position that follows them. It may be older than the partial file, never newer:
   the next process truncates to the size it names, checks the digest, and resumes from the
   position. A partial file that somebody changed is refused, not continued.

Writing the state after every row would cost more than the work itself. It is written a few
times per second instead: after a kill, what came since is truncated and fetched again. For a
power failure the bytes are synced before the state that names them, and a file before it
gets its final name.

A pipe or terminal takes nothing back, so ``StreamOutput`` holds all bytes until the end or, where
its reader wants rows at once, until they are settled.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from xxhash import xxh3_64

from ..errors import OtherFileError, StateError
from ..transport.requests import BLOCK

_SPOOL = 64 << 20
"""Bytes of an answer that wait in memory for its end; more wait on disk."""
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})
"""Some network file systems do not sync directories, and write names through at once."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an output was written: enough to continue it and to notice a change.

    Attributes:
        size: settled bytes.
        xxh3: their digest (xxh3-64), in hexadecimal digits.
    """

    size: int
    xxh3: str


class PartialFile:
    """A file, written as ``<name>.partial`` and renamed at the end.

    Args:
        path: of the finished file.

    Raises:
        StateError: another process writes it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._fd = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666)
        self._named = False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._prepare()
        except BlockingIOError as e:
            os.close(self._fd)
            raise OtherFileError(f"{self._partial} is being written by another process") from e
        except (StateError, OSError):
            os.close(self._fd)
            raise

    def _prepare(self) -> None:
        """Make the file ready to be written to."""

    def sync(self) -> None:
        """Make what was written durable, and the name of the partial file."""
        os.fsync(self._fd)
        if not self._named:
            sync_directory(self._partial.parent)
            self._named = True

    def finish(self) -> None:
        """Give the file its final name, durably."""
        rename_durably(self._fd, self._partial, self._path)
        os.close(self._fd)

    def close(self, *, keep: bool) -> None:
        """Keep the partial file, or remove it."""
        if not keep:
            self._partial.unlink(missing_ok=True)
        os.close(self._fd)


class FileOutput(PartialFile):
    """A file that is written from its beginning to its end.

    Args:
        path: of the finished file.
        mark: how far it was written before; None to begin.

    Raises:
        StateError: the partial file does not match the mark, or is being written.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self._mark = mark
        self._digest = xxh3_64()
        self._size = 0
        super().__init__(path)
        self.settle()

    def _prepare(self) -> None:
        if self._mark is not None:
            self._resume(self._mark)
        os.ftruncate(self._fd, self._size)
        os.lseek(self._fd, self._size, os.SEEK_SET)

    def _resume(self, mark: Mark) -> None:
        buffer = bytearray(BLOCK)
        while self._size < mark.size:
            view = memoryview(buffer)[: mark.size - self._size]
            count = os.preadv(self._fd, [view], self._size)
            if not count:
                break
            self._digest.update(view[:count])
            self._size += count
        if (self._size, self._digest.hexdigest()) != (mark.size, mark.xxh3):
            raise StateError(f"{self._partial} has changed since its state was written")

    def write(self, data: memoryview | bytes) -> None:
        """Write bytes that are not settled yet."""
        try:
            write_all(self._fd, data)
        except OSError as e:
            e.filename = str(self._path)
            raise
        self._digest.update(data)
        self._size += len(data)

    def settle(self) -> None:
        """Confirm what was written."""
        self._settled_digest = self._digest.copy()
        self._settled_size = self._size

    def undo(self) -> None:
        """Truncate to what is settled."""
        if self._size != self._settled_size:
            os.ftruncate(self._fd, self._settled_size)
            os.lseek(self._fd, self._settled_size, os.SEEK_SET)
            self._digest = self._settled_digest.copy()
            self._size = self._settled_size

    def mark(self) -> Mark:
        """How far it is settled."""
        return Mark(self._settled_size, self._settled_digest.hexdigest())


class StreamOutput:
    """A pipe, terminal or device, or a file as standard output.

    Args:
        fd: open for writing.
        owned: whether to close it.
        live: whether it gets bytes as soon as they are settled, rather than all of them or none.
    """

    def __init__(self, fd: int, *, owned: bool, live: bool = False) -> None:
        self._fd = fd
        self._owned = owned
        self._live = live
        self._settled = 0
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - closed in close

    def write(self, data: memoryview | bytes) -> None:
        """Hold bytes that are not settled yet."""
        self._spool.write(data)

    def settle(self) -> None:
        """Confirm what was written; send it if the output is live.

        Raises:
            BrokenPipeError: the reader has closed the pipe.
        """
        self._settled = self._spool.tell()
        if self._live:
            self._send()

    def _send(self) -> None:
        self._spool.seek(0)
        while data := self._spool.read(BLOCK):
            write_all(self._fd, data)
        self._settled = 0
        self.undo()

    def undo(self) -> None:
        """Forget the bytes that are not settled."""
        self._spool.seek(self._settled)
        self._spool.truncate()

    def mark(self) -> None:
        """Another process cannot continue it."""
        return

    def sync(self) -> None:
        """Nothing of it is on a disk."""

    def finish(self) -> None:
        """Send what is held, and end the output.

        Raises:
            BrokenPipeError: the reader has closed the pipe.
            OSError: the disk is full, of a file as standard output; it is as it was before.
        """
        status = os.fstat(self._fd)
        try:
            self._send()
        except OSError:
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(self._fd, status.st_size)
            raise
        self.close(keep=True)

    def close(self, *, keep: bool) -> None:  # noqa: ARG002 - as of FileOutput
        """Stop; what was sent stays sent."""
        self._spool.close()
        if self._owned:
            os.close(self._fd)


Output: TypeAlias = FileOutput | StreamOutput
"""Where a table is written to."""


def check_target(path: Path, *endings: str) -> None:
    """Check before anything is asked for that a file can be written there.

    Raises:
        ValueError: it has another ending.
        OSError: it is a directory, or in none.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: name a file in it")
    if path.suffix not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent}")


def open_output(path: Path | int, mark: Mark | None = None, *, live: bool = False) -> Output:
    """Open an output: a new file, or an existing pipe or device.

    Args:
        path: a path, or a file descriptor.
        mark: how far the file was written before.
        live: whether a pipe or device gets bytes as soon as they are settled.

    Raises:
        OSError: it cannot be written.
        StateError: the partial file does not match the mark.
    """
    if isinstance(path, int):
        return StreamOutput(path, owned=False, live=live)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        return StreamOutput(os.open(path, os.O_WRONLY), owned=True, live=live)
    return FileOutput(path, mark)


def write_file(path: Path, data: bytes) -> None:
    """Write a small output file whole.

    Raises:
        OSError: it cannot be written.
    """
    output = FileOutput(path)
    try:
        output.write(data)
        output.finish()
    except OSError:
        output.close(keep=False)
        raise


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of the bytes, even to a descriptor that does not block.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def rename_durably(fd: int, source: Path, target: Path) -> None:
    """Give an open file another name, with its content; a file of that name is replaced.

    Raises:
        OSError: the disk is full, or failed.
    """
    os.fsync(fd)
    source.replace(target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: the disk failed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(fd)
