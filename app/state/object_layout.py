"""Where the content of a blob lies in an object store.

    head   b_stream / run-7.3-9f.1     {place: 5c1e…, size: 20 MiB, marks: [[0, 0], [8 MiB, 1]]}

    objects   stream/run-7.3-9f.1/5c1e…/0000000000000000.0      bytes 0 to 8 MiB
              stream/run-7.3-9f.1/5c1e…/0000000000800000.0      left by a process that died: nothing
              stream/run-7.3-9f.1/5c1e…/0000000000800000.1      bytes 8 to 16 MiB
              stream/run-7.3-9f.1/5c1e…/0000000001000000.1      bytes 16 to 20 MiB

An object is named by its first byte and a number. A *mark* of the head says from which byte on
objects have which number, so that what lies in the way of a writer is passed over, not replaced.

Each object is divided into pieces with checksums, as a file is (:mod:`app.state.blob_pieces`), so
that some bytes of it can be read and checked without the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .base import Head, StoreError
from .blob_pieces import PIECE, PIECE_HEADER, Name

OBJECT = 8 * PIECE
"""Bytes of data in an object, at most: what a writer holds until it is stored."""
_WHOLE = PIECE_HEADER + PIECE
"""Bytes of a piece with its header, unless it is the last of an object."""
_MARKS = 1000
"""Marks of a blob, at most."""
MALFORMED = (ValueError, TypeError, KeyError)
"""Errors of :meth:`Entry.of` for a head that is not of a blob."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a head says of a blob."""

    place: str
    """Random name, drawn when the blob is created: 16 hexadecimal digits."""
    size: int
    modified: float
    used: float
    marks: tuple[tuple[int, int], ...] = ((0, 0),)
    """First byte and number of the objects from there on."""
    head: Head | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, head: Head) -> Entry:
        """Return what a head says."""
        values = json.loads(head.value)
        marks = tuple((start, number) for start, number in values["marks"])
        return cls(**{**values, "marks": marks}, head=head)

    def encode(self) -> bytes:
        """Return the value of the head."""
        names = ("place", "size", "modified", "used", "marks")
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    def number(self, start: int) -> int:
        """Return the number of the object that begins at a byte."""
        return next(number for begin, number in reversed(self.marks) if begin <= start)

    def marked(self, start: int) -> tuple[tuple[int, int], ...]:
        """Return the marks with a new one, and without those after it.

        Raises:
            StoreError: the blob has too many.
        """
        kept = tuple(mark for mark in self.marks if mark[0] < start)
        if len(kept) >= _MARKS:
            raise StoreError("a blob was interrupted too often", hint="Delete it, and begin again")
        return (*kept, (start, self.marks[-1][1] + 1))


@dataclass(frozen=True, slots=True)
class Extent:
    """An object: the blob whose bytes it has, and which."""

    kind: str
    blob_id: str
    entry: Entry
    start: int
    stop: int

    @property
    def path(self) -> str:
        """Name of the object."""
        number = self.entry.number(self.start)
        return f"{prefix_of(self.kind, self.blob_id, self.entry)}{self.start:016x}.{number}"

    @property
    def _name(self) -> Name:
        return Name(self.kind, self.blob_id, bytes.fromhex(self.entry.place))

    def encode(self, view: memoryview) -> bytes:
        """Return the object of these bytes."""
        return b"".join(self._name.pieces(self.start, view))

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return which bytes of the object hold some of its data, with their pieces whole."""
        first, last = (start - self.start) // PIECE, -(-(stop - self.start) // PIECE)
        end = min(last * PIECE, self.stop - self.start) + last * PIECE_HEADER
        return first * _WHOLE, end

    def decode(self, data: memoryview, start: int, stop: int) -> bytes:
        """Return some of its data, from the bytes of its span.

        Raises:
            DamageError: they are not those that were stored.
        """
        name = self._name
        begin, end = self.span(start, stop)
        parts = []
        for at in range(begin, end, _WHOLE):
            first = self.start + at // _WHOLE * PIECE
            part = name.checked(data[at - begin :][:_WHOLE], first)
            parts.append(part[max(start - first, 0) : stop - first])
        return b"".join(parts)


def prefix_of(kind: str, blob_id: str, entry: Entry) -> str:
    """Return with what the names of a blob's objects begin."""
    return f"{kind}/{blob_id}/{entry.place}/"


def start_of(path: str) -> int:
    """Return the first byte of an object by its name."""
    return int(path.rpartition("/")[2].partition(".")[0], 16)


def data_size(size: int) -> int:
    """Return the bytes of data in an object of so many bytes."""
    return size - -(-size // _WHOLE) * PIECE_HEADER
