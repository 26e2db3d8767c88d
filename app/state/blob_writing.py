"""The writer of a blob in a file.

    | header | mark | pieces that are committed | pieces that are only written |
                                                ^ mark                         ^ end of file

Each write is an append of its own, except that nobody syncs it: pieces are put after the end of
the file, and a commit syncs the file, then moves the mark over what was there before. The lock
of the file, which the writer keeps, tells readers that what lies after the mark is no crash's
work. A commit does not wait for writes, nor writes for a commit, so a slow disk delays only what
it is asked to make durable.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from .base import StoreError
from .blob_pieces import MARK_AT, Mark, Name
from .blobs import Octets
from .durable import as_store_errors, write_at
from .space import Space


class FileBlobWriter:
    """See BlobWriter.

    Args:
        path: of the file, for errors.
        name: seeds its digests.
        mark: what is committed, which is all that the file has.
        descriptor: of the file, locked; closed with the writer.
        space: of the disk, which bounds what is written; None for no bound.
    """

    def __init__(
        self, path: Path, name: Name, mark: Mark, descriptor: int, space: Space | None
    ) -> None:
        self._path = path
        self._name = name
        self._committed = mark
        self._written = mark
        self._descriptor = descriptor
        self._space = space
        self._committing = threading.Lock()
        self._closed = False

    def write(self, data: Octets) -> int:
        """See BlobWriter."""
        self._check_open()
        view = memoryview(data).cast("B")
        size, end = self._written.size, self._written.end
        if not view:
            return size
        if self._space is not None:
            self._space.check(len(view))
        pieces = self._name.pieces(size, view)
        with as_store_errors(self._path):
            # A part of it is overwritten by the next write, or cut off.
            write_at(self._descriptor, pieces, end)
        self._written = Mark(size + len(view), end + sum(map(len, pieces)))
        return self._written.size

    def commit(self) -> int:
        """See BlobWriter."""
        with self._committing, as_store_errors(self._path):
            self._check_open()
            written = self._written
            if written != self._committed:
                os.fdatasync(self._descriptor)
                write_at(self._descriptor, [self._name.mark(written)], MARK_AT)
                self._committed = written
            return written.size

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the writer is closed")

    def close(self) -> None:
        """See BlobWriter."""
        with self._committing:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._committed.end)
            os.close(self._descriptor)
