"""Heads under quotas, which are also noted as used, and timed: a StateStore around another.

Products register heads without a thought of quotas and lifetimes; both are a matter of the
store that they are given. The heads of an owner share the beginning of their ids, so their
usage is what the store counts for that space.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from app.errors import QuotaExceededError, StorageFullError

from . import base
from .base import Admit, Head, Page, StateStore
from .quotas import Quotas

NOTED = 3600.0
"""Seconds between two notes that a head is being used: a note is a write."""
_REMEMBERED = 10_000
"""Heads whose last note is remembered."""
_EXPECTED = (
    *(base.HeadConflictError, base.HeadExistsError, base.HeadInvalidError, base.HeadMissingError),
    *(QuotaExceededError, StorageFullError),
)
"""Answers rather than failures."""

Note = Callable[[str, float, bool], None]
"""Takes the name of an operation, its seconds, and whether it failed."""


class AdmittedHeads:
    """A StateStore that admits what its owners' quotas allow, and notes what is read.

    Args:
        heads: where the heads are.
        quotas: limit what is created.
        clock: seconds since 1970.
        note: called at the end of each operation.
    """

    def __init__(
        self,
        heads: StateStore,
        quotas: Quotas,
        clock: Callable[[], float] = time.time,
        note: Note = lambda *_: None,
    ) -> None:
        self._heads = heads
        self._quotas = quotas
        self._clock = clock
        self._note = note
        self._noted: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = threading.Lock()

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
        """See StateStore.

        Raises:
            HeadExistsError: as there.
            QuotaExceededError: the owner has too many heads of this kind, or too large ones.
        """
        nbytes = len(value) if size is None else size
        admit = admit or self._quotas.admission(kind, 1, nbytes)
        with self._timed("create"):
            return self._heads.create(kind, head_id, value, size=size, admit=admit)

    def get(self, kind: str, head_id: str) -> Head:
        """See StateStore; the head counts as used."""
        with self._timed("get"):
            head = self._heads.get(kind, head_id)
        if self._clock() - head.used > NOTED:
            # One that has expired by now is gone: who gets it may say that it is kept.
            self.touch(kind, head_id)
        return head

    def compare_and_swap(
        self, seen: Head, value: bytes, *, size: int | None = None, admit: Admit | None = None
    ) -> Head:
        """See StateStore.

        Raises:
            HeadMissingError, HeadConflictError: as there.
            QuotaExceededError: the new value is larger than the owner's quota allows.
        """
        nbytes = len(value) if size is None else size
        admit = admit or self._quotas.admission(seen.kind, 0, nbytes - seen.size)
        with self._timed("swap"):
            return self._heads.compare_and_swap(seen, value, size=size, admit=admit)

    def touch(self, kind: str, head_id: str) -> None:
        """See StateStore; at most once an hour for each head."""
        key, now = (kind, head_id), self._clock()
        with self._lock:
            if now - self._noted.get(key, float("-inf")) < NOTED:
                return
        # What can be read is to be read, even where nothing can be written.
        failures = (base.StoreBusyError, base.StoreFullError, base.StoreReadOnlyError)
        with contextlib.suppress(*failures), self._timed("touch"):
            self._heads.touch(kind, head_id)
        with self._lock:
            self._noted[key] = now
            self._noted.move_to_end(key)
            while len(self._noted) > _REMEMBERED:
                self._noted.popitem(last=False)

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
        with self._lock:
            self._noted.pop((kind, head_id), None)

    def close(self) -> None:
        """See StateStore."""
        self._heads.close()
