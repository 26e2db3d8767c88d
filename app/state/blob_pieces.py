"""The file of a blob: pieces with checksums, a mark of what was acknowledged, and its writer.

    header   "TWGBLOB1" | digest of kind and id | nonce
    mark     size | end | digest                            written over, in place
    piece    "TWGP" | length, last | start | digest of the data | digest of this header
             data, up to 1 MiB
    piece    ...

*Swapped or stale bytes.* All digests are seeded with kind, id and nonce, which is drawn when
the file is created, and a piece's digest covers its start. So a piece is accepted nowhere
but at its own place of its own file: not in another blob, nor in an earlier one of the name.

*Appends.* An append is one or several pieces, the last of them flagged. They are written
after ``end`` and synced, which acknowledges them; then the mark is moved over them. The mark
is not synced by itself: the next append does that. A crash therefore leaves, after ``end``,

    a whole append    acknowledged or about to be: it is accepted, and the mark moved
    a part of one     not acknowledged: it is cut off

and never more than the two together. What lies *before* the mark was acknowledged: whatever
is wrong there is damage. Without a mark, damage to the last append could not be told from an
append that was never finished, and would be cut off without a word. Where the mark itself is
damaged, which no crash does, the pieces are checked from the first to the last, and nothing
is cut off.

Reading needs to know where pieces lie. Their headers are read once, from the first to the
mark, and only those that were added later the next time.

A *writer*:

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
import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from xxhash import xxh3_64, xxh3_64_intdigest

from .base import StoreError
from .blobs import Octets
from .durable import as_store_errors, read_into, write_at
from .space import Space

PIECE = 1 << 20
"""Largest number of bytes in a piece: what is read and checked for a single byte."""
NONCE = 8
"""Bytes of a nonce."""
_MAGIC = b"TWGBLOB1"
_HEADER = struct.Struct(f"<8sQ{NONCE}s")
_MARK = struct.Struct("<QQQ")
_BEGIN = struct.Struct("<4sIQQ")
_DIGEST = struct.Struct("<Q")
_POSITION = struct.Struct("<QI")
_PIECE_MAGIC = b"TWGP"
_LAST = 1 << 31
PIECE_HEADER = _BEGIN.size + _DIGEST.size
"""Bytes of the header of a piece."""

MARK_AT = _HEADER.size
"""Offset of the mark."""
START = MARK_AT + _MARK.size
"""Offset of the first piece, and the bytes to read to know a file."""


class DamageError(Exception):
    """The file is not as it was written."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What was acknowledged."""

    size: int
    """Bytes of data."""
    end: int
    """Offset after their last piece."""


@dataclass(frozen=True, slots=True)
class Found:
    """A piece, as its header describes it."""

    start: int
    length: int
    last: bool
    digest: int


class Name:
    """The kind, id and nonce of a file, and what they seed."""

    def __init__(self, kind: str, blob_id: str, nonce: bytes) -> None:
        self.nonce = nonce
        name = f"{kind}\0{blob_id}".encode()
        self._digest = xxh3_64_intdigest(name)
        self._seed = xxh3_64_intdigest(name + nonce)

    @classmethod
    def read(cls, kind: str, blob_id: str, begin: bytes) -> Name:
        """Return the name in the first bytes of a file.

        Raises:
            DamageError: they are not the beginning of the file of this kind and id.
        """
        if len(begin) < START:
            raise DamageError
        name = cls(kind, blob_id, begin[MARK_AT - NONCE : MARK_AT])
        if begin[:MARK_AT] != name.header():
            raise DamageError
        return name

    def header(self) -> bytes:
        """Return the header of the file."""
        return _HEADER.pack(_MAGIC, self._digest, self.nonce)

    def mark(self, mark: Mark) -> bytes:
        """Return the bytes of a mark."""
        place = _MARK.pack(mark.size, mark.end, 0)[: -_DIGEST.size]
        return place + _DIGEST.pack(xxh3_64_intdigest(place, self._seed))

    def read_mark(self, begin: bytes) -> Mark | None:
        """Return the mark in the first bytes of the file; None if it is damaged."""
        size, end, _ = _MARK.unpack_from(begin, MARK_AT)
        mark = Mark(size, end)
        return mark if begin[MARK_AT:START] == self.mark(mark) else None

    def pieces(self, start: int, data: Octets) -> list[bytes | memoryview]:
        """Divide the data of one append into pieces, each a header and its data."""
        view = memoryview(data).cast("B")
        buffers: list[bytes | memoryview] = []
        for at in range(0, len(view), PIECE):
            part = view[at : at + PIECE]
            length = len(part) | (_LAST if at + PIECE >= len(view) else 0)
            digest = self.digest(start + at, length, part)
            begin = _BEGIN.pack(_PIECE_MAGIC, length, start + at, digest)
            buffers += [begin + _DIGEST.pack(xxh3_64_intdigest(begin, self._seed)), part]
        return buffers

    def digest(self, start: int, length: int, data: memoryview) -> int:
        """Return the digest of a piece's position and data."""
        digest = xxh3_64(_POSITION.pack(start, length), self._seed)
        digest.update(data)
        return digest.intdigest()

    def piece(self, header: bytes | bytearray | memoryview, start: int) -> Found:
        """Return the piece that a header describes.

        Raises:
            DamageError: it is not the header of the piece that starts here.
        """
        magic, length, found, digest = _BEGIN.unpack_from(header)
        (own,) = _DIGEST.unpack_from(header, _BEGIN.size)
        right = own == xxh3_64_intdigest(bytes(header[: _BEGIN.size]), self._seed)
        if not right or magic != _PIECE_MAGIC or found != start:
            raise DamageError
        return Found(start, length & ~_LAST, bool(length & _LAST), digest)

    def checked(self, piece: memoryview, start: int) -> memoryview:
        """Return the data of a whole piece, with its header.

        Raises:
            DamageError: it is not the piece that starts here.
        """
        if len(piece) < PIECE_HEADER:
            raise DamageError
        found, data = self.piece(piece[:PIECE_HEADER], start), piece[PIECE_HEADER:]
        if not self.is_of(data, found):
            raise DamageError
        return data

    def is_of(self, data: memoryview, piece: Found) -> bool:
        """Whether data is what the header of a piece says."""
        length = piece.length | (_LAST if piece.last else 0)
        fits = piece.length == len(data)
        return fits and piece.digest == self.digest(piece.start, length, data)


