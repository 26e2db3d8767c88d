"""Stores, turns and notifications whose every call is a point of a scheduler."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.runs.watching import Watch
from app.state.base import Admit, Record, StateStore, StoreBusyError, space_of
from app.state.blobs import BlobInfo, BlobPage, Octets
from app.state.quotas import Limit
from tests.app.state.memory import MemoryStateStore
from tests.app.state.memory_blobs import MemoryBlobStore

from .calls import Access, Call, adds, reads, writes
from .scheduler import Scheduler

_LONG = re.compile(r"\b[0-9a-f]{16}\.|(?<=[0-9a-f]{4})[0-9a-f]{20,}")
"""Namespaces, and all but the beginning of long ids."""


class Shared:
    """What all processes have in common: the stores, and the clock of the machine."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.records = MemoryStateStore()
        self.blobs = MemoryBlobStore()
        self.written: set[tuple[str, str]] = set()
        """Kinds and ids of the blobs that have an open writer."""
        self.now = time.time()
        self.states: list[tuple[str, str]] = []
        """Ids and states of runs, in the order in which they were stored."""
        self.names: dict[str, str] = {}
        """Ids of what was there before the operations, by names for people."""
        self.limits: Mapping[str, Limit] = {}
        """Quotas: of these kinds, who creates or deletes a record may decide another creation."""

    def copy(self) -> Shared:
        """Return another of equal content."""
        made = Shared(self.scheduler)
        made.records._records = dict(self.records._open)
        made.records._counts = Counter(self.records._counts)
        made.records._nbytes = Counter(self.records._nbytes)
        made.blobs._blobs = {
            key: replace(blob, data=bytearray(blob.data)) for key, blob in self.blobs._open.items()
        }
        made.blobs._size = self.blobs._size
        made.now = self.now
        made.states = list(self.states)
        made.names = dict(self.names)
        made.limits = self.limits
        return made

    def limited(self, **counts: int) -> Shared:
        """Return this where each owner may have so many records of some kinds."""
        return self._with({kind: Limit(f"{kind}s", n, sys.maxsize) for kind, n in counts.items()})

    def cramped(self, **nbytes: int) -> Shared:
        """Return this where each owner has room for so many more bytes of some kinds."""
        used: Counter[str] = Counter()
        for (kind, _space), (_, stored) in self.usage().items():
            used[kind] = max(used[kind], stored)
        sizes = {kind: used[kind] + more for kind, more in nbytes.items()}
        return self._with({kind: Limit(f"{kind}s", sys.maxsize, n) for kind, n in sizes.items()})

    def _with(self, limits: Mapping[str, Limit]) -> Shared:
        made = self.copy()
        made.limits = limits
        return made

    def note(self, record: Record) -> None:
        """Note the state of a run that was stored."""
        if record.kind == "run":
            self.states.append((record.id, json.loads(record.value)["value"]["state"]))

    def all_records(self) -> list[tuple[str, str]]:
        """Kinds and ids of all records."""
        return sorted(self.records._open)

    def all_blobs(self) -> list[tuple[str, str]]:
        """Kinds and ids of all blobs."""
        return sorted(self.blobs._open)

    def usage(self) -> dict[tuple[str, str], tuple[int, int]]:
        """What the store counts, by kind and space: records and their bytes."""
        return {key: (n, self.records._nbytes[key]) for key, n in self.records._counts.items()}

    def digest(self) -> bytes:
        """Return a digest of all that is stored and noted, with times to the hour."""
        records = (
            (
                *key,
                record.value,
                record.generation,
                record.nonce,
                record.size,
                self._age(record.used),
            )
            for key, record in sorted(self.records._open.items())
        )
        blobs = (
            (*key, bytes(blob.data), self._age(blob.used), self._age(blob.modified))
            for key, blob in sorted(self.blobs._open.items())
        )
        noted = (*records, *blobs, sorted(self.usage().items()), self.states, self.names)
        return hashlib.blake2b(repr(noted).encode(), digest_size=16).digest()

    def _age(self, used: float) -> int:
        return round((self.now - used) / 3600.0)

    def clock(self) -> float:
        """Return the time; a point, though it commutes with all but a change of the clock."""
        self.scheduler.point(reads("read the clock", "clock", "now"))
        return self.now

    def set_clock(self, seconds: float) -> None:
        """Set the clock forth."""
        self.scheduler.point(writes(f"set the clock forth by {seconds:.0f} s", "clock", "now"))
        self.now += seconds


def age(shared: Shared, seconds: float) -> None:
    """Make everything older."""
    for key, record in shared.records._open.items():
        shared.records._open[key] = replace(record, used=record.used - seconds)
    for blob in shared.blobs._open.values():
        blob.used -= seconds
        blob.modified -= seconds


def _named(kind: str, ident: str) -> str:
    return f"{kind} {_LONG.sub('', ident)}"


