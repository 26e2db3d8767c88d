"""Claims on space that no store knows of: rows that wait in unlinked files for slow clients.

Each process writes what its requests have claimed into a file of its own, and locks that
file as long as it lives. So what a process claimed ends with it, however it ends: a file
that can be locked belongs to nobody, and is removed. Whoever claims more has a turn of its
own, adds up all files, and refuses what exceeds the limit, so workers together keep to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .durable import as_store_errors, make_directories
from .quotas import refuse
from .space import Space
from .turns import Turns

LEASE = 16 << 20
"""Bytes that are claimed at a time, so that most writes claim nothing."""
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_RETRY = 5
"""Seconds after which a slow client may have read its rows."""


class Claims:
    """What the requests of all workers have claimed, by owner.

    Args:
        directory: of the files of the workers; None to count this process alone.
        limit: maximum bytes per owner.
        space: of the disk; None for no bound.

    Raises:
        StoreError: the directory cannot be written.
    """

    def __init__(self, directory: Path | None, limit: int, space: Space | None = None) -> None:
        self._directory = directory
        self._limit = limit
        self._space = space
        self._claimed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._turns: Turns | None = None
        self._file: int | None = None
        if directory is not None:
            with as_store_errors(directory):
                make_directories(directory, 0o700)
                self._turns = Turns(directory / "lock", 10.0)
                # Within a turn, or another process would take it for that of a dead one.
                with self._turns.turn():
                    self._file = os.open(directory / f"{secrets.token_hex(8)}.json", _CREATE, 0o600)
                    fcntl.flock(self._file, fcntl.LOCK_EX)

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
        with self._turn():
            claimed = self._claimed[owner] + self._of_others(owner)
            if claimed + nbytes > self._limit:
                refuse("spools.bytes", self._limit, claimed, retry_after=_RETRY)
            self._note(owner, nbytes)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self._turns is None or self._directory is None:
            yield
            return
        with as_store_errors(self._directory), self._turns.turn():
            yield

    def _note(self, owner: str, nbytes: int) -> None:
        with self._lock:
            self._claimed[owner] += nbytes
            if not self._claimed[owner]:
                del self._claimed[owner]
            if self._file is not None:
                # A reader may see the old content, the new, or a mixture: see _read.
                text = json.dumps(self._claimed).encode()
                os.pwrite(self._file, text, 0)
                os.ftruncate(self._file, len(text))

    def _of_others(self, owner: str) -> int:
        return 0 if self._directory is None else sum(c[owner] for c in self._others())

    def _others(self) -> Iterator[Counter[str]]:
        """Yield what other processes have claimed; remove the files of those that ended."""
        assert self._directory is not None  # noqa: S101 - there are others
        assert self._file is not None  # noqa: S101 - as above
        own = os.fstat(self._file).st_ino
        for path in self._directory.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if os.fstat(descriptor).st_ino == own:
                        continue
                    if _is_free(descriptor):
                        path.unlink()
                    else:
                        yield _read(descriptor)
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Give up all claims of this process; may be called twice."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)
            if self._turns is not None:
                self._turns.close()


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


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> Counter[str]:
    """Read the claims of a process that may be writing them: until they make sense."""
    for _ in range(100):
        with contextlib.suppress(ValueError):
            return Counter(json.loads(os.pread(descriptor, 1 << 20, 0) or b"{}"))
    return Counter()
