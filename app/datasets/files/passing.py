"""Bytes of files, passed on to a socket from where they are.

Each portion comes from one of three places:

    mapped     under a lease, from the pages of the file themselves: one copy, to the socket
    room       read and checked beforehand, where there is no lease: one copy more
    given      in memory already, because it is not stored like that

The file is looked at before a portion is sent: under the lease nobody changes it until the
portion is the socket's, and what is in the room was checked after it was read. So every byte
that leaves is one of the file as it was when it was opened, and a change ends the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from app.errors import ServiceError
from core.budget import current
from core.errors import BudgetExceededError

from .buffered import BufferedBackend

LEAST = 256 << 10
"""Bytes of an answer from which on passing them on pays."""
_FIRST = 64 << 10
"""Bytes to read before the answer starts."""
_PORTION = 4 << 20
"""Maximum bytes per lease or read: fewer cost more calls than the caches save."""
_LITTLE = 64 << 10
"""Bytes that are read at once where there is no memory for a portion."""
_JOINED = 16 << 20
"""Length from which on a run is not joined to the next."""


class Run(NamedTuple):
    """Consecutive bytes of a file."""

    file: int
    start: int
    stop: int


def join_runs(pieces: Iterable[Run | memoryview]) -> Iterator[Run | memoryview]:
    """Join runs that follow each other, up to a length that serves one lease after the other."""
    run: Run | None = None
    for piece in pieces:
        if isinstance(piece, Run) and run is not None and _is_joined(run, piece):
            run = Run(run.file, run.start, piece.stop)
            continue
        if run is not None:
            yield run
        run = piece if isinstance(piece, Run) else None
        if run is None:
            yield piece
    if run is not None:
        yield run


def _is_joined(run: Run, piece: Run) -> bool:
    follows = (piece.file, piece.start) == (run.file, run.stop)
    return follows and run.stop - run.start < _JOINED


class StoredBytes:
    """Bytes of files, and others, one after the other; used by one thread at a time.

    Args:
        nbytes: total number of bytes.
        pieces: runs of bytes in files, and bytes in memory, none empty; advanced in threads.
        backend: reads the files.
    """

    def __init__(
        self, nbytes: int, pieces: Iterator[Run | memoryview], backend: BufferedBackend
    ) -> None:
        self.left = nbytes
        self._pieces = pieces
        self._backend = backend
        self._run: Run | None = None
        self._ready = memoryview(b"")
        """Bytes in memory that come before the rest of the run."""
        self._room: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None
        self._portion = _PORTION
        """Maximum bytes that are read into the room."""

    def prepare(self) -> None:
        """Get at the first bytes, so that a fault in them is told before the answer starts.

        Raises:
            CoreError, ServiceError: they cannot be read.
        """
        self._advance()
        if self._run is not None:
            self._read(_FIRST)

    def pass_on(self, write: Callable[[memoryview], int]) -> None:
        """Call ``write`` once with some of the next bytes; it returns how many it took.

        Raises:
            DataChangedError: a file changed since it was opened.
            CoreError, ServiceError: the bytes cannot be read.
        """
        budget = current()
        budget.check("send")
        if not self._ready and self._run is None:
            self._advance()
        if not self._ready:
            sent = self._lend(write)
            if sent is not None:
                self.left -= sent
                budget.renew()
                return
            self._read(_PORTION)
        sent = write(self._ready)
        self._ready = self._ready[sent:]
        self.left -= sent
        budget.renew()

    def _advance(self) -> None:
        piece = next(self._pieces)
        if isinstance(piece, Run):
            self._run = piece
        else:
            self._ready = piece

    def _lend(self, write: Callable[[memoryview], int]) -> int | None:
        """Send from where the bytes are; None if they cannot be had there."""
        run = self._run
        assert run is not None  # noqa: S101 - the caller looked
        sent = 0

        def use(octets: memoryview) -> None:
            nonlocal sent
            sent = write(octets)

        stop = min(run.start + _PORTION, run.stop)
        # Have the disk fetch the portion that follows, while this one is sent; more from afar.
        size = min(max(_PORTION, self._backend.ahead), run.stop - stop)
        if size:
            files, starts = (np.array([number], np.int64) for number in (run.file, stop))
            self._backend.hint(files, starts, size)
        if not self._backend.lend(run.file, run.start, stop, use):
            return None
        self._drop(sent)
        return sent

    def _read(self, size: int) -> None:
        """Read the beginning of the run; its bytes come next."""
        run = self._run
        assert run is not None  # noqa: S101 - the caller looked
        size = min(size, self._portion, run.stop - run.start)
        if self._room is None or len(self._room) < size:
            size = self._admitted(size)
            self._room = np.empty(size, np.uint8)
        room = self._room[:size]
        files, starts = (np.array([number], np.int64) for number in (run.file, run.start))
        self._backend.copy(files, starts, size, room)
        self._ready = room.data
        self._drop(size)

    def _admitted(self, size: int) -> int:
        """Enter room in the ledger until the answer has ended; return how much there may be.

        Without it, an answer that has begun goes on with little, which needs no entry.
        """
        if size > _LITTLE:
            try:
                # As a whole portion: what is less than that is not entered.
                current().hold("answer", max(size, _PORTION))
            except (ServiceError, BudgetExceededError):
                self._portion = size = _LITTLE
        return size

    def _drop(self, size: int) -> None:
        """Let the run begin later."""
        assert self._run is not None  # noqa: S101 - the caller looked
        file, start, stop = self._run
        self._run = Run(file, start + size, stop) if start + size < stop else None
