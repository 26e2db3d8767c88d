"""Quotas: how much each owner may store, by count and by bytes; and the records under them.

The store of records counts what each owner has, within the transaction that stores one thing
more, and asks the quota there. So a limit is neither passed by workers that store at the
same time, nor forgotten by a crash. The records of an owner share the beginning of their ids, so
their usage is what the store counts for that space.

Products register records without a thought of quotas and lifetimes; both are a matter of the
store that they are given, which is another around that of the service.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.errors import QuotaExceededError, StorageFullError

from . import base
from .base import Admit, Record, StateStore, Usage
from .blobs import Note, no_note, timed

_RETRY = 10
"""Seconds after which a client may hope that something of its own has expired."""


NOTED = 3600.0
"""Seconds between two notes that a record is being used: a note is a write."""
_REMEMBERED = 10_000
"""Records whose last note is remembered."""
_EXPECTED = (
    *(
        base.RecordConflictError,
        base.RecordExistsError,
        base.RecordInvalidError,
        base.RecordMissingError,
    ),
    *(QuotaExceededError, StorageFullError),
)
"""Answers rather than failures."""


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
            kind: kind of the records.
            count: number of records that the change adds.
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


class AdmittedRecords(StateStore):
    """A StateStore that admits what its owners' quotas allow, and notes what is read.

    Args:
        records: where the records are.
        quotas: limit what is created.
        clock: seconds since 1970.
        note: called at the end of each operation.
    """

    def __init__(
        self,
        records: StateStore,
        quotas: Quotas,
        clock: Callable[[], float] = time.time,
        note: Note = no_note,
    ) -> None:
        self._records = records
        self._quotas = quotas
        self._clock = clock
        self._timed = partial(timed, note, _EXPECTED)
        self._noted: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = threading.Lock()

    def insert(self, record: Record, admit: Admit | None) -> Record:
        """See StateStore.

        Raises:
            QuotaExceededError: the owner has too many records of this kind, or too large ones.
        """
        admit = admit or self._quotas.admission(record.kind, 1, record.size)
        with self._timed("create"):
            return self._records.insert(record, admit)

    def find(self, kind: str, record_id: str) -> Record | None:
        """See StateStore; the record counts as used."""
        with self._timed("get"):
            record = self._records.find(kind, record_id)
        if record is not None and self._clock() - record.used > NOTED:
            # One that has expired by now is gone: who gets it may say that it is kept.
            self.touch(kind, record_id)
        return record

    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        """See StateStore.

        Raises:
            QuotaExceededError: the new value is larger than the owner's quota allows.
        """
        admit = admit or self._quotas.admission(seen.kind, 0, new.size - seen.size)
        with self._timed("swap"):
            return self._records.swap(seen, new, admit)

    def touch(self, kind: str, record_id: str) -> None:
        """See StateStore; at most once an hour for each record."""
        key, now = (kind, record_id), self._clock()
        with self._lock:
            if now - self._noted.get(key, float("-inf")) < NOTED:
                return
        # What can be read is to be read, even where nothing can be written.
        failures = (base.StoreBusyError, base.StoreFullError, base.StoreReadOnlyError)
        with contextlib.suppress(*failures), self._timed("touch"):
            self._records.touch(kind, record_id)
        with self._lock:
            self._noted[key] = now
            self._noted.move_to_end(key)
            while len(self._noted) > _REMEMBERED:
                self._noted.popitem(last=False)

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> Sequence[Record]:
        """See StateStore."""
        with self._timed("list"):
            return self._records.scan(kind, prefix, after, limit)

    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        """See StateStore."""
        with self._timed("delete"):
            self._records.remove(kind, record_id, seen, unused_since)
        with self._lock:
            self._noted.pop((kind, record_id), None)

    def close(self) -> None:
        """See StateStore."""
        self._records.close()


def refuse(limit: str, allowed: int, used: int, *, retry_after: int) -> None:
    """Raise the error for a limit that is reached.

    Raises:
        QuotaExceededError: always.
    """
    kind, _, unit = limit.partition(".")
    counted, setting = f"{allowed} {kind}", kind.upper()
    if unit != "count":
        counted, setting = f"{allowed} bytes of {kind}", f"{setting.removesuffix('S')}_BYTES"
    raise QuotaExceededError(
        f"an owner may have {counted}",
        hint="Delete what is not needed, or ask the operator for more",
        retry_after=retry_after,
        limit=limit,
        setting=f"THALWEG_QUOTA_{setting}",
        allowed=allowed,
        used=used,
    )
