"""The bytes of a stream, as far as they are durable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.state.base import StoreDamagedError
from app.state.blobs import BlobMissingError, BlobStore

from .records import STREAM, StreamRecord

PIECE = 1 << 20
"""Bytes that are read at a time."""
_REMEDY = "Delete the stream, upload it again, then seal the run again"


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
    def name(self) -> str:
        """What messages call it."""
        return f"partition {self.record.partition}"

    @property
    def ident(self) -> str:
        """Id of this upload; a stream that is uploaded again has another."""
        return self.record.id

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
            BlobMissingError: the stream was deleted, or its file.
        """
        parts = []
        for extent in self.record.extents:
            first, last = max(start, extent.start), min(stop, extent.stop)
            if first < last:
                name = self.record.blob(extent.fence)
                low, high = first - extent.start, last - extent.start
                part = self._range(name, low, high)
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _range(self, blob: str, start: int, stop: int) -> bytes:
        try:
            part = self._blobs.range(STREAM, blob, start, stop)
        except StoreDamagedError as e:
            raise self._damaged(e.path) from e
        except BlobMissingError as e:
            # Where it was not deleted, its file was.
            raise BlobMissingError(
                f"the stored bytes of partition {self.record.partition} are missing", hint=_REMEDY
            ) from e
        if len(part) != stop - start:
            raise self._damaged(None)
        return part

    def _damaged(self, path: Path | None) -> StoreDamagedError:
        return StoreDamagedError(
            f"the stored bytes of partition {self.record.partition} are damaged",
            path=path,
            hint=_REMEDY,
            retry_after=None,
        )

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, up to ``PIECE`` at a time; see ``read``."""
        stop = self.size if stop is None else min(stop, self.size)
        while start < stop:
            data = self.read(start, min(start + PIECE, stop))
            start += len(data)
            yield memoryview(data)
