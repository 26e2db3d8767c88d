"""Where the content of a blob lies in an object store, and how it comes there.

    record   b_stream / run-7.3-9f.1     {place: 5c1e…, size: 20 MiB, marks: [[0, 0], [8 MiB, 1]]}

    objects   stream/run-7.3-9f.1/5c1e…/0000000000000000.0      bytes 0 to 8 MiB
              stream/run-7.3-9f.1/5c1e…/0000000000800000.0      left by a process that died: nothing
              stream/run-7.3-9f.1/5c1e…/0000000000800000.1      bytes 8 to 16 MiB
              stream/run-7.3-9f.1/5c1e…/0000000001000000.1      bytes 16 to 20 MiB

An object is named by its first byte and a number. A *mark* of the record says from which byte on
objects have which number, so that what lies in the way of a writer is passed over, not replaced.

Each object is divided into pieces with checksums, as a file is (:mod:`app.state.blob_pieces`), so
that some bytes of it can be read and checked without the others.

A writer:

    | committed by the record | objects that are stored | bytes that wait |
                            ^ size of the entry       ^ _stored         ^ _size

Bytes wait until there are enough for an object, or a commit. A commit stores them, and swaps the
record. An object in the way was left by a process that died, or is of another writer who is faster:
after a moment for that one to commit, a mark passes over it.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from obstore.exceptions import AlreadyExistsError, BaseError

from . import blobs
from .base import Record, RecordConflictError, RecordMissingError, StoreError
from .blob_pieces import PIECE, PIECE_HEADER, Name
from .blobs import Octets
from .object_service import store_error

if TYPE_CHECKING:
    from .objects import ObjectBlobStore

OBJECT = 8 * PIECE
"""Bytes of data in an object, at most: what a writer holds until it is stored."""
_WHOLE = PIECE_HEADER + PIECE
"""Bytes of a piece with its header, unless it is the last of an object."""
_MARKS = 1000
"""Marks of a blob, at most."""
_LOOKS, _LOOK_SECONDS = 20, 0.05
"""How often to look whether the writer of an object in the way commits it."""
MALFORMED = (ValueError, TypeError, KeyError)
"""Errors of :meth:`Entry.of` for a record that is not of a blob."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a record says of a blob."""

    place: str
    """Random name, drawn when the blob is created: 16 hexadecimal digits."""
    size: int
    modified: float
    used: float
    marks: tuple[tuple[int, int], ...] = ((0, 0),)
    """First byte and number of the objects from there on."""
    record: Record | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, record: Record) -> Entry:
        """Return what a record says."""
        values = json.loads(record.value)
        marks = tuple((start, number) for start, number in values["marks"])
        return cls(**{**values, "marks": marks}, record=record)

    def encode(self) -> bytes:
        """Return the value of the record."""
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


class ObjectBlobWriter:
    """See BlobWriter.

    Args:
        store: of the blob.
        kind: of the blob.
        blob_id: its id.
        entry: what its record says.
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
                except RecordConflictError:
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
        with contextlib.suppress(RecordConflictError):
            marked = replace(self._entry, marks=self._entry.marked(self._stored))
            self._entry = self._store.swap(self._entry, marked)

    def _look(self) -> bool:
        """Look at the record again; return whether others have set a mark.

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
        except RecordMissingError as e:
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
