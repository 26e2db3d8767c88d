"""Heads whose operations are timed: a StateStore around another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from app.errors import QuotaExceededError, StorageFullError

from .base import (
    Admit,
    Head,
    HeadConflictError,
    HeadExistsError,
    HeadInvalidError,
    HeadMissingError,
    Page,
    StateStore,
)

_EXPECTED = (
    HeadConflictError,
    HeadExistsError,
    HeadInvalidError,
    HeadMissingError,
    QuotaExceededError,
    StorageFullError,
)
"""Answers rather than failures."""

Note = Callable[[str, float, bool], None]
"""Takes the name of an operation, its seconds, and whether it failed."""


class TimedHeads:
    """A StateStore that reports how long each operation took.

    Args:
        heads: where the heads are.
        note: called at the end of each operation.
    """

    def __init__(self, heads: StateStore, note: Note) -> None:
        self._heads = heads
        self._note = note

    @contextlib.contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        start = time.perf_counter()
        failed = True
        try:
            yield
            failed = False
        except _EXPECTED:
            failed = False
            raise
        finally:
            self._note(operation, time.perf_counter() - start, failed)

    def create(
        self,
        kind: str,
        head_id: str,
        value: bytes,
        *,
        size: int | None = None,
        admit: Admit | None = None,
    ) -> Head:
        """See StateStore."""
        with self._timed("create"):
            return self._heads.create(kind, head_id, value, size=size, admit=admit)

    def get(self, kind: str, head_id: str) -> Head:
        """See StateStore."""
        with self._timed("get"):
            return self._heads.get(kind, head_id)

    def compare_and_swap(
        self, seen: Head, value: bytes, *, size: int | None = None, admit: Admit | None = None
    ) -> Head:
        """See StateStore."""
        with self._timed("swap"):
            return self._heads.compare_and_swap(seen, value, size=size, admit=admit)

    def touch(self, kind: str, head_id: str) -> None:
        """See StateStore."""
        with self._timed("touch"):
            self._heads.touch(kind, head_id)

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """See StateStore."""
        with self._timed("list"):
            return self._heads.list(kind, prefix, after, limit)

    def delete(
        self,
        kind: str,
        head_id: str,
        seen: Head | None = None,
        *,
        unused_since: float | None = None,
    ) -> None:
        """See StateStore."""
        with self._timed("delete"):
            self._heads.delete(kind, head_id, seen, unused_since=unused_since)

    def close(self) -> None:
        """See StateStore."""
        self._heads.close()
