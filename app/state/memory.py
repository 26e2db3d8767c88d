"""Heads in memory: for tests, and for a service that is to keep nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from .base import (
    Head,
    Page,
    StoreError,
    check_key,
    check_page,
    check_value,
    conflict,
    exists,
    in_use,
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
        head = Head(kind, head_id, check_value(value), 1, new_nonce(), time.time())
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
            used = self._compare(seen.kind, seen.id, seen).used
            self._open[seen.kind, seen.id] = replace(head, used=used)
        return head

    def _compare(self, kind: str, head_id: str, seen: Head | None) -> Head:
        head = self._open.get((kind, head_id))
        if head is None:
            raise missing(kind, head_id)
        if seen is not None and not head.same_version(seen.generation, seen.nonce):
            raise conflict(kind, head_id)
        return head

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

    def touch(self, kind: str, head_id: str) -> None:
        """See StateStore."""
        check_key(kind, head_id)
        with self._lock:
            head = self._compare(kind, head_id, None)
            self._open[kind, head_id] = replace(head, used=time.time())

    def delete(
        self,
        kind: str,
        head_id: str,
        seen: Head | None = None,
        *,
        unused_since: float | None = None,
    ) -> None:
        """See StateStore."""
        check_key(kind, head_id)
        with self._lock:
            head = self._compare(kind, head_id, seen)
            if unused_since is not None and head.used >= unused_since:
                raise in_use(kind, head_id)
            del self._open[kind, head_id]

    def close(self) -> None:
        """See StateStore."""
        with self._lock:
            self._heads = None
