"""Heads in memory: for tests, and for a service whose data directory is not writable."""

from __future__ import annotations

import threading

from .base import (
    Head,
    Page,
    StoreError,
    check_key,
    check_page,
    check_value,
    conflict,
    exists,
    missing,
    new_nonce,
)


class MemoryStateStore:
    """A StateStore that lasts as long as its process."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], Head] | None = {}
        self._lock = threading.Lock()

    @property
    def _open(self) -> dict[tuple[str, str], Head]:
        if self._heads is None:
            raise StoreError("the store is closed")
        return self._heads

    def create(self, kind: str, head_id: str, value: bytes) -> Head:
        """See StateStore."""
        check_key(kind, head_id)
        head = Head(kind, head_id, check_value(value), 1, new_nonce())
        with self._lock:
            if self._open.setdefault((kind, head_id), head) is not head:
                raise exists(kind, head_id)
        return head

    def get(self, kind: str, head_id: str) -> Head:
        """See StateStore."""
        check_key(kind, head_id)
        with self._lock:
            head = self._open.get((kind, head_id))
        if head is None:
            raise missing(kind, head_id)
        return head

    def compare_and_swap(self, seen: Head, value: bytes) -> Head:
        """See StateStore."""
        check_key(seen.kind, seen.id)
        head = Head(seen.kind, seen.id, check_value(value), seen.generation + 1, seen.nonce)
        with self._lock:
            self._compare(seen.kind, seen.id, seen)
            self._open[seen.kind, seen.id] = head
        return head

    def _compare(self, kind: str, head_id: str, seen: Head | None) -> None:
        head = self._open.get((kind, head_id))
        if head is None:
            raise missing(kind, head_id)
        if seen is not None and not head.same_version(seen.generation, seen.nonce):
            raise conflict(kind, head_id)

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """See StateStore."""
        check_page(kind, prefix, after, limit)
        with self._lock:
            matches = sorted(
                (head.id, head)
                for (head_kind, head_id), head in self._open.items()
                if head_kind == kind and head_id.startswith(prefix) and head_id > after
            )
        heads = tuple(head for _, head in matches[:limit])
        return Page(heads, heads[-1].id if len(matches) > limit else None)

    def delete(self, kind: str, head_id: str, seen: Head | None = None) -> None:
        """See StateStore."""
        check_key(kind, head_id)
        with self._lock:
            self._compare(kind, head_id, seen)
            del self._open[kind, head_id]

    def close(self) -> None:
        """See StateStore."""
        with self._lock:
            self._heads = None
