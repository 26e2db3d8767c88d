"""Heads in the memory of one process: for tests, and for a service that keeps nothing."""

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
    """A StateStore that ends with its process."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], Head] | None = {}
        self._lock = threading.Lock()

    @property
    def _open(self) -> dict[tuple[str, str], Head]:
        if self._heads is None:
            raise StoreError("the store is closed")
        return self._heads

    def create(self, kind: str, head_id: str, value: bytes) -> Head:
        """Make a head, at generation 1.

        Raises:
            HeadExistsError: there is one already, whatever its value.
            HeadInvalidError: an argument that no store takes.
        """
        check_key(kind, head_id)
        head = Head(kind, head_id, check_value(value), 1, new_nonce())
        with self._lock:
            if self._open.setdefault((kind, head_id), head) is not head:
                raise exists(kind, head_id)
        return head

    def get(self, kind: str, head_id: str) -> Head:
        """The head as it is.

        Raises:
            HeadMissingError: there is none.
            HeadInvalidError: an argument that no store takes.
        """
        check_key(kind, head_id)
        with self._lock:
            head = self._open.get((kind, head_id))
        if head is None:
            raise missing(kind, head_id)
        return head

    def compare_and_swap(self, seen: Head, value: bytes) -> Head:
        """Replace the value of a head that is still as it was seen; returns the new one.

        Raises:
            HeadMissingError: there is none any more.
            HeadConflictError: it was swapped since, or deleted and made again.
            HeadInvalidError: an argument that no store takes.
        """
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
        """Heads whose id begins with a prefix, in the order of their ids' bytes.

        Raises:
            HeadInvalidError: an argument that no store takes.
        """
        check_page(kind, prefix, after, limit)
        with self._lock:
            found = sorted(
                (head.id, head)
                for (its_kind, head_id), head in self._open.items()
                if its_kind == kind and head_id.startswith(prefix) and head_id > after
            )
        heads = tuple(head for _, head in found[:limit])
        return Page(heads, heads[-1].id if len(found) > limit else None)

    def delete(self, kind: str, head_id: str, seen: Head | None = None) -> None:
        """Remove a head; if ``seen`` is given, only if it is still as it was seen.

        Raises:
            HeadMissingError: there is none.
            HeadConflictError: it is not as it was seen.
            HeadInvalidError: an argument that no store takes.
        """
        check_key(kind, head_id)
        with self._lock:
            self._compare(kind, head_id, seen)
            del self._open[kind, head_id]

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        with self._lock:
            self._heads = None
