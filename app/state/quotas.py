"""Quotas: how much each owner may store, by count and by bytes.

What an owner has is read from the stores, not counted along: counters drift, after a crash
or between workers, and nobody notices. A reading is used for a moment, with what was
admitted since added to it. Meanwhile each worker gives away no more than its share of what
the reading left to the owner; for more, and before anything is refused, it reads the stores
again. So workers together keep to the limit, except for what another of them is storing at
the very moment of a reading.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from app.errors import QuotaExceededError

from .base import MAX_PAGE, Head, StateStore
from .blobs import BlobInfo, BlobStore

OPERATOR = "admin"
"""Owner of what was stored before there were owners, and without keys."""
_FRESH = 2.0
"""Seconds for which a reading is used."""
_RETRY = 10
"""Seconds after which a client may hope that something of its own has expired."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one owner may have of one kind."""

    name: str
    """Name of the kind, in the plural, for people."""
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """How much one owner has of one kind."""

    count: int = 0
    nbytes: int = 0

    def plus(self, nbytes: int) -> Usage:
        """Return the usage with one thing more."""
        return Usage(self.count + 1, self.nbytes + nbytes)

    def minus(self, nbytes: int) -> Usage:
        """Return the usage with one thing less."""
        return Usage(self.count - 1, self.nbytes - nbytes)


Meter = Callable[[], Mapping[str, Usage]]
"""Reads the usage of every owner from a store."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a store held at some time, and what was admitted since."""

    at: float
    usage: Mapping[str, Usage]
    added: dict[str, Usage] = field(default_factory=dict)


class Quotas:
    """The quotas of a service.

    Args:
        kinds: the limit of each kind, and how its usage is measured; others are unlimited.
        workers: number of processes that admit to the same stores.
        clock: seconds.
    """

    def __init__(
        self,
        kinds: Mapping[str, tuple[Limit, Meter]],
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kinds = dict(kinds)
        self._workers = workers
        self._clock = clock
        self._readings: dict[str, _Reading] = {}
        self._storing: dict[tuple[str, str], Usage] = {}
        self._locks = {kind: threading.Lock() for kind in kinds}

    @contextlib.contextmanager
    def admit(self, owner: str, kind: str, nbytes: int) -> Iterator[None]:
        """Check that an owner may store one thing more, which the block does.

        Args:
            owner: who is to own it.
            kind: its kind.
            nbytes: its size.

        Raises:
            QuotaExceededError: the owner has, or would have, too much of this kind.
            StoreError: the store cannot be read.
        """
        if kind not in self._kinds:
            yield
            return
        self._count(owner, kind, nbytes)
        try:
            yield
        finally:
            with self._locks[kind]:
                left = self._storing.pop((kind, owner)).minus(nbytes)
                if left.count:
                    self._storing[kind, owner] = left

    def largest_shares(self) -> dict[str, tuple[float, float]]:
        """Return how much of each quota the owner with most of it has used.

        Returns:
            By the name of the kind: the share of the count and that of the bytes, 1 at the
            limit. Reads the stores.
        """
        shares = {}
        for limit, meter in self._kinds.values():
            used = meter().values()
            shares[limit.name] = (
                max((usage.count / max(limit.count, 1) for usage in used), default=0.0),
                max((usage.nbytes / max(limit.nbytes, 1) for usage in used), default=0.0),
            )
        return shares

    def _count(self, owner: str, kind: str, nbytes: int) -> None:
        limit, meter = self._kinds[kind]
        with self._locks[kind]:
            reading = self._readings.get(kind)
            storing = self._storing.get((kind, owner), Usage())
            if reading is None or not self._suffices(reading, limit, owner, nbytes):
                # What is being stored may be in the reading, or not yet.
                added = {o: usage for (k, o), usage in self._storing.items() if k == kind}
                reading = self._readings[kind] = _Reading(self._clock(), meter(), added)
                _check(limit, reading.usage.get(owner, Usage()), storing.plus(nbytes))
            reading.added[owner] = reading.added.get(owner, Usage()).plus(nbytes)
            self._storing[kind, owner] = storing.plus(nbytes)

    def _suffices(self, reading: _Reading, limit: Limit, owner: str, nbytes: int) -> bool:
        """Whether a reading leaves enough for this worker to admit one thing more."""
        if self._clock() - reading.at >= _FRESH:
            return False
        had = reading.usage.get(owner, Usage())
        wanted = reading.added.get(owner, Usage()).plus(nbytes)
        return (
            wanted.count <= (limit.count - had.count) // self._workers
            and wanted.nbytes <= (limit.nbytes - had.nbytes) // self._workers
        )


def _check(limit: Limit, had: Usage, more: Usage) -> None:
    if had.count + more.count > limit.count:
        refuse(f"{limit.name}.count", limit.count, had.count, retry_after=_RETRY)
    if had.nbytes + more.nbytes > limit.nbytes:
        refuse(f"{limit.name}.bytes", limit.nbytes, had.nbytes, retry_after=_RETRY)


def refuse(limit: str, allowed: int, used: int, *, retry_after: int) -> None:
    """Raise the error for a limit that is reached.

    Raises:
        QuotaExceededError: always.
    """
    what, _, unit = limit.partition(".")
    counted = f"{allowed} {what}" if unit == "count" else f"{allowed} bytes of {what}"
    raise QuotaExceededError(
        f"an owner may have {counted}",
        hint="Delete what is not needed, or ask the operator for more",
        retry_after=retry_after,
        limit=limit,
        allowed=allowed,
        used=used,
    )


def head_meter(heads: StateStore, kind: str, owners_of: Callable[[Head], Iterable[str]]) -> Meter:
    """Return what measures the heads of a kind."""

    def measure() -> Mapping[str, Usage]:
        usage: defaultdict[str, Usage] = defaultdict(Usage)
        after: str | None = ""
        while after is not None:
            page = heads.list(kind, after=after, limit=MAX_PAGE)
            for head in page.heads:
                for owner in owners_of(head):
                    usage[owner] = usage[owner].plus(len(head.value))
            after = page.after
        return usage

    return measure


def blob_meter(
    blobs: BlobStore, kind: str, owners_of: Callable[[BlobInfo], Iterable[str]]
) -> Meter:
    """Return what measures the blobs of a kind."""

    def measure() -> Mapping[str, Usage]:
        usage: defaultdict[str, Usage] = defaultdict(Usage)
        after: str | None = ""
        while after is not None:
            page = blobs.list(kind, after=after, limit=MAX_PAGE)
            for blob in page.blobs:
                for owner in owners_of(blob):
                    usage[owner] = usage[owner].plus(blob.size)
            after = page.after
        return usage

    return measure


def all_of_operator(_thing: Head | BlobInfo) -> tuple[str]:
    """Return the owners of a thing where everything belongs to the operator."""
    return (OPERATOR,)
