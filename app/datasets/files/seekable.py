"""Random access to the decoded bytes of files that may be compressed.

gzip has no index: byte *n* of the decoded data can only be reached by decoding everything
before it. But a decompressor is a small state machine (about 32 KiB of window, plus a few
counters) that can be copied at any byte. So the one scan that every file gets when it is
opened leaves *checkpoints*, copies of the decompressor as it was at some offsets:

    decoded   0────────┬────────┬────────┬────────┬──────▶ size
    check-    ●        ●        ●        ●        ●
    points                               │   ╭ read(start, stop)
                                         ▼   ▼   ▼
                                         ├───┼───┤  copy the checkpoint, decode and drop the
                                           drop     bytes before start, return the undecoded

At most ``MAX_CHECKPOINTS`` are stored, some 4 MiB per file. One more drops every second
one and doubles the spacing, so a seek decodes at most about 1/64 of the file however long
it is, and memory stays bounded.

zstd's decompressor cannot be copied. Its checkpoints lie where one frame ends and the next
begins, and need no state at all; a file of a single frame is decoded from its start. In the
same way a checkpoint between two members of a gzip file needs none.

Sequential readers never pay for a seek: after each read the decompressor is kept as a
*cursor*, and a read that begins at or after a cursor continues there if no checkpoint is
nearer. A cursor belongs to one reader at a time, as decoding moves it. Cursors are kept only to
save time: in the ledger, nobody's, and given up, the oldest first, where memory is short. The
window of a zstd decoder alone may take 128 MiB.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backports.zstd import ZstdDecompressor, ZstdError

from app.engine.ledger import Hold, Ledger
from app.errors import ServiceError
from app.http.decompression import ZSTD_HEADER, zstd_window
from app.tally import MOST
from core.budget import current
from core.errors import FormatError

from .file_set import FileSet

_NOBODY = ""
_PURPOSE = "cached"
_PER_FILE = 4
"""Places that are kept of a file."""
_STATE_BYTES = 64 << 10
"""Memory of a decoder besides its window."""


@dataclass(slots=True)
class Cursor:
    """A decompressor and its position, as a checkpoint or between two reads.

    Bytes taken from the file but not decoded are in ``undecoded``, decoded bytes not yet
    returned in ``unread``.
    """

    decoder: Any
    """None at the start of a gzip member or zstd frame."""
    offset: int = 0
    """Offset in the file after ``undecoded``."""
    at: int = 0
    """Offset in the decoded bytes before ``unread``."""
    undecoded: bytes = b""
    unread: bytes = b""
    window: int = 0
    """Bytes of the widest zstd window so far, which whoever reads holds."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.window + _STATE_BYTES + len(self.undecoded) + len(self.unread)


@dataclass(slots=True, eq=False)
class _Kept:
    file: weakref.ref[object]
    cursor: Cursor
    hold: Hold


class Cursors:
    """The cursors of all files of a process; a cursor belongs to one reader at a time.

    Args:
        ledger: charged for them; None for no bound.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger(MOST, MOST)
        self._kept: list[_Kept] = []
        self._lock = threading.Lock()
        self._ledger.reclaims.append(self._forget)

    def take(self, file: object, low: int, high: int) -> Cursor | None:
        """Remove and return the last cursor of a file between two bytes, or None."""
        with self._lock:
            found = [k for k in self._kept if k.file() is file and low <= k.cursor.at <= high]
            if not found:
                return None
            nearest = max(found, key=lambda kept: kept.cursor.at)
            self._kept.remove(nearest)
        nearest.hold.release()
        return nearest.cursor

    def give(self, file: object, cursor: Cursor) -> None:
        """Keep a cursor, unless there is no memory for it."""
        try:
            hold = self._ledger.hold(_NOBODY, cursor.nbytes, _PURPOSE)
        except ServiceError:
            return
        with self._lock:
            self._kept.append(_Kept(weakref.ref(file), cursor, hold))
            own = [kept for kept in self._kept if kept.file() is file]
            dropped = [kept for kept in self._kept if kept.file() is None] + own[:-_PER_FILE]
            self._kept = [kept for kept in self._kept if kept not in dropped]
        for kept in dropped:
            kept.hold.release()

    def _forget(self) -> bool:
        """Give up the oldest cursor; return whether there was one."""
        with self._lock:
            if not self._kept:
                return False
            kept = self._kept.pop(0)
        kept.hold.release()
        return True


MAX_CHECKPOINTS = 128
RENEWING = 16 << 20
"""Bytes of a file whose first scan renews the budget: large files take long."""
SPACING = 1 << 20
"""Minimum number of decoded bytes between two checkpoints."""
_READ = 256 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Follows a first byte of 0x50 to 0x5f."""
_WIDEST = 128 << 20
"""Bytes of the widest zstd window; the library refuses frames that demand more."""


