"""The open files of one dataset: unchanged since they were opened, or an error.

A change is detected by comparing device, inode, size and modification time with those at
opening. A change that preserves all four, by setting the time back or through a writable
memory map, goes unnoticed.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from app.errors import DataChangedError, ServiceError
from core.tiles.recording import FileInfo

from .roots import FileMissingError, PathRefusedError

MAX_OPEN = 256
_CLOCK_STEP = 0.02
"""Seconds by which the clock that stamps files may lag: two of the longest kernel ticks."""

OpenFile = Callable[[Path], int]


class ReadFailedError(ServiceError):
    """A disk or file server failed while a dataset was read."""

    code = "read-failed"


@dataclass(slots=True)
class _File:
    path: Path
    device: int
    inode: int
    size: int
    modified: int
    descriptor: int | None
    users: int = 0


class FileSet:
    """Files in a fixed order; a RangeReader. Several threads may read at once.

    Files stay open while there are at most ``max_open``. Beyond that the least recently
    used are closed, and reopened on use if they are unchanged. The set has a count of
    users: the last ``close`` closes the files.

    Args:
        paths: absolute paths of the files, at least one.
        open_file: opens a path for reading, as ``Roots.open`` does.
        growing: whether the last file may grow.
        max_open: maximum number of open files.

    Raises:
        FileMissingError: a file does not exist.
        PathRefusedError: a file may not be read.
        DataChangedError: a file was changed just now.
        BusyError: too many files are open.
        ValueError: there are no paths, or one is relative.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        open_file: OpenFile,
        *,
        growing: bool = False,
        max_open: int = MAX_OPEN,
    ) -> None:
        if not paths or not all(path.is_absolute() for path in paths):
            raise ValueError("a dataset has at least one file, and absolute paths")
        self.growing = growing
        self._open_file = open_file
        self._max_open = max_open
        self._lock = threading.Lock()
        self._owners = 1
        self._opened: OrderedDict[int, None] = OrderedDict()
        self._files: list[_File] = []
        try:
            for index, path in enumerate(paths):
                descriptor = open_file(path)
                status = os.fstat(descriptor)
                identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                self._files.append(_File(path, *identity, descriptor))
                self._opened[index] = None
                self._evict()
            self._settle()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def infos(self) -> tuple[FileInfo, ...]:
        """Name and size of each file."""
        return tuple(FileInfo(file.path.name, file.size) for file in self._files)

    def name(self, file: int) -> str:
        """Return the base name of a file."""
        return self._files[file].path.name

    def size(self, file: int) -> int:
        """Return the size of a file in bytes, as of its opening or the last refresh."""
        return self._files[file].size

    def modified(self, file: int) -> int:
        """Return the modification time of a file at opening, in nanoseconds since 1970."""
        return self._files[file].modified

    def share(self) -> Self:
        """Return the set for another user, who must call ``close`` too.

        Raises:
            ValueError: the set is closed.
        """
        with self._lock:
            if not self._owners:
                raise ValueError("the files are closed")
            self._owners += 1
        return self

    def close(self) -> None:
        """Close the set for one user; the last one closes the files once none is in use."""
        with self._lock:
            self._owners = max(self._owners - 1, 0)
            if not self._owners:
                self._max_open = 0
                self._evict()

    def _settle(self) -> None:
        """Wait until a further change is certain to get a later modification time."""
        newest = max(file.modified for file in self._files) / 1e9
        if not self.growing and 0 <= (age := time.time() - newest) < _CLOCK_STEP:
            time.sleep(_CLOCK_STEP - age)
            self.verify()

    def _evict(self) -> None:
        if len(self._opened) <= self._max_open:
            return
        for index in list(self._opened):
            if len(self._opened) <= self._max_open:
                return
            file = self._files[index]
            if not file.users and file.descriptor is not None:
                os.close(file.descriptor)
                file.descriptor = None
                del self._opened[index]

    @contextmanager
    def use(self, file: int) -> Iterator[int]:
        """Provide the descriptor of a file, open until the end of the block.

        Raises:
            DataChangedError: the file changed since it was opened.
            BusyError: too many files are open.
            ValueError: the set is closed.
        """
        known = self._files[file]
        with self._lock:
            if not self._owners:
                raise ValueError("the files are closed")
            if (descriptor := known.descriptor) is None:
                descriptor = known.descriptor = self._reopen(file)
            known.users += 1
            self._opened[file] = None
            self._opened.move_to_end(file)
            self._evict()
        try:
            if difference := self._difference(file, os.fstat(descriptor)):
                raise self.changed(file, difference)
            yield descriptor
        finally:
            with self._lock:
                known.users -= 1
                self._evict()

    def _reopen(self, file: int) -> int:
        try:
            return self._open_file(self._files[file].path)
        except FileMissingError as e:
            raise self.changed(file, "was removed") from e
        except PathRefusedError as e:
            raise self.changed(file, "was replaced") from e

    def read(self, file: int, start: int, stop: int) -> bytes:
        """Read bytes ``start`` to ``stop`` of a file; fewer at its end.

        Raises:
            DataChangedError: the file changed since it was opened.
            ReadFailedError: the disk failed.
        """
        stop = min(stop, self._files[file].size)
        pieces: list[bytes] = []
        with self.use(file) as descriptor:
            while start < stop:
                try:
                    piece = os.pread(descriptor, min(stop - start, 1 << 30), start)
                except OSError as e:
                    self.failed(file, e)
                if not piece:
                    raise self.changed(file, "shrank")
                pieces.append(piece)
                start += len(piece)
        self.check((file,))
        return b"".join(pieces)

    def verify(self) -> None:
        """Check that all files are unchanged; see ``check``.

        Raises:
            DataChangedError: one shrank, grew, was modified, replaced or removed.
            ReadFailedError: the disk failed.
        """
        self.check(range(len(self._files)))

    def check(self, files: Iterable[int]) -> None:
        """Check that files are unchanged since they were opened or refreshed.

        Bytes read before the call are then known to be of that state. A growing file may
        have grown.

        Raises:
            DataChangedError: one shrank, grew, was modified, replaced or removed.
            ReadFailedError: the disk failed.
        """
        for file in files:
            try:
                status = os.stat(self._files[file].path)  # noqa: PTH116 - a third faster
            except (FileNotFoundError, NotADirectoryError) as e:
                raise self.changed(file, "was removed") from e
            except OSError as e:
                self.failed(file, e)
            if difference := self._difference(file, status):
                raise self.changed(file, difference)

    def _difference(self, file: int, status: os.stat_result) -> str | None:
        known = self._files[file]
        if (status.st_dev, status.st_ino) != (known.device, known.inode):
            return "was replaced"
        if status.st_size < known.size:
            return "shrank"
        if self.growing and file == len(self._files) - 1:
            return None
        modified = "was modified" if status.st_mtime_ns != known.modified else None
        return "grew" if status.st_size > known.size else modified

    def changed(self, file: int, change: str) -> DataChangedError:
        """Build the error for a changed file."""
        detail = f"{self.name(file)!r} {change} since it was opened"
        return DataChangedError(detail, file=self.name(file), change=change)

    def failed(self, file: int, error: OSError) -> NoReturn:
        """Raise the error for a failed read.

        Raises:
            DataChangedError: the file server no longer has the file.
            ReadFailedError: the disk failed.
        """
        if error.errno == errno.ESTALE:
            raise self.changed(file, "was removed") from error
        detail = f"{self.name(file)!r} cannot be read: {error.strerror}"
        raise ReadFailedError(detail, retry_after=30, file=self.name(file)) from error

    def refresh(self) -> bool:
        """Include what a growing set gained; return whether it grew.

        Raises:
            DataChangedError: the last file changed other than by growing.
        """
        last = len(self._files) - 1
        self.check((last,))
        with self.use(last) as descriptor:
            size = os.fstat(descriptor).st_size
        with self._lock:
            known = self._files[last]
            grew = self.growing and size > known.size
            known.size = max(known.size, size)
        return grew
