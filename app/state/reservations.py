"""Reservations of space that no store knows of: rows that wait in unlinked files for slow clients.

Each process writes what its requests have reserved into the file by which it is present, so
what it reserved ends with it, however it ends. Whoever reserves more has a turn of its own, adds
up all files, and refuses what exceeds the limit, so workers together keep to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter

from app.errors import QuotaExceededError, StorageFullError

from .presence import Presence
from .quotas import refuse
from .space import Space

LEASE = 16 << 20
"""Bytes that are reserved at a time, so that most writes reserve nothing."""
_RETRY = 5
"""Seconds after which a slow client may have read its rows."""


class Reservations:
    """What the requests of all workers have reserved, by owner.

    Args:
        presence: of this process among the workers.
        limit: maximum bytes per owner.
        space: of the disk; None for no bound.
    """

    def __init__(self, presence: Presence, limit: int, space: Space | None = None) -> None:
        self.presence = presence
        self._limit = limit
        self._space = space
        self._reserved: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def reserved(self) -> int:
        """Bytes that this process has reserved, for all owners."""
        with self._lock:
            return self._reserved.total()

    def new(self, owner: str) -> Reservation:
        """Return a reservation of nothing, for one request."""
        return Reservation(self, owner)

    def change(self, owner: str, nbytes: int) -> None:
        """Reserve bytes for an owner, or give them back if the number is negative.

        Raises:
            QuotaExceededError: the owner would have reserved too much.
            StorageFullError: the disk is almost full.
        """
        if nbytes <= 0:
            self._note(owner, nbytes)
            return
        if self._space is not None:
            self._space.check(nbytes)
        with self.presence.turn():
            others = sum(_read(file)[owner] for file in self.presence.others())
            reserved = self._reserved[owner] + others
            if reserved + nbytes > self._limit:
                refuse("spools.bytes", self._limit, reserved, retry_after=_RETRY)
            self._note(owner, nbytes)

    def _note(self, owner: str, nbytes: int) -> None:
        with self._lock:
            self._reserved[owner] += nbytes
            if not self._reserved[owner]:
                del self._reserved[owner]
            file = self.presence.file
            if file is not None:
                # A reader may see the old content, the new, or a mixture: see _read.
                text = json.dumps(self._reserved).encode()
                os.pwrite(file, text, 0)
                os.ftruncate(file, len(text))

    def close(self) -> None:
        """Give up all reservations of this process, and its presence; may be called twice."""
        with self._lock:
            self.presence.close()


class Reservation:
    """What one request has reserved.

    Args:
        reservations: of all requests.
        owner: of the request.
    """

    def __init__(self, reservations: Reservations, owner: str) -> None:
        self._reservations = reservations
        self._owner = owner
        self._nbytes = 0

    def cover(self, nbytes: int) -> None:
        """Reserve what is missing for this many bytes in all.

        Raises:
            QuotaExceededError: the owner would have reserved too much.
            StorageFullError: the disk is almost full.
        """
        if nbytes > self._nbytes:
            missing = nbytes - self._nbytes
            more = -(-missing // LEASE) * LEASE
            try:
                self._reservations.change(self._owner, more)
            except (QuotaExceededError, StorageFullError):
                # There may be room for what is needed, if not for what comes after it.
                more = missing
                self._reservations.change(self._owner, more)
            self._nbytes += more

    def close(self) -> None:
        """Give back what was reserved; may be called twice."""
        nbytes, self._nbytes = self._nbytes, 0
        if nbytes:
            self._reservations.change(self._owner, -nbytes)


def _read(descriptor: int) -> Counter[str]:
    """Read the reservations of a process that may be writing them: until they make sense."""
    for _ in range(100):
        with contextlib.suppress(ValueError):
            return Counter(json.loads(os.pread(descriptor, 1 << 20, 0) or b"{}"))
    return Counter()
