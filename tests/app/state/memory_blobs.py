"""Blobs in memory, for tests that have no need of a disk."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from app.state.base import StoreError, StoreFullError, check_page, in_use
from app.state.blobs import (
    BlobConflictError,
    BlobInfo,
    BlobPage,
    Octets,
    check_blob,
    no_blob,
    other_offset,
)

LIMIT = 1 << 30
"""Default maximum number of bytes in a store."""


@dataclass(slots=True)
class _Blob:
    """A blob."""

    data: bytearray
    modified: float = field(default_factory=time.time)
    used: float = field(default_factory=time.time)


class MemoryBlobStore:
    """A BlobStore that lasts as long as its process.

    Args:
        limit: maximum number of bytes of all blobs together.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._blobs: dict[tuple[str, str], _Blob] | None = {}
        self._lock = threading.Lock()

    @property
    def _open(self) -> dict[tuple[str, str], _Blob]:
        if self._blobs is None:
            raise StoreError("the store is closed")
        return self._blobs

    def put(self, kind: str, blob_id: str, data: Octets) -> bool:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._lock:
            known = self._open.get((kind, blob_id))
            if known is None:
                self._grow(len(memoryview(data).cast("B")))
                self._open[kind, blob_id] = _Blob(bytearray(data))
            elif known.data != memoryview(data).cast("B"):
                raise BlobConflictError("it has other content", len(known.data))
        return known is None

    def append(self, kind: str, blob_id: str, offset: int, data: Octets) -> int:
        """See BlobStore."""
        check_blob(kind, blob_id, offset)
        with self._lock:
            blob = self._open.get((kind, blob_id))
            if blob is None and offset:
                raise no_blob(kind, blob_id)
            size = 0 if blob is None else len(blob.data)
            if offset != size:
                raise other_offset(kind, blob_id, offset, size)
            self._grow(len(memoryview(data).cast("B")))
            if blob is None:
                blob = self._open[kind, blob_id] = _Blob(bytearray())
            blob.data += data
            blob.modified = time.time()
            return len(blob.data)

    def writer(self, kind: str, blob_id: str, offset: int) -> MemoryBlobWriter:
        """See BlobStore."""
        self.append(kind, blob_id, offset, b"")
        return MemoryBlobWriter(self, kind, blob_id, offset)

    def _grow(self, nbytes: int) -> None:
        if self._size + nbytes > self._limit:
            raise StoreFullError(f"more than {self._limit} bytes are not kept in memory")
        self._size += nbytes

    def trim(self, kind: str, blob_id: str, size: int) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id, size)
        with self._lock:
            data = self._blob(kind, blob_id).data
            self._size -= len(data[size:])
            del data[size:]

    def range(self, kind: str, blob_id: str, start: int = 0, stop: int | None = None) -> bytes:
        """See BlobStore."""
        check_blob(kind, blob_id, start)
        with self._lock:
            data = self._blob(kind, blob_id).data
            return bytes(data[start : len(data) if stop is None else max(stop, 0)])

    def _blob(self, kind: str, blob_id: str) -> _Blob:
        blob = self._open.get((kind, blob_id))
        if blob is None:
            raise no_blob(kind, blob_id)
        return blob

    def info(self, kind: str, blob_id: str) -> BlobInfo:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._lock:
            return _info(kind, blob_id, self._blob(kind, blob_id))

    def touch(self, kind: str, blob_id: str, when: float | None = None) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._lock:
            self._blob(kind, blob_id).used = time.time() if when is None else when

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> BlobPage:
        """See BlobStore."""
        check_page(kind, prefix, after, limit)
        with self._lock:
            ids = sorted(
                blob_id
                for blob_kind, blob_id in self._open
                if blob_kind == kind and blob_id.startswith(prefix) and blob_id > after
            )
            found = [_info(kind, blob_id, self._open[kind, blob_id]) for blob_id in ids[:limit]]
        return BlobPage(tuple(found), found[-1].id if len(ids) > limit else None)

    def delete(self, kind: str, blob_id: str, *, unused_since: float | None = None) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._lock:
            blob = self._blob(kind, blob_id)
            if unused_since is not None and blob.used >= unused_since:
                raise in_use(kind, blob_id)
            del self._open[kind, blob_id]
            self._size -= len(blob.data)

    def clean(self) -> int:
        """See BlobStore."""
        return 0

    def close(self) -> None:
        """See BlobStore."""
        with self._lock:
            self._blobs = None


class MemoryBlobWriter:
    """A BlobWriter of a MemoryBlobStore; see ``MemoryBlobStore.writer``."""

    def __init__(self, store: MemoryBlobStore, kind: str, blob_id: str, size: int) -> None:
        self._store = store
        self._kind = kind
        self._id = blob_id
        self._size = size
        self._pending = bytearray()
        self._lock = threading.Lock()
        self._closed = False

    def write(self, data: Octets) -> int:
        """See BlobWriter."""
        with self._lock:
            self._check_open()
            self._pending += memoryview(data).cast("B")
            return self._size + len(self._pending)

    def commit(self) -> int:
        """See BlobWriter."""
        with self._lock:
            self._check_open()
            self._size = self._store.append(self._kind, self._id, self._size, self._pending)
            self._pending.clear()
            return self._size

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the writer is closed")

    def close(self) -> None:
        """See BlobWriter."""
        with self._lock:
            self._closed = True
            self._pending.clear()


def _info(kind: str, blob_id: str, blob: _Blob) -> BlobInfo:
    return BlobInfo(kind, blob_id, len(blob.data), blob.modified, blob.used)
