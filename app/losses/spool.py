"""The spool: a queue of rows between a body and its answer, in memory and then on disk.

Most HTTP clients read no answer before they have sent their whole body. If the server
stopped reading a body until its rows were taken, both sides would wait for each other.
So ``put`` never waits for ``take``: rows stay in memory up to a limit, further ones go to
a temporary file, and a post whose rows exceed a second limit fails.

    take <-  | Table | Mark | Spilled | Spilled | Mark | Table |  <- put
                                 |         |
    file                    |  rows   |  rows   |  ... free       (it has no name)
                            0                  end

Items keep their order wherever they wait, so a ``Mark`` still means that all rows of the
events before it come before it. The file is written from ``end`` on, and rewound whenever
no rows wait. It counts in its owner's quota with the most that it ever held.

One thread puts and another takes, at the same time. A ``deque`` is safe for that; the
counters are not, and neither is the rewind, which must not happen between the moment a
``put`` claims a range of the file and the moment its rows are in the queue. Both are
therefore guarded by a lock, and rows count as waiting from the moment of the claim. Reads
and writes themselves run outside the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from app.engine.ledger import Hold, Ledger
from app.errors import BusyError, ShareExceededError, TooLargeError
from app.state.durable import temporary_error
from app.state.reservations import Reservation, Reservations
from core.arrays import Rows
from core.losses.events import Position

from .spilling import SpilledFile


@dataclass(slots=True)
class Table:
    """Rows of one report."""

    report: str
    rows: Rows
    set_id: int | None = None
    """Summary set of the rows; None for those of a stream as it is posted."""


@dataclass(slots=True)
class Mark:
    """A position between two events; the rows of all events before it come before it."""

    position: Position
    tail: int = 0
    """Number of bytes seen after the position, all of the unfinished event."""
    digest: int = 0
    """xxh3-64 of those bytes."""
    origin: Mapping[str, object] | None = None
    """What answers say of the place besides, such as its stream; None for nothing."""


Item = Table | Mark
_FAIL = partial(temporary_error, subject="waiting rows")


@dataclass(slots=True)
class _Spilled:
    """Rows in the file."""

    report: str
    dtype: np.dtype[np.void]
    offset: int
    size: int
    set_id: int | None


@dataclass(eq=False)
class Spool:
    """A queue of rows and marks; see the module."""

    directory: Path
    """Where the temporary file is created, if one is needed."""
    memory: int
    """Maximum bytes of rows to hold in memory."""
    limit: int
    """Maximum bytes of rows to hold in total."""
    reservation: Reservation | None = None
    """Of space on the disk, in the quota of the owner; None for no quota."""
    hold: Hold | None = None
    """Of memory for the owner; rows that it refuses wait on the disk. None for no bound."""
    _items: deque[Table | Mark | _Spilled] = field(default_factory=deque, init=False)
    _held: int = field(default=0, init=False)
    waiting: int = field(default=0, init=False)
    """Bytes of rows in the queue."""
    _file: SpilledFile | None = field(default=None, init=False)
    _end: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: list[Item]) -> None:
        """Append items; the caller must not change their arrays afterwards.

        Raises:
            TooLargeError: the limit is exceeded.
            QuotaExceededError: the owner has too many rows on the disk.
            StorageFullError: the disk is full.
            StoreError: the disk failed.
        """
        for item in items:
            if isinstance(item, Mark):
                self._items.append(item)
            else:
                self._put_rows(item)

    def _put_rows(self, table: Table) -> None:
        size = table.rows.nbytes
        with self._lock:
            if self.waiting + size > self.limit:
                raise TooLargeError(
                    f"more than {self.limit} bytes of rows are waiting for the client",
                    hint="Read the answer faster, or post the stream in parts",
                    limit="spool",
                    allowed=self.limit,
                    setting="THALWEG_SPOOL_LIMIT",
                )
            self.waiting += size
            if self._held + size <= self.memory and self._may_hold(size):
                self._held += size
                self._items.append(table)
                return
            offset = self._end
            self._end += size
        if self.reservation is not None:
            self.reservation.cover(offset + size)
        if self._file is None:
            self._file = SpilledFile(self.directory, _FAIL)
        self._file.write(offset, table.rows.view(np.uint8).data)
        self._items.append(_Spilled(table.report, table.rows.dtype, offset, size, table.set_id))

    def _may_hold(self, nbytes: int) -> bool:
        """Enter rows that wait in memory; return False if their owner may have no more."""
        if self.hold is None:
            return True
        try:
            self.hold.grow(nbytes)
        except (BusyError, ShareExceededError, TooLargeError):
            return False
        return True

    def take(self) -> Item | None:
        """Remove and return the first item; None if the queue is empty.

        Raises:
            StoreError: the disk failed.
        """
        if not self._items:
            return None
        item = self._items.popleft()
        self._uncount(item)
        if not isinstance(item, _Spilled):
            return item
        assert self._file is not None  # noqa: S101 - it was written to
        octets = np.empty(item.size, np.uint8)
        self._file.read_into(item.offset, octets.data)
        table = Table(item.report, octets.view(item.dtype), item.set_id)
        with self._lock:
            if not any(isinstance(other, _Spilled) for other in self._items) and not self.waiting:
                self._end = 0
        return table

    def _uncount(self, item: Table | Mark | _Spilled) -> None:
        with self._lock:
            if isinstance(item, _Spilled):
                self.waiting -= item.size
            elif isinstance(item, Table):
                self.waiting -= item.rows.nbytes
                self._held -= item.rows.nbytes
                if self.hold is not None:
                    self.hold.shrink(item.rows.nbytes)

    def drop_open(self) -> Mark | None:
        """Drop the rows after the last mark, which are of an incomplete event.

        Returns:
            The mark; None if there was none, in which case the queue is now empty.
        """
        while self._items and not isinstance(self._items[-1], Mark):
            self._uncount(self._items.pop())
        last = self._items[-1] if self._items else None
        return last if isinstance(last, Mark) else None

    @property
    def on_disk(self) -> bool:
        """Whether there is a file, which takes long to close."""
        return self._file is not None

    def close(self) -> None:
        """Drop all items and close the file; may be called twice."""
        self._items.clear()
        if self.hold is not None:
            self.hold.release()
        file, self._file = self._file, None
        if file is not None:
            file.close()
        if self.reservation is not None:
            self.reservation.close()


@dataclass(frozen=True, slots=True)
class Spools:
    """Creates the spools of a process; for the arguments see :class:`Spool`."""

    directory: Path
    memory: int
    limit: int
    reservations: Reservations
    ledger: Ledger
    _closer: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, 1, "spools"), repr=False
    )

    def start(self, close: Callable[[], None]) -> asyncio.Future[None]:
        """Start to close files in a thread of their own."""
        return asyncio.get_running_loop().run_in_executor(self._closer, close)

    def new(self, owner: str) -> Spool:
        """Return a spool for the rows of one answer."""
        self._make_directory()
        reservation, hold = self.reservations.new(owner), self.ledger.hold(owner, 0, "rows")
        return Spool(self.directory, self.memory, self.limit, reservation, hold)

    def problem(self) -> str | None:
        """Return the reason why rows cannot be spooled to disk, or None."""
        self._make_directory()
        if os.access(self.directory, os.W_OK):
            return None
        return "the directory for waiting rows is not writable"

    def _make_directory(self) -> None:
        # A failure shows in readiness, and at the first rows that do not fit in memory.
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
