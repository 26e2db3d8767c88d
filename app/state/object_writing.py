"""The writer of a blob in an object store.

    | committed by the head | objects that are stored | bytes that wait |
                            ^ size of the entry       ^ _stored         ^ _size

Bytes wait until there are enough for an object, or a commit. A commit stores them, and swaps the
head. An object in the way was left by a process that died, or is of another writer who is faster:
after a moment for that one to commit, a mark passes over it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from obstore.exceptions import AlreadyExistsError, BaseError

from . import blobs
from .base import HeadConflictError, HeadMissingError, StoreError
from .blobs import Octets
from .object_layout import OBJECT, Entry, Extent
from .object_service import store_error

if TYPE_CHECKING:
    from .objects import ObjectBlobStore

_LOOKS, _LOOK_SECONDS = 20, 0.05
"""How often to look whether the writer of an object in the way commits it."""


class ObjectBlobWriter:
    """See BlobWriter.

    Args:
        store: of the blob.
        kind: of the blob.
        blob_id: its id.
        entry: what its head says.
    """

    def __init__(self, store: ObjectBlobStore, kind: str, blob_id: str, entry: Entry) -> None:
        self._store = store
        self._kind = kind
        self._blob_id = blob_id
        self._entry = entry
        self._stored = self._size = entry.size
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._closed = False

    def write(self, data: Octets) -> int:
        """See BlobWriter; stores what has come where it is more than an object."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), OBJECT):
            with self._lock:
                self._check_open()
                self._waiting.append(bytes(view[at : at + OBJECT]))
                self._size += len(self._waiting[-1])
                full = self._size - self._stored >= OBJECT
            if full:
                with self._storing, self._translated():
                    self._store_waiting()
        self._check_open()
        return self._size

    def commit(self) -> int:
        """See BlobWriter."""
        with self._storing, self._translated():
            self._check_open()
            self._store_waiting()
            while self._stored != self._entry.size:
                modified = self._store.clock()
                new = replace(self._entry, size=self._stored, modified=modified)
                try:
                    self._entry = self._store.swap(self._entry, new)
                except HeadConflictError:
                    self._look()
            return self._stored

    def _store_waiting(self) -> None:
        """Create the objects of what has come."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        data = memoryview(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        try:
            while data:
                data = data[self._store_object(data[:OBJECT]) :]
        finally:
            if data:
                with self._lock:
                    # A store that fails once may take them later.
                    self._waiting[:0] = [bytes(data)]

    def _store_object(self, data: memoryview) -> int:
        while True:
            stop = self._stored + len(data)
            extent = Extent(self._kind, self._blob_id, self._entry, self._stored, stop)
            try:
                self._store.create_object(extent, data)
            except AlreadyExistsError:
                self._pass_over()
            else:
                self._stored = stop
                return len(data)

    def _pass_over(self) -> None:
        """Set a mark before an object in the way, unless its writer commits it.

        Raises:
            BlobConflictError: he did.
        """
        for _ in range(_LOOKS):
            time.sleep(_LOOK_SECONDS)
            if self._look():
                return
        with contextlib.suppress(HeadConflictError):
            marked = replace(self._entry, marks=self._entry.marked(self._stored))
            self._entry = self._store.swap(self._entry, marked)

    def _look(self) -> bool:
        """Look at the head again; return whether others have set a mark.

        Raises:
            BlobMissingError: the blob is gone.
            BlobConflictError: others have committed something.
        """
        found = self._store.entry(self._kind, self._blob_id)
        if (found.place, found.size) != (self._entry.place, self._entry.size):
            raise blobs.other_offset(self._kind, self._blob_id, self._entry.size, found.size)
        changed = found.marks != self._entry.marks
        if changed and self._stored > self._entry.size:
            # What was stored before the mark has another number.
            raise blobs.other_offset(self._kind, self._blob_id, self._entry.size, found.size)
        self._entry = found
        return changed

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HeadMissingError as e:
            raise blobs.no_blob(self._kind, self._blob_id) from e
        except BaseError as e:
            raise store_error(e) from e

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the writer is closed")

    def close(self) -> None:
        """See BlobWriter."""
        with self._storing, self._lock:
            self._closed = True
            self._waiting = []
