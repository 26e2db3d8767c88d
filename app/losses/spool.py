"""Rows on their way from a body to its answer: in memory first, then on disk.

One thread puts, one takes. What is put waits until it is taken, so a client that does
not read its answer never holds up the reading of its body.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.errors import StorageFullError, TooLargeError
from core.losses.position import Position

Rows = npt.NDArray[np.void]


@dataclass(slots=True)
class Table:
    """Rows of one report."""

    report: str
    rows: Rows


@dataclass(slots=True)
class Mark:
    """A place between two events: all rows of the events before it come before it."""

    position: Position
    tail: int = 0
    """Bytes of the unfinished event that were seen."""
    digest: int = 0
    """Their xxh3-64."""


Item = Table | Mark


@dataclass(slots=True)
class _Stored:
    """Rows in the file."""

    report: str
    dtype: np.dtype[np.void]
    offset: int
    size: int


class Spool:
    """A queue of rows and marks.

    Args:
        directory: where a file is made when memory does not suffice; it has no name.
        memory: bytes of rows that wait in memory.
        limit: bytes of rows that may wait in all.
    """

    def __init__(self, directory: Path, memory: int, limit: int) -> None:
        self._directory = directory
        self._memory = memory
        self._limit = limit
        self._items: deque[Table | Mark | _Stored] = deque()
        self._held = 0
        self._waiting = 0
        self._file: int | None = None
        self._end = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting(self) -> int:
        """Bytes of rows that wait."""
        return self._waiting

    def put(self, items: list[Item]) -> None:
        """Put items; arrays of rows must not be changed afterwards.

        Raises:
            TooLargeError: more rows wait than may.
            StorageFullError: the disk is full, or failed.
        """
        for item in items:
            if isinstance(item, Mark):
                self._items.append(item)
            else:
                self._put_rows(item)

    def _put_rows(self, table: Table) -> None:
        size = table.rows.nbytes
        with self._lock:
            if self._waiting + size > self._limit:
                raise TooLargeError(
                    f"more than {self._limit} bytes of rows wait for their client",
                    hint="Read the answer faster, or post the stream in parts",
                )
            self._waiting += size
            if self._held + size <= self._memory:
                self._held += size
                self._items.append(table)
                return
            offset = self._end
            self._end += size
        self._write(table.rows, offset)
        self._items.append(_Stored(table.report, table.rows.dtype, offset, size))

    def _write(self, rows: Rows, offset: int) -> None:
        try:
            if self._file is None:
                # No name: nothing is left behind, however the process ends.
                with tempfile.TemporaryFile(dir=self._directory, buffering=0) as file:
                    self._file = os.dup(file.fileno())
            view = rows.view(np.uint8).data
            while len(view):
                count = os.pwrite(self._file, view, offset)
                view = view[count:]
                offset += count
        except OSError as e:
            raise StorageFullError(
                f"rows that wait cannot be stored: {e.strerror}", retry_after=30
            ) from e

    def take(self) -> Item | None:
        """The next item, or None if none waits.

        Raises:
            StorageFullError: the disk failed.
        """
        if not self._items:
            return None
        item = self._items.popleft()
        self._uncount(item)
        if not isinstance(item, _Stored):
            return item
        table = self._load(item)
        with self._lock:
            if not any(isinstance(other, _Stored) for other in self._items) and not self._waiting:
                self._end = 0
        return table

    def _uncount(self, item: Table | Mark | _Stored) -> None:
        with self._lock:
            if isinstance(item, _Stored):
                self._waiting -= item.size
            elif isinstance(item, Table):
                self._waiting -= item.rows.nbytes
                self._held -= item.rows.nbytes

    def _load(self, stored: _Stored) -> Table:
        assert self._file is not None  # noqa: S101 - it was written to
        octets = np.empty(stored.size, np.uint8)
        view = octets.data
        at = 0
        while at < stored.size:
            count = os.preadv(self._file, [view[at:]], stored.offset + at)
            if count == 0:
                raise StorageFullError("rows that wait were lost")
            at += count
        return Table(stored.report, octets.view(stored.dtype))

    def drop_open(self) -> Mark | None:
        """Drop what is behind the last mark: rows of an event that is not whole.

        Returns the mark, or None, everything being dropped, if there is none.
        """
        while self._items and not isinstance(self._items[-1], Mark):
            self._uncount(self._items.pop())
        last = self._items[-1] if self._items else None
        return last if isinstance(last, Mark) else None

    def close(self) -> None:
        """Forget everything; may be called twice."""
        self._items.clear()
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


@dataclass(frozen=True, slots=True)
class Spools:
    """Makes the spools of a process.

    Args:
        directory: see :class:`Spool`.
        memory: see :class:`Spool`.
        limit: see :class:`Spool`.
    """

    directory: Path
    memory: int
    limit: int

    def new(self) -> Spool:
        """A spool for the rows of one answer."""
        self._make_directory()
        return Spool(self.directory, self.memory, self.limit)

    def problem(self) -> str | None:
        """Why rows cannot wait on disk, if they cannot."""
        self._make_directory()
        if os.access(self.directory, os.W_OK):
            return None
        return "the data directory cannot be written to"

    def _make_directory(self) -> None:
        # A failure shows in readiness, and at the first row that does not fit in memory.
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
