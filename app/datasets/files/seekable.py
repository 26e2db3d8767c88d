"""Files that may be compressed, as bytes that can be sought in.

* plain: as they are.
* gzip: while a file is read once, the decompressor is copied every so often, 32 KiB of
  window each; reading goes on at the copy before. There are at most ``MOST_POINTS``
  copies, further apart the longer the file, so that a seek costs up to 1/64 of it.
* zstd: reading goes on at the frame before. A file of one frame is read from its start.

Whoever reads on where it stopped pays for no seek.
"""

from __future__ import annotations

import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from backports.zstd import ZstdDecompressor, ZstdError

from core.errors import FormatError

from .file_set import FileSet

MOST_POINTS = 128
SPACING = 1 << 20
"""Decoded bytes between two points, at least."""
_READ = 256 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a first byte of 0x50 to 0x5f."""
_CURSORS = 4
"""Places that readers stopped at, and may go on from."""


class Seekable(Protocol):
    """Decoded bytes; any thread may read, also at once."""

    @property
    def coding(self) -> str:
        """``plain``, ``gzip`` or ``zstd``."""

    @property
    def size(self) -> int:
        """Decoded bytes, known once all were read."""

    @property
    def points(self) -> int:
        """Places reading can begin at."""

    def scan(self) -> Iterator[bytes]:
        """All of them, once, before anything else is asked."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start to stop."""


def open_seekable(files: FileSet, file: int) -> Seekable:
    """A file by its content."""
    head = files.read(file, 0, 4)
    if head[:2] == _GZIP_MAGIC:
        return Compressed(files, file, "gzip")
    if head == _ZSTD_MAGIC or (head[1:] == _ZSTD_SKIPPABLE and head[0] >> 4 == 5):  # noqa: PLR2004
        return Compressed(files, file, "zstd")
    return Plain(files, file)


class Plain:
    """A file as it is.

    Args:
        files: the set.
        file: index of the file.
    """

    coding = "plain"

    def __init__(self, files: FileSet, file: int) -> None:
        self._files = files
        self._file = file
        self.size = files.size(file)
        self.points = self.size

    def scan(self) -> Iterator[bytes]:
        """All bytes."""
        for start in range(0, self.size, 4 * _READ):
            yield self.read(start, min(start + 4 * _READ, self.size))

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start to stop."""
        return self._files.read(self._file, start, stop)


@dataclass(slots=True)
class _Cursor:
    """A decompressor, and where it stands.

    ``waiting`` is behind ``at`` in the decoded bytes, and ``rest`` before ``offset`` in the
    file: taken, but not decoded.
    """

    decoder: Any
    """None where the next member or frame begins."""
    offset: int = 0
    at: int = 0
    rest: bytes = b""
    waiting: bytes = b""


class Compressed:
    """A compressed file, perhaps of several members or frames.

    Args:
        files: the set.
        file: index of the file.
        coding: ``gzip`` or ``zstd``.
    """

    def __init__(self, files: FileSet, file: int, coding: str) -> None:
        self._files = files
        self._file = file
        self.coding = coding
        self.size = 0
        self._spacing = SPACING
        self._points = [_Cursor(None)]
        self._cursors: list[_Cursor] = []
        self._lock = threading.Lock()

    @property
    def points(self) -> int:
        """Places reading can begin at."""
        return len(self._points)

    def scan(self) -> Iterator[bytes]:
        """All bytes, once; raises FormatError if they are cut or damaged."""
        cursor = _Cursor(None)
        while piece := self._decode(cursor):
            cursor.at += len(piece)
            if cursor.at - self._points[-1].at >= self._spacing:
                self._keep_point(cursor)
            yield piece
        self.size = cursor.at

    def _keep_point(self, cursor: _Cursor) -> None:
        if (copied := self._copied(cursor)) is None:
            return
        self._points.append(copied)
        if len(self._points) > MOST_POINTS:
            del self._points[1::2]
            self._spacing *= 2

    @staticmethod
    def _copied(cursor: _Cursor) -> _Cursor | None:
        """The same place once more; None where it cannot be had."""
        if cursor.decoder is None:
            return _Cursor(None, cursor.offset, cursor.at, cursor.rest)
        if not hasattr(cursor.decoder, "copy"):
            return None
        return _Cursor(cursor.decoder.copy(), cursor.offset, cursor.at, cursor.rest)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start to stop.

        Raises:
            FormatError: they cannot be decoded.
            DataChangedError: the file is not what it was.
        """
        cursor = self._at(start)
        pieces: list[bytes] = []
        while cursor.at < stop:
            piece = cursor.waiting or self._decode(cursor)
            if not piece:
                break
            low, high = max(start - cursor.at, 0), min(stop - cursor.at, len(piece))
            if low < high:
                pieces.append(piece[low:high])
            taken = min(high, len(piece))
            cursor.waiting = piece[taken:]
            cursor.at += taken
        with self._lock:
            self._cursors.append(cursor)
            del self._cursors[:-_CURSORS]
        return b"".join(pieces)

    def _at(self, start: int) -> _Cursor:
        """The nearest place at or before a byte, which nobody else uses."""
        index = bisect_right(self._points, start, key=lambda point: point.at) - 1
        with self._lock:
            known = [each for each in self._cursors if self._points[index].at <= each.at <= start]
            if known:
                nearest = max(known, key=lambda each: each.at)
                self._cursors.remove(nearest)
                return nearest
            copied = self._copied(self._points[index])
        assert copied is not None  # noqa: S101 - it was copied before
        return copied

    def _decode(self, cursor: _Cursor) -> bytes:
        """The next decoded bytes; none at the end."""
        while True:
            if not cursor.rest:
                cursor.rest = self._files.read(self._file, cursor.offset, cursor.offset + _READ)
                cursor.offset += len(cursor.rest)
                if not cursor.rest:
                    self._check_end(cursor)
                    return b""
            if cursor.decoder is None:
                if self.coding == "gzip":
                    # Zeros may lie behind a member: what gzip itself skips.
                    cursor.rest = cursor.rest.lstrip(b"\0")
                    if not cursor.rest:
                        continue
                cursor.decoder = self._decoder()
            piece = self._step(cursor)
            if piece:
                return piece

    def _step(self, cursor: _Cursor) -> bytes:
        decoder = cursor.decoder
        try:
            if self.coding == "gzip":
                piece: bytes = decoder.decompress(cursor.rest, 4 * _READ)
                cursor.rest = decoder.unconsumed_tail
            else:
                piece = decoder.decompress(cursor.rest, 4 * _READ)
                cursor.rest = b""
        except (zlib.error, ZstdError) as e:
            raise self._damaged(f"it is damaged: {e}", cursor) from e
        if decoder.eof:
            cursor.rest, cursor.decoder = decoder.unused_data, None
        elif self.coding == "zstd" and not decoder.needs_input:
            # It holds what it was given; an empty piece asks it for the rest.
            while not decoder.needs_input and not decoder.eof:
                piece += decoder.decompress(b"", 4 * _READ)
            if decoder.eof:
                cursor.rest, cursor.decoder = decoder.unused_data, None
        return piece

    def _decoder(self) -> Any:  # noqa: ANN401 - one of two
        if self.coding == "gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        return ZstdDecompressor()

    def _check_end(self, cursor: _Cursor) -> None:
        if cursor.decoder is not None:
            raise self._damaged("it is cut inside its compression", cursor)

    def _damaged(self, what: str, cursor: _Cursor) -> FormatError:
        return FormatError(
            what,
            offset=cursor.offset - len(cursor.rest),
            source=self._files.name(self._file),
        )
