"""Quotas: how much each owner may store, by count and by bytes; and the heads under them.

The store of heads counts what each owner has, within the transaction that stores one thing
more, and asks the quota there. So a limit is neither passed by workers that store at the
same time, nor forgotten by a crash. The heads of an owner share the beginning of their ids, so
their usage is what the store counts for that space.

Products register heads without a thought of quotas and lifetimes; both are a matter of the
store that they are given, which is another around that of the service.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.errors import QuotaExceededError, StorageFullError

from . import base
from .base import Admit, Head, StateStore, Usage

_RETRY = 10
"""Seconds after which a client may hope that something of its own has expired."""


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


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one owner may have of one kind."""

    name: str
    """Name of the kind, in the plural, for people."""
    count: int
    nbytes: int


class Quotas:
    """The quotas of a service.

    Args:
        limits: the limit of each kind; others are unlimited.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self.limits = dict(limits)

    def admission(self, kind: str, count: int, nbytes: int) -> Admit | None:
        """Return what admits a change to an owner's usage; None if the kind is unlimited.

        It raises QuotaExceededError if the change exceeds the limit. A change that adds
        nothing is admitted even where a limit was lowered below what is stored.

        Args:
            kind: kind of the heads.
            count: number of heads that the change adds.
            nbytes: number of bytes that it adds.
        """
        limit = self.limits.get(kind)
        if limit is None:
            return None

        def admit(usage: Usage) -> None:
            if count > 0 and usage.count > limit.count:
                used = usage.count - count
                refuse(f"{limit.name}.count", limit.count, used, retry_after=_RETRY)
            if nbytes > 0 and usage.nbytes > limit.nbytes:
                used = usage.nbytes - nbytes
                refuse(f"{limit.name}.bytes", limit.nbytes, used, retry_after=_RETRY)

        return admit


class AdmittedHeads(StateStore):
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

    def insert(self, head: Head, admit: Admit | None) -> Head:
        """See StateStore.

        Raises:
            QuotaExceededError: the owner has too many heads of this kind, or too large ones.
        """
        admit = admit or self._quotas.admission(head.kind, 1, head.size)
        with self._timed("create"):
            return self._heads.insert(head, admit)

    def find(self, kind: str, head_id: str) -> Head | None:
        """See StateStore; the head counts as used."""
        with self._timed("get"):
            head = self._heads.find(kind, head_id)
        if head is not None and self._clock() - head.used > NOTED:
            # One that has expired by now is gone: who gets it may say that it is kept.
            self.touch(kind, head_id)
        return head

    def swap(self, seen: Head, new: Head, admit: Admit | None) -> Head:
        """See StateStore.

        Raises:
            QuotaExceededError: the new value is larger than the owner's quota allows.
        """
        admit = admit or self._quotas.admission(seen.kind, 0, new.size - seen.size)
        with self._timed("swap"):
            return self._heads.swap(seen, new, admit)

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

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> Sequence[Head]:
        """See StateStore."""
        with self._timed("list"):
            return self._heads.scan(kind, prefix, after, limit)

    def remove(
        self, kind: str, head_id: str, seen: Head | None, unused_since: float | None
    ) -> None:
        """See StateStore."""
        with self._timed("delete"):
            self._heads.remove(kind, head_id, seen, unused_since)
        with self._lock:
            self._noted.pop((kind, head_id), None)

    def close(self) -> None:
        """See StateStore."""
        self._heads.close()


def refuse(limit: str, allowed: int, used: int, *, retry_after: int) -> None:
    """Raise the error for a limit that is reached.

    Raises:
        QuotaExceededError: always.
    """
    what, _, unit = limit.partition(".")
    counted, setting = f"{allowed} {what}", what.upper()
    if unit != "count":
        counted, setting = f"{allowed} bytes of {what}", f"{setting.removesuffix('S')}_BYTES"
    raise QuotaExceededError(
        f"an owner may have {counted}",
        hint="Delete what is not needed, or ask the operator for more",
        retry_after=retry_after,
        limit=limit,
        setting=f"THALWEG_QUOTA_{setting}",
        allowed=allowed,
        used=used,
    )