def open_seekable(files: FileSet, file: int, cursors: Cursors | None = None) -> Seekable:
    """Open a file of a set; its coding is detected by content.

    Args:
        files: the set.
        file: index of the file.
        cursors: keep what readers leave, for all files; None for this one alone.
    """
    cursors = cursors or Cursors()
    head = files.read(file, 0, 4)
    if head[:2] == _GZIP_MAGIC:
        return Compressed(files, file, "gzip", cursors)
    if head == _ZSTD_MAGIC or (head[1:] == _ZSTD_SKIPPABLE and head[0] >> 4 == 5):  # noqa: PLR2004
        return Compressed(files, file, "zstd", cursors)
    return Plain(files, file)


class Plain:
    """An uncompressed file; several threads may read at once.

    Args:
        files: the set.
        file: index of the file.
    """

    coding = "plain"

    def __init__(self, files: FileSet, file: int) -> None:
        self._files = files
        self._file = file
        self.size = files.size(file)

    def scan(self) -> Iterator[bytes]:
        """Yield all bytes."""
        for start in range(0, self.size, 4 * _READ):
            if start % RENEWING == 0:
                current().renew()
            yield self.read(start, min(start + 4 * _READ, self.size))

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes ``start`` to ``stop``; fewer at the end."""
        return self._files.read(self._file, start, stop)


class Compressed:
    """A gzip or zstd file of one or more members or frames; several threads may read at once.

    Args:
        files: the set.
        file: index of the file.
        coding: ``gzip`` or ``zstd``.
        cursors: keep where readers stopped.
    """

    def __init__(self, files: FileSet, file: int, coding: str, cursors: Cursors) -> None:
        self._files = files
        self._file = file
        self.coding = coding
        self.size = 0
        """Number of decoded bytes; known after ``scan``."""
        self._spacing = SPACING
        self._checkpoints = [Cursor(None)]
        self._cursors = cursors

    @property
    def checkpoints(self) -> int:
        """Number of offsets at which decoding can begin."""
        return len(self._checkpoints)

    def scan(self) -> Iterator[bytes]:
        """Yield all decoded bytes, once, before the first ``read``, and store checkpoints.

        Raises:
            FormatError: the file is cut or damaged.
        """
        cursor, renewed = Cursor(None), 0
        try:
            while piece := self._decode(cursor):
                cursor.at += len(piece)
                # By what it takes of the file: a few bytes may be decoded to very many.
                if cursor.offset - renewed >= RENEWING:
                    current().renew()
                    renewed = cursor.offset
                if cursor.at - self._checkpoints[-1].at >= self._spacing:
                    self._add_checkpoint(cursor)
                yield piece
        finally:
            current().release(cursor.window)
        self.size = cursor.at

    def _add_checkpoint(self, cursor: Cursor) -> None:
        if (checkpoint := self._copy(cursor)) is None:
            return
        self._checkpoints.append(checkpoint)
        if len(self._checkpoints) > MAX_CHECKPOINTS:
            del self._checkpoints[1::2]
            self._spacing *= 2

    @staticmethod
    def _copy(cursor: Cursor) -> Cursor | None:
        """Copy a position; None inside a zstd frame, where that is impossible."""
        if cursor.decoder is None:
            return Cursor(None, cursor.offset, cursor.at, cursor.undecoded)
        if not hasattr(cursor.decoder, "copy"):
            return None
        return Cursor(cursor.decoder.copy(), cursor.offset, cursor.at, cursor.undecoded)

    def read(self, start: int, stop: int) -> bytes:
        """Read decoded bytes ``start`` to ``stop``; fewer at the end.

        Raises:
            FormatError: the bytes cannot be decoded.
            DataChangedError: the file changed since it was opened.
        """
        cursor = self._seek(start)
        current().hold("decode", cursor.window)
        try:
            pieces = self._pieces(cursor, start, stop)
        finally:
            current().release(cursor.window)
        self._cursors.give(self, cursor)
        return b"".join(pieces)

    def _pieces(self, cursor: Cursor, start: int, stop: int) -> list[bytes]:
        pieces: list[bytes] = []
        while cursor.at < stop:
            piece = cursor.unread or self._decode(cursor)
            if not piece:
                break
            low, high = max(start - cursor.at, 0), min(stop - cursor.at, len(piece))
            if low < high:
                pieces.append(piece[low:high])
            end = min(high, len(piece))
            cursor.unread = piece[end:]
            cursor.at += end
        return pieces

    def _seek(self, start: int) -> Cursor:
        """Take the nearest cursor, or copy the nearest checkpoint, at or before a byte."""
        index = bisect_right(self._checkpoints, start, key=lambda checkpoint: checkpoint.at) - 1
        checkpoint = self._checkpoints[index]
        cursor = self._cursors.take(self, checkpoint.at, start)
        if cursor is not None:
            return cursor
        copy = self._copy(checkpoint)
        assert copy is not None  # noqa: S101 - a checkpoint is a copy itself
        return copy

    def _decode(self, cursor: Cursor) -> bytes:
        """Decode the next bytes, a bounded number; none at the end.

        Raises:
            FormatError: the bytes cannot be decoded.
            WorkStoppedError: the budget is exceeded, or the work was cancelled.
        """
        while True:
            current().check("decode")
            if not cursor.undecoded and not self._is_buffering(cursor):
                cursor.undecoded = self._files.read(
                    self._file, cursor.offset, cursor.offset + _READ
                )
                cursor.offset += len(cursor.undecoded)
                if not cursor.undecoded:
                    if cursor.decoder is not None:
                        raise self._damaged(f"it ends inside its {self.coding} data", cursor)
                    return b""
            if cursor.decoder is None:
                if self.coding == "gzip":
                    # Zeros may follow a member as padding, which gzip skips too.
                    cursor.undecoded = cursor.undecoded.lstrip(b"\0")
                    if not cursor.undecoded:
                        continue
                cursor.decoder = self._decoder(cursor)
            piece = self._step(cursor)
            if piece:
                return piece

    def _is_buffering(self, cursor: Cursor) -> bool:
        """Whether the decoder has input left: empty input asks it for more output."""
        decoder = cursor.decoder
        return self.coding == "zstd" and decoder is not None and not decoder.needs_input

    def _step(self, cursor: Cursor) -> bytes:
        decoder = cursor.decoder
        try:
            if self.coding == "gzip":
                piece: bytes = decoder.decompress(cursor.undecoded, 4 * _READ)
                cursor.undecoded = decoder.unconsumed_tail
            else:
                piece = decoder.decompress(cursor.undecoded, 4 * _READ)
                cursor.undecoded = b""
        except (zlib.error, ZstdError) as e:
            raise self._damaged(f"it is damaged: {e}", cursor) from e
        if decoder.eof:
            cursor.undecoded, cursor.decoder = decoder.unused_data, None
        return piece

    def _decoder(self, cursor: Cursor) -> Any:  # noqa: ANN401 - one of two
        if self.coding == "gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        head = cursor.undecoded[:ZSTD_HEADER]
        if len(head) < ZSTD_HEADER:
            begin = cursor.offset - len(head)
            head = self._files.read(self._file, begin, begin + ZSTD_HEADER)
        window = min(zstd_window(head), _WIDEST)
        if window > cursor.window:
            current().hold("decode", window - cursor.window)
            cursor.window = window
        return ZstdDecompressor()

    def _damaged(self, message: str, cursor: Cursor) -> FormatError:
        return FormatError(
            message,
            offset=cursor.offset - len(cursor.undecoded),
            source=self._files.name(self._file),
        )


Seekable = Plain | Compressed
"""The decoded bytes of a file."""