class Layout:
    """Where the pieces of one file lie, as far as they have been looked for.

    Attributes:
        name: the name of the file.
    """

    def __init__(self, name: Name) -> None:
        self.name = name
        self._starts = array("Q")
        self._places = array("Q")
        self._known = Mark(0, START)
        self._lock = threading.Lock()

    def follow(self, descriptor: int, mark: Mark) -> None:
        """Look for the pieces up to the mark.

        Raises:
            DamageError: a header is not as it was written.
            OSError: the disk failed.
        """
        with self._lock:
            size, end = self._known.size, self._known.end
            while end < mark.end:
                piece = _header_at(descriptor, self.name, size, end)
                self._starts.append(size)
                self._places.append(end)
                size += piece.length
                end += PIECE_HEADER + piece.length
                self._known = Mark(size, end)
            if (size, end) != (mark.size, mark.end) and self._known.end <= mark.end:
                raise DamageError

    def cut(self, size: int) -> Mark:
        """Return the mark after the first pieces that have so many bytes, of those passed."""
        with self._lock:
            after = bisect_left(self._starts, size)
            if after == len(self._starts):
                return self._known
            return Mark(self._starts[after], self._places[after])

    def read(self, descriptor: int, start: int, stop: int) -> memoryview:
        """Read bytes that ``follow`` has passed, and check them.

        Raises:
            DamageError: the bytes are not those that were written.
            OSError: the disk failed.
        """
        first, starts, places = self._around(start, stop)
        # The supervisor imports this module, and is to have neither its memory nor its threads.
        import numpy as np  # noqa: PLC0415

        view = np.empty(starts[-1] - starts[0], np.uint8).data
        headers = memoryview(bytearray(PIECE_HEADER * len(places)))
        buffers: list[bytearray | memoryview] = []
        for k, (begin, end) in enumerate(pairwise(starts)):
            buffers += [headers[k * PIECE_HEADER : (k + 1) * PIECE_HEADER]]
            buffers += [view[begin - first : end - first]]
        if not read_into(descriptor, buffers, places[0]):
            raise DamageError
        for k, (begin, end) in enumerate(pairwise(starts)):
            part = view[begin - first : end - first]
            if not self.name.is_of(part, self.name.piece(buffers[2 * k], begin)):
                raise DamageError
        return view[start - first : stop - first]

    def data(self) -> tuple[tuple[int, int], ...]:
        """Return the place and the length of the data of each piece that was passed."""
        with self._lock:
            stops = [*self._starts[1:], self._known.size]
            found = zip(self._places, self._starts, stops, strict=False)
            return tuple((place + PIECE_HEADER, stop - start) for place, start, stop in found)

    def _around(self, start: int, stop: int) -> tuple[int, list[int], list[int]]:
        """Return the start of the first piece that overlaps, and all starts and places."""
        with self._lock:
            first = bisect_right(self._starts, start) - 1
            last = bisect_right(self._starts, stop - 1)
            starts = list(self._starts[first:last])
            after = self._starts[last] if last < len(self._starts) else self._known.size
            return starts[0], [*starts, after], list(self._places[first:last])


def write_new(descriptor: int, name: Name, view: memoryview) -> None:
    """Write a whole file.

    Raises:
        OSError: the disk is full, or failed.
    """
    pieces = name.pieces(0, view)
    mark = Mark(len(view), START + sum(len(piece) for piece in pieces))
    write_at(descriptor, [name.header(), name.mark(mark), *pieces], 0)
    os.fsync(descriptor)


def trim(descriptor: int, name: Name, mark: Mark, size: int) -> None:
    """Cut off the pieces after the first that have so many bytes.

    Raises:
        DamageError: a header is not as it was written.
        OSError: the disk failed.
    """
    layout = Layout(name)
    layout.follow(descriptor, mark)
    cut = layout.cut(size)
    if cut == mark:
        return
    write_at(descriptor, [name.mark(cut)], MARK_AT)
    # A mark that lies after the end of its file means damage.
    os.fdatasync(descriptor)
    os.ftruncate(descriptor, cut.end)
    # What was cut off must not be found behind a later append.
    os.fdatasync(descriptor)


def settled(descriptor: int, name: Name, mark: Mark, file_end: int) -> Mark:
    """Return the mark after the whole appends that follow a mark.

    Raises:
        OSError: the disk failed.
    """
    size, end = mark.size, mark.end
    while end < file_end:
        try:
            piece = _header_at(descriptor, name, size, end)
        except DamageError:
            break
        data = memoryview(bytearray(piece.length))
        if not (read_into(descriptor, [data], end + PIECE_HEADER) and name.is_of(data, piece)):
            break
        size += piece.length
        end += PIECE_HEADER + piece.length
        if piece.last:
            mark = Mark(size, end)
    return mark


def _header_at(descriptor: int, name: Name, start: int, place: int) -> Found:
    header = bytearray(PIECE_HEADER)
    if not read_into(descriptor, [header], place):
        raise DamageError
    piece = name.piece(header, start)
    if not 0 < piece.length <= PIECE:
        raise DamageError
    return piece


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
