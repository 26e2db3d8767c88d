"""Claims on space that no store knows of: rows that wait in unlinked files for slow clients.

Each process writes what its requests have claimed into the file by which it is present, so
what it claimed ends with it, however it ends. Whoever claims more has a turn of its own, adds
up all files, and refuses what exceeds the limit, so workers together keep to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter

from .presence import Presence
from .quotas import refuse
from .space import Space

LEASE = 16 << 20
"""Bytes that are claimed at a time, so that most writes claim nothing."""
_RETRY = 5
"""Seconds after which a slow client may have read its rows."""


class Claims:
    """What the requests of all workers have claimed, by owner.

    Args:
        presence: of this process among the workers.
        limit: maximum bytes per owner.
        space: of the disk; None for no bound.
    """

    def __init__(self, presence: Presence, limit: int, space: Space | None = None) -> None:
        self.presence = presence
        self._limit = limit
        self._space = space
        self._claimed: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def claimed(self) -> int:
        """Bytes that this process has claimed, for all owners."""
        with self._lock:
            return self._claimed.total()

    def new(self, owner: str) -> Claim:
        """Return a claim of nothing, for one request."""
        return Claim(self, owner)

    def change(self, owner: str, nbytes: int) -> None:
        """Claim bytes for an owner, or give them back if the number is negative.

        Raises:
            QuotaExceededError: the owner would have claimed too much.
            StorageFullError: the disk is almost full.
        """
        if nbytes <= 0:
            self._note(owner, nbytes)
            return
        if self._space is not None:
            self._space.check(nbytes)
        with self.presence.turn():
            claimed = self._claimed[owner] + self._of_others(owner)
            if claimed + nbytes > self._limit:
                refuse("spools.bytes", self._limit, claimed, retry_after=_RETRY)
            self._note(owner, nbytes)

    def _note(self, owner: str, nbytes: int) -> None:
        with self._lock:
            self._claimed[owner] += nbytes
            if not self._claimed[owner]:
                del self._claimed[owner]
            file = self.presence.file
            if file is not None:
                # A reader may see the old content, the new, or a mixture: see _read.
                text = json.dumps(self._claimed).encode()
                os.pwrite(file, text, 0)
                os.ftruncate(file, len(text))

    def _of_others(self, owner: str) -> int:
        return sum(_read(file)[owner] for file in self.presence.others())

    def close(self) -> None:
        """Give up all claims of this process, and its presence; may be called twice."""
        with self._lock:
            self.presence.close()


class Claim:
    """What one request has claimed.

    Args:
        claims: of all requests.
        owner: of the request.
    """

    def __init__(self, claims: Claims, owner: str) -> None:
        self._claims = claims
        self._owner = owner
        self._nbytes = 0

    def cover(self, nbytes: int) -> None:
        """Claim what is missing for this many bytes in all.

        Raises:
            QuotaExceededError: the owner would have claimed too much.
            StorageFullError: the disk is almost full.
        """
        if nbytes > self._nbytes:
            more = -(-(nbytes - self._nbytes) // LEASE) * LEASE
            self._claims.change(self._owner, more)
            self._nbytes += more

    def close(self) -> None:
        """Give back what was claimed; may be called twice."""
        nbytes, self._nbytes = self._nbytes, 0
        if nbytes:
            self._claims.change(self._owner, -nbytes)


def _read(descriptor: int) -> Counter[str]:
    """Read the claims of a process that may be writing them: until they make sense."""
    for _ in range(100):
        with contextlib.suppress(ValueError):
            return Counter(json.loads(os.pread(descriptor, 1 << 20, 0) or b"{}"))
    return Counter()
