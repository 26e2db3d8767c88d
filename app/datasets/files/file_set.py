"""The open files of one dataset, which stay what they were or say that they do not.

Whether a file changed is told by its device, inode, size and time of modification, as
they were when it was opened. A change that leaves all four as they were, by setting the
time back or through a writable memory map, cannot be seen.
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
_CLOCK_STEP = 0.02  # by how much the clock that stamps files may lag: two of the longest ticks

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
    """Files in their order; a RangeReader. Any thread may read, also at once.

    Each is opened once, and stays open unless there are more than ``max_open``: then
    those that were not used for longest are closed, and opened again if they are what
    they were. The set closes its files when everyone who shares it has closed it.

    Args:
        paths: the files, at least one, absolute.
        open_file: gives descriptors to read with, as ``Roots.open`` does.
        growing: whether the last of them may grow.
        max_open: how many are kept open.

    Raises:
        FileMissingError: a file is not there.
        PathRefusedError: a file is refused.
        DataChangedError: a file was changed just now.
        BusyError: too many files are open.
        ValueError: there are none, or a path is relative.
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
        """Names and sizes."""
        return tuple(FileInfo(file.path.name, file.size) for file in self._files)

    def name(self, file: int) -> str:
        """Base name of a file."""
        return self._files[file].path.name

    def size(self, file: int) -> int:
        """Bytes of a file."""
        return self._files[file].size

    def modified(self, file: int) -> int:
        """Nanoseconds since 1970 at which a file was modified, when it was opened."""
        return self._files[file].modified

    def share(self) -> Self:
        """The set itself, for one more who will close it.

        Raises:
            ValueError: it is closed.
        """
        with self._lock:
            if not self._owners:
                raise ValueError("the files are closed")
            self._owners += 1
        return self

    def close(self) -> None:
        """Give it up; the last to do so closes the files, those in use when they are not."""
        with self._lock:
            self._owners = max(self._owners - 1, 0)
            if not self._owners:
                self._max_open = 0
                self._evict()

    def _settle(self) -> None:
        """Wait until a later change cannot have the time of the last one."""
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
        """A descriptor of a file, which stays open until the end of the block.

        Raises:
            DataChangedError: it changed.
            BusyError: too many files are open.
            ValueError: the set is closed.
        """
        known = self._files[file]
        with self._lock:
            if not self._owners:
                raise ValueError("the files are closed")
            if (descriptor := known.descriptor) is None:
                descriptor = known.descriptor = self._open_again(file)
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

    def _open_again(self, file: int) -> int:
        try:
            return self._open_file(self._files[file].path)
        except FileMissingError as e:
            raise self.changed(file, "was removed") from e
        except PathRefusedError as e:
            raise self.changed(file, "was replaced") from e

    def read(self, file: int, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of a file; fewer at the end it had when opened.

        Raises:
            DataChangedError: it changed.
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
        """Make sure that all files are what they were, as ``check`` does for some.

        Raises:
            DataChangedError: one shrank, grew, was modified, replaced or removed.
            ReadFailedError: the disk failed.
        """
        self.check(range(len(self._files)))

    def check(self, files: Iterable[int]) -> None:
        """Make sure that some files are what they were when opened, or when refreshed.

        What was read before is then of that content. A growing file may have grown.

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
        touched = "was modified" if status.st_mtime_ns != known.modified else None
        return "grew" if status.st_size > known.size else touched

    def changed(self, file: int, how: str) -> DataChangedError:
        """The error of a file that is not what it was."""
        detail = f"{self.name(file)!r} {how} since it was opened"
        return DataChangedError(detail, file=self.name(file), change=how)

    def failed(self, file: int, error: OSError) -> NoReturn:
        """Say why a file cannot be read.

        Raises:
            DataChangedError: the file server no longer has it.
            ReadFailedError: the disk failed.
        """
        if error.errno == errno.ESTALE:
            raise self.changed(file, "was removed") from error
        detail = f"{self.name(file)!r} cannot be read: {error.strerror}"
        raise ReadFailedError(detail, retry_after=30, file=self.name(file)) from error

    def refresh(self) -> bool:
        """Take note of what a growing set has grown by; returns whether it has.

        Raises:
            DataChangedError: the last file changed in another way.
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
