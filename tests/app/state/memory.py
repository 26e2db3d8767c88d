"""Records in memory, for tests that have no need of a disk."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

from app.state.base import (
    Admit,
    Record,
    StateStore,
    StoreError,
    Usage,
    check_key,
    conflict,
    exists,
    in_use,
    missing,
    space_of,
)


class MemoryStateStore(StateStore):
    """A StateStore that lasts as long as its process."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Record] | None = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._nbytes: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    @property
    def _open(self) -> dict[tuple[str, str], Record]:
        if self._records is None:
            raise StoreError("the store is closed")
        return self._records

    def insert(self, record: Record, admit: Admit | None) -> Record:
        """See StateStore."""
        with self._lock:
            if (record.kind, record.id) in self._open:
                raise exists(record.kind, record.id)
            self._count(record.kind, record.id, 1, record.size, admit)
            self._open[record.kind, record.id] = record
        return record

    def _count(
        self, kind: str, record_id: str, count: int, nbytes: int, admit: Admit | None = None
    ) -> None:
        """Add to the usage of a record's space, if it is admitted."""
        key = (kind, space_of(record_id))
        usage = Usage(self._counts[key] + count, self._nbytes[key] + nbytes)
        if admit is not None:
            admit(usage)
        self._counts[key], self._nbytes[key] = usage.count, usage.nbytes
        if not usage.count:
            del self._counts[key], self._nbytes[key]

    def find(self, kind: str, record_id: str) -> Record | None:
        """See StateStore."""
        with self._lock:
            return self._open.get((kind, record_id))

    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        """See StateStore."""
        with self._lock:
            old = self._compare(seen.kind, seen.id, seen)
            self._count(seen.kind, seen.id, 0, new.size - old.size, admit)
            record = self._open[seen.kind, seen.id] = replace(new, used=old.used)
        return record

    def _compare(self, kind: str, record_id: str, seen: Record | None) -> Record:
        record = self._open.get((kind, record_id))
        if record is None:
            raise missing(kind, record_id)
        if seen is not None and not record.same_version(seen.generation, seen.nonce):
            raise conflict(kind, record_id)
        return record

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> list[Record]:
        """See StateStore."""
        with self._lock:
            matches = sorted(
                (record.id, record)
                for (head_kind, record_id), record in self._open.items()
                if head_kind == kind and record_id.startswith(prefix) and record_id > after
            )
        return [record for _, record in matches[:limit]]

    def touch(self, kind: str, record_id: str) -> None:
        """See StateStore."""
        check_key(kind, record_id)
        with self._lock:
            record = self._compare(kind, record_id, None)
            self._open[kind, record_id] = replace(record, used=time.time())

    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        """See StateStore."""
        with self._lock:
            record = self._compare(kind, record_id, seen)
            if unused_since is not None and record.used >= unused_since:
                raise in_use(kind, record_id)
            self._count(kind, record_id, -1, -record.size)
            del self._open[kind, record_id]

    def close(self) -> None:
        """See StateStore."""
        with self._lock:
            self._records = None
