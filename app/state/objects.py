"""Blobs in an object store, shared by the nodes of a service.

An object store can create an object, and cannot append to it, nor change a part. So the content of
a blob is a row of immutable objects, and a *record* says which of them it consists of.

*Writing* creates the next object, which fails if it exists, and then swaps the record, which
commits it; before that nobody reads it. A process that dies between the two leaves an object
in the way. Whoever finds one waits a moment for its writer to commit, then sets a *mark* in
the record: from this byte on, objects have the next number. So no object is ever written over,
and what a record has committed was created by whoever committed it. *Trimming* shortens the
record and sets a mark too. *Deleting* removes the record, then the objects. What is in no record is
garbage, and swept.

All that must not happen twice, or halfway, is decided by the records. The store has only to refuse
to create what exists, which :mod:`app.state.object_service` tries before it is used.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from . import base, blobs, object_layout
from .base import Record, RecordConflictError, RecordExistsError, RecordMissingError, StateStore
from .blob_pieces import DamageError
from .blobs import BlobInfo, BlobMissingError, BlobPage, GrowingBlobs, Note, check_blob
from .object_layout import OBJECT, Entry, Extent, ObjectBlobWriter, prefix_of, start_of
from .object_service import store_error

_PLACES = 1024
"""Blobs whose objects are remembered."""
_NOTED = 10.0
"""Seconds within which a second use of a blob is not noted."""
_ABANDONED = 3600.0
"""Age of objects without a record that are garbage: their writer may be about to commit them."""
_PROBE = "probe"
"""An object that is written to see whether any can be, and what time it is there."""
_SWEPT = 1000
"""Objects that are looked at in one call of ``clean``."""


class ObjectBlobStore(GrowingBlobs):
    """A BlobStore in an object store. What two writers of a blob commit is decided by its record.

    Args:
        records: say what each blob consists of.
        objects: where the objects are; ``check_objects`` has accepted it.
        clock: seconds since 1970.
        note: told the kind of each request to the store, its seconds, and whether it failed.
    """

    def __init__(
        self,
        records: StateStore,
        objects: ObjectStore,
        clock: Callable[[], float] = time.time,
        note: Note = blobs.no_note,
    ) -> None:
        self.records = records
        self.objects = objects
        self.clock = clock
        self._known: OrderedDict[str, tuple[tuple[tuple[int, int], ...], list[int]]] = OrderedDict()
        self._lock = threading.Lock()
        self._swept = ""
        self._closed = False
        self._timed = partial(blobs.timed, note, (AlreadyExistsError, FileNotFoundError))

    def check(self) -> None:
        """Check that the store answers, and takes an object.

        Raises:
            StoreError: it does not.
        """
        with self._using("probe", "any"):
            obstore.put(self.objects, _PROBE, b"", use_multipart=False)

    # -- records --------------------------------------------------------------------------

    def entry(self, kind: str, blob_id: str) -> Entry:
        """Return what the record of a blob says.

        Raises:
            BlobMissingError: there is none.
            StoreDamagedError: it is damaged.
        """
        try:
            return Entry.of(self.records.get(_kind(kind), blob_id))
        except RecordMissingError as e:
            raise blobs.no_blob(kind, blob_id) from e
        except object_layout.MALFORMED as e:
            raise base.damaged(kind, blob_id) from e

    def swap(self, seen: Entry, new: Entry) -> Entry:
        """Replace what the record of a blob says; return it with its record.

        Raises:
            RecordConflictError, RecordMissingError: it has changed since it was seen.
        """
        assert seen.record is not None  # noqa: S101 - it was read
        return replace(
            new, record=self.records.compare_and_swap(seen.record, new.encode(), size=new.size)
        )

    def _create(self, kind: str, blob_id: str, view: memoryview) -> bool:
        """Create a blob whole; return False if another has its name."""
        now = self.clock()
        entry = Entry(secrets.token_hex(8), len(view), now, now)
        for start in range(0, len(view), OBJECT):
            part = view[start : start + OBJECT]
            self.create_object(Extent(kind, blob_id, entry, start, start + len(part)), part)
        try:
            self.records.create(_kind(kind), blob_id, entry.encode(), size=len(view))
        except RecordExistsError:
            self._remove(kind, blob_id, entry)
            return False
        return True

    # -- writing ------------------------------------------------------------------------

    def _replace(self, kind: str, blob_id: str, _view: memoryview) -> bool:
        # Deleted and created again, so that nobody reads old objects by new marks.
        with contextlib.suppress(BlobMissingError):
            self.delete(kind, blob_id)
        return False

    def _writer(self, kind: str, blob_id: str, offset: int) -> ObjectBlobWriter:
        entry = self.entry(kind, blob_id)
        if offset != entry.size:
            raise blobs.other_offset(kind, blob_id, offset, entry.size)
        return ObjectBlobWriter(self, kind, blob_id, entry)

    def create_object(self, extent: Extent, view: memoryview) -> None:
        """Create an object.

        Raises:
            AlreadyExistsError: there is one.
        """
        data = extent.encode(view)
        with self._timed("put"):
            obstore.put(self.objects, extent.path, data, mode="create", use_multipart=False)

    def trim(self, kind: str, blob_id: str, size: int) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id, size)
        with self._using(kind, blob_id):
            while True:
                entry = self.entry(kind, blob_id)
                starts = self._starts(kind, blob_id, entry)
                end = next((start for start in starts if start >= size), entry.size)
                if end == entry.size:
                    return
                new = replace(entry, size=end, marks=entry.marked(end), modified=self.clock())
                with contextlib.suppress(RecordConflictError, RecordMissingError):
                    self.swap(entry, new)
                    self._remove(kind, blob_id, entry, end)
                    return

    def touch(self, kind: str, blob_id: str, moment: float | None = None) -> None:
        """See BlobStore; within ten seconds a second note is not made."""
        check_blob(kind, blob_id)
        used = self.clock() if moment is None else moment
        with self._using(kind, blob_id):
            while True:
                entry = self.entry(kind, blob_id)
                if 0 <= used - entry.used < _NOTED:
                    return
                with contextlib.suppress(RecordConflictError, RecordMissingError):
                    self.swap(entry, replace(entry, used=used))
                    return

    def delete(self, kind: str, blob_id: str, *, unused_since: float | None = None) -> None:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._using(kind, blob_id):
            while True:
                try:
                    record = self.records.get(_kind(kind), blob_id)
                    entry = None
                    with contextlib.suppress(*object_layout.MALFORMED):
                        entry = Entry.of(record)
                    used = record.used if entry is None else entry.used
                    if unused_since is not None and used >= unused_since:
                        raise base.in_use(kind, blob_id)
                    try:
                        self.records.delete(_kind(kind), blob_id, record)
                    except RecordConflictError:
                        continue
                except RecordMissingError as e:
                    raise blobs.no_blob(kind, blob_id) from e
                if entry is not None:
                    self._remove(kind, blob_id, entry)
                return

    def _remove(self, kind: str, blob_id: str, entry: Entry, start: int = 0) -> None:
        """Remove the objects of a blob from a byte on; what stays of them is swept."""
        with self._lock:
            self._known.pop(entry.place, None)
        prefix = prefix_of(kind, blob_id, entry)
        with contextlib.suppress(BaseError, FileNotFoundError):
            for page in obstore.list(self.objects, prefix):
                paths = [found["path"] for found in page if start_of(found["path"]) >= start]
                if paths:
                    with self._timed("delete"):
                        obstore.delete(self.objects, paths)

    def clean(self) -> int:
        """See BlobStore; looks at some objects, and goes on there the next time."""
        removed = 0
        with self._using("any", "any"):
            # By the clock that stamps them, whatever that of this machine says.
            self.check()
            now = obstore.head(self.objects, _PROBE)["last_modified"]
            oldest = now.timestamp() - _ABANDONED
            found = next(
                iter(obstore.list(self.objects, offset=self._swept, chunk_size=_SWEPT)), []
            )
            self._swept = found[-1]["path"] if len(found) == _SWEPT else ""
            for each in found:
                if each["last_modified"].timestamp() < oldest and self._is_garbage(each["path"]):
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self.objects, each["path"])
                        removed += 1
        return removed

    def _is_garbage(self, path: str) -> bool:
        parts = path.split("/")
        if len(parts) != len(("kind", "blob", "place", "object")):
            return False
        kind, blob_id, place, name = parts
        try:
            entry = self.entry(kind, blob_id)
        except BlobMissingError:
            return True
        except base.StoreError:
            return False
        start, number = start_of(path), int(name.rpartition(".")[2])
        # A writer may be about to commit what lies after the end.
        return entry.place != place or (start < entry.size and entry.number(start) != number)

    # -- reading ------------------------------------------------------------------------

    def range(self, kind: str, blob_id: str, start: int = 0, stop: int | None = None) -> bytes:
        """See BlobStore."""
        check_blob(kind, blob_id, start)
        with self._using(kind, blob_id):
            while True:
                entry = self.entry(kind, blob_id)
                end = entry.size if stop is None else min(stop, entry.size)
                if start >= end:
                    return b""
                try:
                    return self._read(kind, blob_id, entry, start, end)
                except (FileNotFoundError, DamageError):
                    # It was trimmed or deleted, perhaps, since it was looked at.
                    with self._lock:
                        self._known.pop(entry.place, None)
                    if self.entry(kind, blob_id).record == entry.record:
                        return self._read(kind, blob_id, entry, start, end)

    def _read(self, kind: str, blob_id: str, entry: Entry, start: int, stop: int) -> bytes:
        starts = self._starts(kind, blob_id, entry)
        first = bisect_right(starts, start) - 1
        parts = [
            self._read_object(Extent(kind, blob_id, entry, begin, end), start, stop)
            for begin, end in pairwise([*starts[first:], entry.size])
            if begin < stop
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_object(self, extent: Extent, start: int, stop: int) -> bytes:
        """Return those of some bytes of the blob that are in an object."""
        start, stop = max(start, extent.start), min(stop, extent.stop)
        begin, end = extent.span(start, stop)
        with self._timed("get"):
            found = obstore.get_range(self.objects, extent.path, start=begin, end=end)
        return extent.decode(memoryview(found).cast("B"), start, stop)

    def _starts(self, kind: str, blob_id: str, entry: Entry) -> list[int]:
        """Return the first bytes of the objects of a blob, in order.

        Raises:
            DamageError: one is missing.
        """
        if entry.size == 0:
            return []
        with self._lock:
            known = self._known.get(entry.place)
        starts = known[1] if known is not None and known[0] == entry.marks else [0]
        if starts[-1] < entry.size:
            starts = self._listed(kind, blob_id, entry, starts)
            with self._lock:
                self._known[entry.place] = (entry.marks, starts)
                self._known.move_to_end(entry.place)
                while len(self._known) > _PLACES:
                    self._known.popitem(last=False)
        return [start for start in starts if start < entry.size]

    def _listed(self, kind: str, blob_id: str, entry: Entry, starts: list[int]) -> list[int]:
        """Return the ends of the objects that follow the known ones, after those."""
        starts = list(starts)
        prefix = prefix_of(kind, blob_id, entry)
        # The name before that of the first object which is not known, whatever its number.
        offset = f"{prefix}{starts[-1]:016x}"
        for page in obstore.list(self.objects, prefix, offset=offset):
            for found in page:
                start = starts[-1]
                if found["path"] == Extent(kind, blob_id, entry, start, start).path:
                    starts.append(starts[-1] + object_layout.data_size(found["size"]))
                    if starts[-1] >= entry.size:
                        return starts
        raise DamageError

    def info(self, kind: str, blob_id: str) -> BlobInfo:
        """See BlobStore."""
        check_blob(kind, blob_id)
        with self._using(kind, blob_id):
            entry = self.entry(kind, blob_id)
        return BlobInfo(kind, blob_id, entry.size, entry.modified, entry.used)

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> BlobPage:
        """See BlobStore."""
        base.check_page(kind, prefix, after, limit)
        with self._using(kind, "any"):
            page = self.records.list(_kind(kind), prefix, after, limit)
        return BlobPage(tuple(_info(kind, record) for record in page.records), page.after)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all blobs."""
        with self._using("any", "any"):
            found = obstore.list_with_delimiter(self.objects)["common_prefixes"]
        return tuple(sorted(path.strip("/") for path in found))

    @contextlib.contextmanager
    def _using(self, kind: str, blob_id: str) -> Iterator[None]:
        """Raise only errors of a store."""
        if self._closed:
            raise base.StoreError("the store is closed")
        try:
            yield
        except (DamageError, FileNotFoundError) as e:
            raise base.damaged(kind, blob_id) from e
        except BaseError as e:
            raise store_error(e) from e

    def close(self) -> None:
        """See BlobStore."""
        self._closed = True


def _kind(kind: str) -> str:
    """Return the kind of the records of blobs."""
    return f"b_{kind}"


def _info(kind: str, record: Record) -> BlobInfo:
    try:
        entry = Entry.of(record)
    except object_layout.MALFORMED:
        return BlobInfo(kind, record.id, 0, record.used, record.used)
    return BlobInfo(kind, record.id, entry.size, entry.modified, entry.used)
