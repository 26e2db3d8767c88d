"""The sweeper: a thread that removes what has expired, and what crashes left.

Every worker has one, and one of them is active: the one that holds the lock of a file,
which the kernel gives to another when its process ends. A pass does a bounded amount of
work for each chore and goes on where it stopped in the next, so that it never keeps the
stores busy for long.

Times in the stores are those of the wall clock, which an operator or a time server may set by a
day. Before anything is removed because of such a time, it must have looked removable for a
while by a clock that never jumps, and unchanged: what is in use changes in that while. A node whose
clock is not that of the others sweeps nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from app.errors import NotFoundError, ServiceError

from .base import Listing, Record, RecordConflictError, StateStore, StoreDamagedError
from .blobs import BlobInfo, BlobStore
from .shares import Shares
from .turns import open_private

Stored = TypeVar("Stored", Record, BlobInfo)
Chore = Callable[[], bool]
"""Does some work; returns whether there is more."""

Named = Callable[[], Container[str]]
"""Returns ids that something names, which are in use however long ago they were read."""

PAGE = 500
"""Things that a chore looks at in one pass."""
INTERVAL = 60.0
"""Seconds between passes where nothing is left to do."""
_BUSY_INTERVAL = 0.5
"""Seconds between passes where more is."""
_PASSED_OVER = (StoreDamagedError, NotFoundError, RecordConflictError)


class Sweeper:
    """Runs chores in a thread.

    Args:
        chores: by name, for the log.
        lock: file whose lock makes a sweeper the active one.
        interval: seconds between passes.
        note: called with the name of a chore that failed, and with None after each pass.
        check: raises StoreError if the clock cannot be relied upon.
    """

    def __init__(
        self,
        chores: Mapping[str, Chore],
        lock: Path,
        interval: float = INTERVAL,
        note: Callable[[str | None], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._chores = dict(chores)
        self._interval = interval
        self._note = note
        self._lock = open_private(lock)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = self._interval / 10
        while not self._stopped.wait(pause):
            pause = _BUSY_INTERVAL if self.sweep() else self._interval

    def sweep(self) -> bool:
        """Make one pass, if this sweeper is the active one; return whether there is more."""
        if not self._is_active():
            return False
        try:
            self._check()
        except ServiceError as e:
            structlog.get_logger().warning("nothing is swept", reason=str(e))
            self._note("clock")
            return False
        more = False
        for name, chore in self._chores.items():
            if self._stopped.is_set():
                break
            try:
                more = chore() or more
            except (ServiceError, OSError) as e:
                structlog.get_logger().warning("sweeping failed", chore=name, reason=str(e))
                self._note(name)
        self._note(None)
        return more

    def _is_active(self) -> bool:
        try:
            # Held until this process ends: to lock a file again that we hold succeeds.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Stop after the present chore; may be called twice."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class Lasting:
    """Tells whether something has been in one state for long.

    Args:
        seconds: how long.
        clock: monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[str, tuple[Hashable, float]] = {}

    def has_lasted(self, name: str, state: Hashable) -> bool:
        """Note that something is in a state; return whether it has been since long ago."""
        now = self._clock()
        known, since = self._since.get(name, (None, now))
        if known != state:
            since = now
        self._since[name] = (state, since)
        return now - since >= self._seconds

    def forget(self, name: str) -> None:
        """Forget something that is not in question, or gone."""
        self._since.pop(name, None)


def page_by_page(
    store: Listing[Stored], kind: str, look: Callable[[Sequence[Stored]], None]
) -> Chore:
    """Return the chore that looks at a page of a store in each pass, and goes round.

    Args:
        store: of records or of blobs.
        kind: their kind.
        look: called with each page.
    """
    after: str | None = None

    def sweep() -> bool:
        nonlocal after
        page, after = store.list(kind, after=after or "", limit=PAGE)
        look(page)
        return after is not None

    return sweep


def each(store: Listing[Stored], kind: str, look: Callable[[Stored], None]) -> Chore:
    """Return the chore that looks at all records or blobs of a kind.

    Args:
        store: has them.
        kind: their kind.
        look: called with each; one that is damaged, or that others changed or deleted first, is
            passed over.
    """

    def look_at_page(page: Sequence[Stored]) -> None:
        for stored in page:
            with contextlib.suppress(*_PASSED_OVER):
                look(stored)

    return page_by_page(store, kind, look_at_page)


def expired_records(
    records: StateStore,
    kind: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
    named: Named = frozenset,
) -> Chore:
    """Return the chore that deletes records of a kind that nobody used for so long.

    Whoever names one has used it a moment ago, so a name that is written after the look for names
    keeps it all the same.
    """

    def look(page: Sequence[Record]) -> None:
        oldest = clock() - seconds
        for record, is_named in _old(page, oldest, named):
            # Another request may use or delete it first.
            with contextlib.suppress(NotFoundError, RecordConflictError):
                if is_named:
                    records.touch(kind, record.id)
                else:
                    records.delete(kind, record.id, record, unused_since=oldest)

    return page_by_page(records, kind, look)


def expired_blobs(
    blobs: BlobStore,
    kind: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
    named: Named = frozenset,
) -> Chore:
    """Return the chore that deletes blobs of a kind that nobody used for so long; as above."""

    def look(page: Sequence[BlobInfo]) -> None:
        oldest = clock() - seconds
        for blob, is_named in _old(page, oldest, named):
            with contextlib.suppress(NotFoundError, RecordConflictError):
                if is_named:
                    blobs.touch(kind, blob.id, clock())
                else:
                    blobs.delete(kind, blob.id, unused_since=oldest)

    return page_by_page(blobs, kind, look)


def _old(page: Sequence[Stored], oldest: float, named: Named) -> Iterator[tuple[Stored, bool]]:
    """Yield those of a page that were last used before a time, and whether something names them."""
    old = [stored for stored in page if stored.used < oldest]
    kept = named() if old else ()
    return ((stored, stored.id in kept) for stored in old)


def records_without_blobs(
    records: StateStore,
    blobs: BlobStore,
    kind: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
) -> Chore:
    """Return the chore that deletes the records of owners of content that is not stored.

    Earlier versions stored the owner first, so a crash could leave an owner of nothing, which
    counts in a quota; so can a disk that loses content.

    Args:
        records: the store of the records, whose ids are those of the blobs after a namespace.
        blobs: the store of the blobs.
        kind: kind of both.
        seconds: age that spares a record which nobody has used since.
        clock: seconds since 1970.
    """

    def look(record: Record) -> None:
        oldest = clock() - seconds
        if record.used < oldest:
            try:
                blobs.info(kind, record.id.partition(".")[2])
            except NotFoundError:
                records.delete(kind, record.id, record, unused_since=oldest)

    return each(records, kind, look)


def blobs_without_owners(
    blobs: BlobStore,
    shares: Shares,
    kind: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
) -> Chore:
    """Return the chore that deletes content that nobody owns, as a crash leaves it.

    Args:
        blobs: the store of the content.
        shares: its owners.
        kind: kind of the blobs.
        seconds: age that spares what may be about to get an owner.
        clock: seconds since 1970.
    """

    def look(blob: BlobInfo) -> None:
        oldest = clock() - seconds
        if blob.used < oldest:
            shares.sweep(blob.id, partial(blobs.delete, kind, blob.id, unused_since=oldest))

    return each(blobs, kind, look)


def always_done(work: Callable[[], object]) -> Chore:
    """Return the chore that does all its work in one pass."""

    def sweep() -> bool:
        work()
        return False

    return sweep
