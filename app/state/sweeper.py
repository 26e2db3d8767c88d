"""The sweeper: a thread that removes what has expired, and what crashes left.

Every worker has one, and one of them is active: the one that holds the lock of a file,
which the kernel gives to another when its process ends. A pass does a bounded amount of
work for each chore and goes on where it stopped in the next, so that it never keeps the
stores busy for long.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from app.errors import NotFoundError, ServiceError

from .base import HeadConflictError, StateStore, StoreDamagedError
from .blobs import BlobStore
from .turns import open_private

Chore = Callable[[], bool]
"""Does some work; returns whether there is more."""

PAGE = 500
"""Things that a chore looks at in one pass."""
INTERVAL = 60.0
"""Seconds between passes where nothing is left to do."""
_BUSY_INTERVAL = 0.5
"""Seconds between passes where more is."""


class Sweeper:
    """Runs chores in a thread.

    Args:
        chores: by name, for the log.
        lock: file whose lock makes a sweeper the active one; None if there is only this one.
        interval: seconds between passes.
    """

    def __init__(
        self, chores: Mapping[str, Chore], lock: Path | None, interval: float = INTERVAL
    ) -> None:
        self._chores = dict(chores)
        self._interval = interval
        self._lock = None if lock is None else open_private(lock)
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
        more = False
        for name, chore in self._chores.items():
            if self._stopped.is_set():
                break
            try:
                more = chore() or more
            except (ServiceError, OSError) as e:
                structlog.get_logger().warning("sweeping failed", chore=name, reason=str(e))
        return more

    def _is_active(self) -> bool:
        if self._lock is None:
            return True
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
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def expired_heads(
    heads: StateStore, kind: str, seconds: float, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that deletes heads of a kind that nobody used for so long."""
    after = ""

    def sweep() -> bool:
        nonlocal after
        oldest = clock() - seconds
        page = heads.list(kind, after=after, limit=PAGE)
        for head in page.heads:
            if head.used < oldest:
                # Another request may use or delete it first.
                with contextlib.suppress(NotFoundError, HeadConflictError):
                    heads.delete(kind, head.id, head, unused_since=oldest)
        after = page.after or ""
        return page.after is not None

    return sweep


def expired_blobs(
    blobs: BlobStore, kind: str, seconds: float, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that deletes blobs of a kind that nobody used for so long."""
    after = ""

    def sweep() -> bool:
        nonlocal after
        oldest = clock() - seconds
        page = blobs.list(kind, after=after, limit=PAGE)
        for blob in page.blobs:
            if blob.used < oldest:
                with contextlib.suppress(NotFoundError, HeadConflictError):
                    blobs.delete(kind, blob.id, unused_since=oldest)
        after = page.after or ""
        return page.after is not None

    return sweep


def heads_without_blobs(
    heads: StateStore,
    blobs: BlobStore,
    kind: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
) -> Chore:
    """Return the chore that deletes the heads of owners of content that is not stored.

    Whoever stores content becomes its owner first, so a crash can leave an owner of nothing,
    which counts in a quota. Within the first seconds it may be one who is storing.

    Args:
        heads: the store of the heads, whose ids are those of the blobs after a namespace.
        blobs: the store of the blobs.
        kind: kind of both.
        seconds: age that spares a head which nobody has used since.
        clock: seconds since 1970.
    """
    after = ""

    def sweep() -> bool:
        nonlocal after
        oldest = clock() - seconds
        page = heads.list(kind, after=after, limit=PAGE)
        for head in page.heads:
            if head.used >= oldest:
                continue
            try:
                blobs.info(kind, head.id.partition(".")[2])
            except NotFoundError:
                with contextlib.suppress(NotFoundError, HeadConflictError):
                    heads.delete(kind, head.id, head, unused_since=oldest)
            except StoreDamagedError:
                continue
        after = page.after or ""
        return page.after is not None

    return sweep


def always_done(work: Callable[[], object]) -> Chore:
    """Return the chore that does all its work in one pass."""

    def sweep() -> bool:
        work()
        return False

    return sweep
