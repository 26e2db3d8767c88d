"""The open files of one dataset: unchanged since they were opened, or an error.

Whatever is read of a file lies between two looks at it: ``use`` looks before, ``check`` after.
What a look compares, and which changes it cannot see, is told in :mod:`.identity`.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from app.errors import DataChangedError, ServiceError
from core.budget import check_room, current
from core.tiles.recording import FileInfo

from .holding import Hold
from .identity import CLOCK_STEP, Ends, Identity, Lent, State, is_young, read_ends, spans, state_of
from .roots import FileMissingError, PathRefusedError

MAX_OPEN = 256
_PIECE = 64 << 20
"""Bytes read between two checks of the budget: some 20 ms, and pieces are joined by a copy."""

OpenFile = Callable[[Path], int]


class ReadFailedError(ServiceError, code="read-failed"):
    """A disk or file server failed while a dataset was read."""


def changed(name: str, change: str) -> DataChangedError:
    """Return the error that a file, known by a name, is not as it was opened."""
    return DataChangedError(f"{name!r} {change} since it was opened", file=name, change=change)


@contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Undo what came before the block if the block fails."""
    try:
        yield
    except BaseException:
        undo()
        raise


@dataclass(slots=True)
class OneFile:
    """What a set knows of one of its files."""

    path: Path
    text: str
    """The path once more: to take the text of a path takes a call, at every look."""
    known: Identity
    descriptor: int | None
    ends: Ends | None = None
    """The contents at the first use; None before, when nothing can be outdated yet."""
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

    Attributes:
        beside: other files that answers depend on, such as a dark image, by what they are; they
            are verified, fingerprinted and closed with these.

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
        self._open_file = open_file
        self._begin(growing=growing, max_open=max_open)
        with on_error(self.close):
            for index, path in enumerate(paths):
                descriptor = open_file(path)
                known = Identity.of(os.fstat(descriptor))
                self._files.append(OneFile(path, str(path), known, descriptor))
                self._opened[index] = None
                self._evict()
            self._settle()

    def _begin(self, files: Iterable[OneFile] = (), *, growing: bool, max_open: int) -> None:
        self.growing = growing
        self.beside: dict[str, FileSet] = {}
        self._max_open = max_open
        self._lock = threading.Lock()
        self._owners = 1
        self._opened: OrderedDict[int, None] = OrderedDict()
        self._files = list(files)

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def infos(self) -> tuple[FileInfo, ...]:
        """Name and size of each file."""
        return tuple(FileInfo(self.name(k), self.size(k)) for k in range(len(self)))

    def name(self, file: int) -> str:
        """Return the base name of a file."""
        return self._files[file].path.name

    def are_below(self, directories: Sequence[Path]) -> bool:
        """Whether each file, and each beside them, is below one of some directories."""
        own = all(any(f.path.is_relative_to(d) for d in directories) for f in self._files)
        return own and all(files.are_below(directories) for files in self.beside.values())

    def size(self, file: int) -> int:
        """Return the size of a file in bytes, as of its opening or the last refresh."""
        return self._files[file].known.size

    def stamp(self, file: int) -> bytes:
        """Return what tells a version of a file from others: its modification time at opening."""
        time = self._files[file].known.modified
        # File systems have some before 1678 and after 2261.
        return time.to_bytes(8 if -(1 << 63) <= time < 1 << 63 else 16, "little", signed=True)

    def ends(self, file: int, stop: int) -> bytes:
        """Read what stands for the contents of a file up to a byte: its ends; see ``read``."""
        return b"".join(self.read(file, low, high) for low, high in spans(stop))

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
            if self._owners:
                return
            self._max_open = 0
            self._evict()
        for other in self.beside.values():
            other.close()

    def _settle(self) -> None:
        """Wait until a further change is certain to get later times."""
        if self.growing:
            return
        # The change time is never set back, and a modification time after it was set ahead.
        newest = max(file.known.changed for file in self._files)
        if is_young(newest):
            time.sleep(max(CLOCK_STEP - (time.time() - newest / 1e9), 0))
            self.verify()

    def _evict(self) -> None:
        for index in list(self._opened):
            if len(self._opened) <= self._max_open:
                return
            file = self._files[index]
            if not file.users and file.descriptor is not None:
                os.close(file.descriptor)
                file.descriptor = None
                del self._opened[index]

    def use(self, file: int) -> AbstractContextManager[int]:
        """Provide the descriptor of a file, open until the end of the block.

        Raises:
            DataChangedError: the file changed since it was opened.
            ReadFailedError: the disk failed.
            BusyError: too many files are open.
            ValueError: the set is closed.
        """
        return Hold(self, file, look=True)

    def look(self, file: int, descriptor: int) -> os.stat_result:
        """Check that an open file is unchanged, as ``use`` does; return its status before.

        Raises:
            DataChangedError: the file changed since it was opened.
            ReadFailedError: the disk failed.
        """
        status = os.fstat(descriptor)
        self._compare(file, status)
        entry = self._files[file]
        if status.st_ctime_ns != entry.known.changed or entry.ends is None:
            self._confirm(file, descriptor, status.st_ctime_ns)
        return status

    @contextmanager
    def lent(self, file: int) -> Iterator[Lent]:
        """Provide a file to a decoder until the end of the block; see ``use``."""
        with self.hold(file) as descriptor:
            state = state_of(self.look(file, descriptor), self.size(file))
            yield Lent(state, (descriptor,))

    @contextmanager
    def staged(self, files: Sequence[int]) -> Iterator[list[int]]:
        """Provide descriptors from which whole files can be read until the end of the block."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.use(file)) for file in files]

    def hold(self, file: int) -> AbstractContextManager[int]:
        """Provide the descriptor of a file without looking at its state; see ``use``."""
        return Hold(self, file, look=False)

    def acquire(self, file: int) -> int:
        """Return the descriptor of a file, which stays open until ``release``; see ``hold``."""
        entry = self._files[file]
        with self._lock:
            if not self._owners:
                raise ValueError("the files are closed")
            if (descriptor := entry.descriptor) is None:
                descriptor = entry.descriptor = self._reopen(file)
                self._opened[file] = None
            entry.users += 1
            self._opened.move_to_end(file)
            if len(self._opened) > self._max_open:
                self._evict()
            return descriptor

    def release(self, file: int) -> None:
        """Give back what ``acquire`` returned."""
        with self._lock:
            self._files[file].users -= 1
            if len(self._opened) > self._max_open:
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
        stop = min(stop, self._files[file].known.size)
        size = max(stop - start, 0)
        check_room("read", size if size <= _PIECE else 2 * size)
        pieces: list[bytes] = []
        with self.use(file) as descriptor:
            while start < stop:
                current().check("read")
                try:
                    piece = os.pread(descriptor, min(stop - start, _PIECE), start)
                except OSError as e:
                    self.failed(file, e)
                if not piece:
                    raise self.changed(file, "shrank")
                pieces.append(piece)
                start += len(piece)
        self.check((file,))
        return b"".join(pieces)

    def verify(self) -> None:
        """Check that all files are unchanged, those beside them too; see ``check``.

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
            self.check_one(file)

    def check_one(self, file: int) -> None:
        """Check that a file and those beside are unchanged, as ``check`` does."""
        self._checked(file)

    def state(self, file: int) -> State:
        """Check that a file is unchanged, as ``check`` does; return what identifies it now."""
        return state_of(self._checked(file), self.size(file))

    def _checked(self, file: int) -> os.stat_result:
        try:
            status = os.stat(self._files[file].text)  # noqa: PTH116 - a third faster
        except (FileNotFoundError, NotADirectoryError) as e:
            raise self.changed(file, "was removed") from e
        except OSError as e:
            if e.errno == errno.ELOOP:
                raise self.changed(file, "was replaced") from e
            self.failed(file, e)
        self._compare(file, status)
        changed = status.st_ctime_ns
        if changed != self._files[file].known.changed and not self._untouched(file, changed):
            with self.hold(file) as descriptor:
                self._confirm(file, descriptor, changed)
        for other in self.beside.values():
            other.verify()
        return status

    def _compare(self, file: int, status: os.stat_result) -> None:
        known = self._files[file].known
        is_same = (
            status.st_mtime_ns == known.modified
            and status.st_size == known.size
            and status.st_ino == known.inode
            and status.st_dev == known.device
        )
        # Nearly always, and it is asked twice for every tile.
        if is_same:
            return
        growing = self.growing and file == len(self._files) - 1
        if difference := known.difference(Identity.of(status), growing=growing):
            raise self.changed(file, difference)

    def _untouched(self, file: int, changed: int) -> bool:
        """Keep the change time of a file that was never used: nothing read can be outdated."""
        entry = self._files[file]
        with self._lock:
            if entry.ends is None:
                entry.known = entry.known._replace(changed=changed)
            return entry.ends is None

    def _confirm(self, file: int, descriptor: int, changed: int) -> None:
        """Compare the contents with those at the first use, or keep them if this is it.

        Args:
            file: index of the file.
            descriptor: the open file.
            changed: its change time, from before the call.

        Raises:
            DataChangedError: the contents differ.
            ReadFailedError: the disk failed.
        """
        entry = self._files[file]
        before = entry.ends
        ends = self._read_ends(file, descriptor, before.size if before else entry.known.size)
        with self._lock:
            before = before or entry.ends
            if before is None:
                entry.ends = ends
            # Another thread may have refreshed: ends of different lengths tell nothing.
            elif before.size == ends.size and before != ends:
                raise self.changed(file, "was modified")
            entry.known = entry.known._replace(changed=0 if is_young(changed) else changed)

    def _read_ends(self, file: int, descriptor: int, size: int) -> Ends:
        try:
            return read_ends(descriptor, size)
        except (EOFError, OSError) as e:
            self.failed(file, e)

    def changed(self, file: int, change: str) -> DataChangedError:
        """Build the error for a changed file."""
        return changed(self.name(file), change)

    def failed(self, file: int, error: EOFError | OSError) -> NoReturn:
        """Raise the error for a failed read.

        Raises:
            DataChangedError: the file ends too early, or the file server no longer has it.
            ReadFailedError: the disk failed.
        """
        if isinstance(error, EOFError):
            raise self.changed(file, "shrank") from error
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
        with self.use(last) as descriptor:
            size = os.fstat(descriptor).st_size
            if not self.growing or size <= self._files[last].known.size:
                self.check((last,))
                return False
            ends = self._read_ends(last, descriptor, size)
            # What was known is compared after the new ends were read: they are of one state.
            self._confirm(last, descriptor, 0)
        self.check((last,))
        with self._lock:
            entry = self._files[last]
            if grew := size > entry.known.size:
                entry.known = entry.known._replace(size=size)
                entry.ends = ends
        return grew
