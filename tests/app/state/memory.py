"""Heads in memory, for tests that have no need of a disk."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

from app.state.base import (
    Admit,
    Head,
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
        self._heads: dict[tuple[str, str], Head] | None = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._nbytes: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    @property
    def _open(self) -> dict[tuple[str, str], Head]:
        if self._heads is None:
            raise StoreError("the store is closed")
        return self._heads

    def insert(self, head: Head, admit: Admit | None) -> Head:
        """See StateStore."""
        with self._lock:
            if (head.kind, head.id) in self._open:
                raise exists(head.kind, head.id)
            self._count(head.kind, head.id, 1, head.size, admit)
            self._open[head.kind, head.id] = head
        return head

    def _count(
        self, kind: str, head_id: str, count: int, nbytes: int, admit: Admit | None = None
    ) -> None:
        """Add to the usage of a head's space, if it is admitted."""
        key = (kind, space_of(head_id))
        usage = Usage(self._counts[key] + count, self._nbytes[key] + nbytes)
        if admit is not None:
            admit(usage)
        self._counts[key], self._nbytes[key] = usage.count, usage.nbytes
        if not usage.count:
            del self._counts[key], self._nbytes[key]

    def find(self, kind: str, head_id: str) -> Head | None:
        """See StateStore."""
        with self._lock:
            return self._open.get((kind, head_id))

    def swap(self, seen: Head, new: Head, admit: Admit | None) -> Head:
        """See StateStore."""
        with self._lock:
            old = self._compare(seen.kind, seen.id, seen)
            self._count(seen.kind, seen.id, 0, new.size - old.size, admit)
            head = self._open[seen.kind, seen.id] = replace(new, used=old.used)
        return head

    def _compare(self, kind: str, head_id: str, seen: Head | None) -> Head:
        head = self._open.get((kind, head_id))
        if head is None:
            raise missing(kind, head_id)
        if seen is not None and not head.same_version(seen.generation, seen.nonce):
            raise conflict(kind, head_id)
        return head

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> list[Head]:
        """See StateStore."""
        with self._lock:
            matches = sorted(
                (head.id, head)
                for (head_kind, head_id), head in self._open.items()
                if head_kind == kind and head_id.startswith(prefix) and head_id > after
            )
        return [head for _, head in matches[:limit]]

    def touch(self, kind: str, head_id: str) -> None:
        """See StateStore."""
        check_key(kind, head_id)
        with self._lock:
            head = self._compare(kind, head_id, None)
            self._open[kind, head_id] = replace(head, used=time.time())

    def remove(
        self, kind: str, head_id: str, seen: Head | None, unused_since: float | None
    ) -> None:
        """See StateStore."""
        with self._lock:
            head = self._compare(kind, head_id, seen)
            if unused_since is not None and head.used >= unused_since:
                raise in_use(kind, head_id)
            self._count(kind, head_id, -1, -head.size)
            del self._open[kind, head_id]

    def close(self) -> None:
        """See StateStore."""
        with self._lock:
            self._heads = None