class PointedRecords(StateStore):
    """A StateStore with a point before each call."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._records = shared.records

    def _changes(self, what: str, kind: str, record_id: str, *others: Access) -> None:
        accesses = [Access("writes", kind, record_id), *others]
        limit = self._shared.limits.get(kind)
        if limit is not None and (what != "swap" or limit.nbytes < sys.maxsize):
            accesses.append(Access("writes", f"usage of {kind}", space_of(record_id)))
        text = f"{what} {_named(kind, record_id)}"
        self._shared.scheduler.point(Call(text, tuple(accesses)))

    def insert(self, record: Record, admit: Admit | None) -> Record:
        self._changes("create", record.kind, record.id)
        made = self._records.insert(record, admit)
        self._shared.note(made)
        return made

    def find(self, kind: str, record_id: str) -> Record | None:
        self._shared.scheduler.point(reads(f"get {_named(kind, record_id)}", kind, record_id))
        return self._records.find(kind, record_id)

    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        self._changes("swap", seen.kind, seen.id)
        record = self._records.swap(seen, new, admit)
        self._shared.note(record)
        return record

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> list[Record]:
        text = f"list {_named(kind, prefix)}"
        self._shared.scheduler.point(reads(text, kind, prefix, is_prefix=True))
        return self._records.scan(kind, prefix, after, limit)

    def touch(self, kind: str, record_id: str) -> None:
        text = f"touch {_named(kind, record_id)}"
        used = Access("writes", f"use of {kind}", record_id)
        self._shared.scheduler.point(Call(text, (Access("reads", kind, record_id), used)))
        self._records.touch(kind, record_id)

    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        self._changes("delete", kind, record_id, Access("writes", f"use of {kind}", record_id))
        self._records.remove(kind, record_id, seen, unused_since)

    def close(self) -> None:
        """Leave the store open: others use it."""


class PointedBlobs:
    """A BlobStore with a point before each call."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._blobs = shared.blobs

    def _changes(self, what: str, kind: str, blob_id: str) -> None:
        text = f"{what} bytes of {_named(kind, blob_id)}"
        self._shared.scheduler.point(writes(text, f"bytes of {kind}", blob_id))

    def _reads(self, what: str, kind: str, blob_id: str, *, is_prefix: bool = False) -> None:
        text = f"{what} bytes of {_named(kind, blob_id)}"
        made = reads(text, f"bytes of {kind}", blob_id, is_prefix=is_prefix)
        self._shared.scheduler.point(made)

    def put(self, kind: str, blob_id: str, data: Octets) -> bool:
        self._changes("put", kind, blob_id)
        return self._blobs.put(kind, blob_id, data)

    def append(self, kind: str, blob_id: str, offset: int, data: Octets) -> int:
        self._changes("append", kind, blob_id)
        return self._blobs.append(kind, blob_id, offset, data)

    def writer(self, kind: str, blob_id: str, offset: int) -> PointedWriter:
        self._changes("open", kind, blob_id)
        self._blobs.append(kind, blob_id, offset, b"")
        self._shared.written.add((kind, blob_id))
        return PointedWriter(self, kind, blob_id, offset)

    def close_writer(self, kind: str, blob_id: str) -> None:
        """Let others delete a blob; a death does, too."""
        try:
            self._changes("close", kind, blob_id)
        finally:
            self._shared.written.discard((kind, blob_id))

    def trim(self, kind: str, blob_id: str, size: int) -> None:
        self._changes("trim", kind, blob_id)
        if (kind, blob_id) in self._shared.written:
            raise StoreBusyError("somebody appends to it")
        self._blobs.trim(kind, blob_id, size)

    def range(self, kind: str, blob_id: str, start: int = 0, stop: int | None = None) -> bytes:
        self._reads("read", kind, blob_id)
        return self._blobs.range(kind, blob_id, start, stop)

    def info(self, kind: str, blob_id: str) -> BlobInfo:
        self._reads("look at", kind, blob_id)
        return self._blobs.info(kind, blob_id)

    def touch(self, kind: str, blob_id: str, when: float | None = None) -> None:
        self._changes("touch", kind, blob_id)
        self._blobs.touch(kind, blob_id, when)

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> BlobPage:
        self._reads("list", kind, prefix, is_prefix=True)
        return self._blobs.list(kind, prefix, after, limit)

    def delete(self, kind: str, blob_id: str, *, unused_since: float | None = None) -> None:
        self._changes("delete", kind, blob_id)
        if (kind, blob_id) in self._shared.written:
            raise StoreBusyError("somebody appends to it")
        self._blobs.delete(kind, blob_id, unused_since=unused_since)

    def clean(self) -> int:
        return self._blobs.clean()

    def close(self) -> None:
        """Leave the store open: others use it."""


class PointedWriter:
    """A BlobWriter whose commits are points; what is written is its own until then."""

    def __init__(self, blobs: PointedBlobs, kind: str, blob_id: str, size: int) -> None:
        self._blobs = blobs
        self._kind = kind
        self._id = blob_id
        self._size = size
        self._waiting = bytearray()
        self._closed = False

    def write(self, data: Octets) -> int:
        self._waiting += memoryview(data).cast("B")
        return self._size + len(self._waiting)

    def commit(self) -> int:
        self._size = self._blobs.append(self._kind, self._id, self._size, bytes(self._waiting))
        self._waiting.clear()
        return self._size

    def close(self) -> None:
        self._waiting.clear()
        if not self._closed:
            self._closed = True
            self._blobs.close_writer(self._kind, self._id)


class PointedWatch(Watch):
    """A Watch whose announcements are points."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def announce(self, run: str) -> None:
        self._scheduler.point(adds(f"announce {_LONG.sub('', run)}", "watch", run))
        super().announce(run)


class PointedLock:
    """A lock that one operation at a time has; a context, and a Turn if it is called."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name

    def __enter__(self) -> None:
        self._scheduler.point(Call(f"acquire {self._name}", lock=self._name, step="acquire"))

    def __exit__(self, *_exception: object) -> None:
        self._scheduler.point(Call(f"release {self._name}", lock=self._name, step="release"))

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Return a context in which nobody else has the lock; see ``Turn``."""
        with self:
            yield
