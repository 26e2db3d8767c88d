"""Blobs in files, shared by the threads and processes of one machine.

    blobs/input/9f/9f86d0….quantiles     a blob: kind, first two characters of the id, id
    blobs/.new/5c1e…                     one that is being created

``app.state.blob_pieces`` describes what is in a file. *Creating* one: it is written and
synced under a name that nobody looks for, linked to its own name, which fails if that is
taken, and the directory is synced. *Appending* to it, or deleting it, needs its lock, which
the kernel takes from a process that dies. Whoever got the lock looks whether the file still
has its name, because it may have been deleted while it waited. *Trimming* it moves the mark back,
then cuts the file. *Reading* needs no lock: what lies before the mark does not change, and who
finds it wrong looks again, in case it was trimmed.

The time of access of a file is the time of its last use. Files are therefore opened so that
reading leaves it alone; backups that do not only keep blobs for longer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from . import blob_pieces, blobs
from .base import StoreDamagedError, StoreError, check_page, damaged, in_use
from .blob_pieces import START, DamageError, FileBlobWriter, Layout, Mark, Name, trim
from .blobs import BlobInfo, BlobMissingError, BlobPage, BlobPieces, GrowingBlobs, check_blob
from .durable import as_store_errors, make_directories, opened, sync_directory, write_at
from .space import Space
from .turns import take_lock

_UNUSED = os.O_RDWR | os.O_NOFOLLOW | os.O_NOATIME
"""How files are opened: reading does not count as use."""
NEW = ".new"
"""Directory of files that are being created."""
_PREFIX = 2
"""Characters of an id that name its directory: enough to keep directories small, and as a
prefix so that the order of directories is that of ids."""
_LAYOUTS = 1024
"""Files whose pieces are remembered."""
_ABANDONED = 3600.0
"""Seconds after which a file that was never finished is removed."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class FileBlobStore(GrowingBlobs):
    """A BlobStore in files.

    Args:
        directory: created if it does not exist, for its owner alone.
        wait: maximum seconds to wait for others that append to the same blob.
        space: of the disk, which bounds what is created; None for no bound.

    Raises:
        StoreReadOnlyError, StoreFullError, StoreError: the directory cannot be created or
            written.
    """

    def __init__(self, directory: Path, wait: float = 10.0, space: Space | None = None) -> None:
        self._directory = directory
        self._wait = wait
        self._space = space
        self._closed = False
        self._layouts: OrderedDict[tuple[str, str], Layout] = OrderedDict()
        self._lock = threading.Lock()
        with as_store_errors(directory):
            make_directories(directory / NEW, 0o700)
        self.check()

    def check(self) -> None:
        """Check that the directory is there and can be written, now and not at the next put.

        Raises:
            StoreReadOnlyError, StoreFullError, StoreError: it cannot be written.
        """
        with as_store_errors(self._directory):
            probe = self._directory / NEW / f"probe-{secrets.token_hex(8)}"
            probe.touch(0o600)
            probe.unlink()

    # -- writing --------------------------------------------------------------------

    def _compare(self, kind: str, blob_id: str, view: memoryview) -> None:
        super()._compare(kind, blob_id, view)
        # Whoever created it may not have come to this yet.
        sync_directory(self._path(kind, blob_id).parent)

    def _replace(self, kind: str, blob_id: str, view: memoryview) -> bool:
        return self._create(kind, blob_id, view, replace=True)

    def _create(self, kind: str, blob_id: str, view: memoryview, *, replace: bool = False) -> bool:
        """Create a file durably; return False if another has its name."""
        if self._space is not None:
            self._space.check(len(view))
        path = self._path(kind, blob_id)
        make_directories(path.parent, 0o700)
        new = self._directory / NEW / secrets.token_hex(16)
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Until the directory is synced nobody else may append, and acknowledge it.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            name = Name(kind, blob_id, secrets.token_bytes(blob_pieces.NONCE))
            blob_pieces.write_new(descriptor, name, view)
            if replace:
                new.replace(path)
            else:
                path.hardlink_to(new)
            sync_directory(path.parent)
        except FileExistsError:
            return False
        finally:
            new.unlink(missing_ok=True)
            os.close(descriptor)
        return True

    def _writer(self, kind: str, blob_id: str, offset: int) -> FileBlobWriter:
        with self._locked(kind, blob_id, fcntl.LOCK_EX) as descriptor:
            layout, mark = self._settle(kind, blob_id, descriptor)
            if offset != mark.size:
                raise blobs.other_offset(kind, blob_id, offset, mark.size)
            # The lock is that of the open file, whichever of its descriptors is closed last.
            path, own = self._path(kind, blob_id), os.dup(descriptor)
            return FileBlobWriter(path, layout.name, mark, own, self._space)

    def touch(self, kind: str, blob_id: str, moment: float | None = None) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id)
        used = time.time_ns() if moment is None else int(moment * 1e9)
        with self._using(kind, blob_id), self._locked(kind, blob_id, fcntl.LOCK_SH) as descriptor:
            os.utime(descriptor, ns=(used, os.fstat(descriptor).st_mtime_ns))

    def delete(self, kind: str, blob_id: str, *, unused_since: float | None = None) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._using(kind, blob_id) as path:
            with self._locked(kind, blob_id, fcntl.LOCK_EX) as descriptor:
                used = os.fstat(descriptor).st_atime_ns / 1e9
                if unused_since is not None and used >= unused_since:
                    raise in_use(kind, blob_id)
                path.unlink()
                sync_directory(path.parent)
            self._forget(kind, blob_id)

    def trim(self, kind: str, blob_id: str, size: int) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id, size)
        lock = self._locked(kind, blob_id, fcntl.LOCK_EX)
        with self._using(kind, blob_id), lock as descriptor:
            layout, mark = self._settle(kind, blob_id, descriptor)
            if size < mark.size:
                trim(descriptor, layout.name, mark, size)
                self._forget(kind, blob_id)

    def _forget(self, kind: str, blob_id: str) -> None:
        """Forget where the pieces of a file lie."""
        with self._lock:
            self._layouts.pop((kind, blob_id), None)

    def clean(self) -> int:
        """See BlobStore."""
        removed = 0
        oldest = time.time() - _ABANDONED
        with self._using("any", "any"), os.scandir(self._directory / NEW) as entries:
            for entry in entries:
                # Its writer may finish it, or another worker remove it, first.
                with contextlib.suppress(FileNotFoundError, BlockingIOError):
                    if entry.stat().st_mtime < oldest:
                        with opened(Path(entry.path), _UNUSED) as descriptor:
                            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            Path(entry.path).unlink()
                            removed += 1
        return removed

    # -- reading --------------------------------------------------------------------

    def range(self, kind: str, blob_id: str, start: int = 0, stop: int | None = None) -> bytes:
        """See BlobStore."""
        check_blob(kind, blob_id, start)
        with self._using(kind, blob_id), self._open(kind, blob_id) as descriptor:
            try:
                return self._read(kind, blob_id, descriptor, start, stop)
            except DamageError:
                # It was trimmed, perhaps, since it was looked at.
                self._forget(kind, blob_id)
                return self._read(kind, blob_id, descriptor, start, stop)

    def _read(
        self, kind: str, blob_id: str, descriptor: int, start: int, stop: int | None
    ) -> bytes:
        layout, mark = self._look(kind, blob_id, descriptor)
        stop = mark.size if stop is None else min(stop, mark.size)
        if start >= stop:
            return b""
        layout.follow(descriptor, mark)
        return bytes(layout.read(descriptor, start, stop))

    def pieces(self, kind: str, blob_id: str) -> BlobPieces:
        """See GrowingBlobs."""
        check_blob(kind, blob_id)
        with self._using(kind, blob_id), self._open(kind, blob_id) as descriptor:
            layout, mark = self._look(kind, blob_id, descriptor)
            layout.follow(descriptor, mark)
            return BlobPieces(os.dup(descriptor), mark.end, layout.data())

    def info(self, kind: str, blob_id: str) -> BlobInfo:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._using(kind, blob_id), self._open(kind, blob_id) as descriptor:
            _, mark = self._look(kind, blob_id, descriptor)
            return _info(kind, blob_id, mark.size, os.fstat(descriptor))

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> BlobPage:
        """See BlobStore."""
        check_page(kind, prefix, after, limit)
        found: list[BlobInfo] = []
        with self._using(kind, "any"):
            for blob_id in self._ids(kind, prefix, after):
                with contextlib.suppress(BlobMissingError):
                    found.append(self._listed(kind, blob_id))
                if len(found) > limit:
                    break
        page = tuple(found[:limit])
        return BlobPage(page, page[-1].id if len(found) > limit else None)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all blobs."""
        with self._using("any", "any"):
            return tuple(name for name in _names(self._directory) if not name.startswith("."))

    def _listed(self, kind: str, blob_id: str) -> BlobInfo:
        try:
            return self.info(kind, blob_id)
        except StoreDamagedError:
            with self._open(kind, blob_id) as descriptor:
                status = os.fstat(descriptor)
                return _info(kind, blob_id, status.st_size, status)

    def _ids(self, kind: str, prefix: str, after: str) -> Iterator[str]:
        """Yield the ids after one that begin with a prefix, in order."""
        directory = self._directory / kind
        for folder in _names(directory):
            if folder < after[:_PREFIX] or not folder.startswith(prefix[:_PREFIX]):
                continue
            for name in _names(directory / folder):
                if name > after and name.startswith(prefix) and _ID.fullmatch(name):
                    yield name

    # -- files ----------------------------------------------------------------------

    def _path(self, kind: str, blob_id: str) -> Path:
        return self._directory / kind / blob_id[:_PREFIX] / blob_id

    @contextlib.contextmanager
    def _using(self, kind: str, blob_id: str) -> Iterator[Path]:
        """Raise only errors of a store; provide the path of the blob."""
        path = self._path(kind, blob_id)
        if self._closed:
            raise StoreError("the store is closed")
        try:
            with as_store_errors(path):
                yield path
        except DamageError as e:
            raise damaged(kind, blob_id, path) from e

    @contextlib.contextmanager
    def _open(self, kind: str, blob_id: str) -> Iterator[int]:
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(opened(self._path(kind, blob_id), _UNUSED))
            except FileNotFoundError as e:
                raise blobs.no_blob(kind, blob_id) from e
            yield descriptor

    @contextlib.contextmanager
    def _locked(self, kind: str, blob_id: str, mode: int) -> Iterator[int]:
        """Open and lock the file that has the name, once we have the lock."""
        end = time.monotonic() + self._wait
        while True:
            with self._open(kind, blob_id) as descriptor:
                take_lock(descriptor, mode, end)
                if os.fstat(descriptor).st_nlink:
                    yield descriptor
                    return

    def _look(self, kind: str, blob_id: str, descriptor: int) -> tuple[Layout, Mark]:
        """Return what is known of a file, and its mark."""
        layout, mark, file_end = self._begin(kind, blob_id, descriptor)
        if mark is not None and mark.end == file_end:
            return layout, mark
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # An append is under way.
            if mark is not None:
                return layout, mark
            take_lock(descriptor, fcntl.LOCK_EX, time.monotonic() + self._wait)
        try:
            return self._settle(kind, blob_id, descriptor)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _settle(self, kind: str, blob_id: str, descriptor: int) -> tuple[Layout, Mark]:
        """Accept the whole appends after the mark, and cut off the rest; needs the lock."""
        layout, mark, file_end = self._begin(kind, blob_id, descriptor)
        if mark is not None and mark.end == file_end:
            return layout, mark
        was, begin = mark, mark or Mark(0, START)
        mark = blob_pieces.settled(descriptor, layout.name, begin, file_end)
        if was is None and mark.end != file_end:
            # A crash leaves the mark whole: what does not fit was acknowledged, perhaps.
            raise DamageError
        os.ftruncate(descriptor, mark.end)
        # What a killed process wrote may not be on the disk yet.
        os.fdatasync(descriptor)
        write_at(descriptor, [layout.name.mark(mark)], blob_pieces.MARK_AT)
        return layout, mark

    def _begin(self, kind: str, blob_id: str, descriptor: int) -> tuple[Layout, Mark | None, int]:
        """Read the beginning of a file."""
        begin = os.pread(descriptor, START, 0)
        name = Name.read(kind, blob_id, begin)
        mark = name.read_mark(begin)
        # After the mark: until it is moved again, the file is no shorter.
        file_end = os.fstat(descriptor).st_size
        if mark is not None and file_end < mark.end:
            if os.pread(descriptor, START, 0) == begin:
                raise DamageError
            # It was trimmed between the two.
            return self._begin(kind, blob_id, descriptor)
        with self._lock:
            layout = self._layouts.get((kind, blob_id))
            if layout is None or layout.name.nonce != name.nonce:
                layout = self._layouts[kind, blob_id] = Layout(name)
            self._layouts.move_to_end((kind, blob_id))
            while len(self._layouts) > _LAYOUTS:
                self._layouts.popitem(last=False)
        return layout, mark, file_end

    def close(self) -> None:
        """See BlobStore."""
        self._closed = True
        with self._lock:
            self._layouts.clear()


def _names(directory: Path) -> list[str]:
    """Return the names in a directory, in order; none if it is missing."""
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _info(kind: str, blob_id: str, size: int, status: os.stat_result) -> BlobInfo:
    return BlobInfo(kind, blob_id, size, status.st_mtime_ns / 1e9, status.st_atime_ns / 1e9)
