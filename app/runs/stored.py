"""The bytes of a stream, as far as they are durable."""

from __future__ import annotations

from collections.abc import Iterator

from app.state.base import damaged
from app.state.blobs import BlobStore

from .records import STREAM, StreamRecord

PIECE = 1 << 20
"""Bytes that are read at a time."""


class StoredStream:
    """The durable bytes of one version of a stream.

    Args:
        blobs: where they are.
        record: the version.
    """

    def __init__(self, blobs: BlobStore, record: StreamRecord) -> None:
        self._blobs = blobs
        self.record = record

    @property
    def size(self) -> int:
        """Number of durable bytes."""
        return self.record.offset

    @property
    def complete(self) -> bool:
        """Whether these are all bytes of a faultless stream."""
        return self.record.complete

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, cut at the end.

        Raises:
            StoreDamagedError: they are not those that were stored.
            BlobMissingError: the stream was deleted.
        """
        parts = []
        for extent in self.record.extents:
            first, last = max(start, extent.start), min(stop, extent.stop)
            if first < last:
                name = self.record.blob(extent.fence)
                low, high = first - extent.start, last - extent.start
                part = self._blobs.range(STREAM, name, low, high)
                if len(part) != high - low:
                    raise damaged(STREAM, name)
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, up to ``PIECE`` at a time; see ``read``."""
        stop = self.size if stop is None else min(stop, self.size)
        while start < stop:
            data = self.read(start, min(start + PIECE, stop))
            start += len(data)
            yield memoryview(data)
