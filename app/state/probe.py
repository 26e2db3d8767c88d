"""A check that the state can be read and written: small, but of the real file.

SQLite works from pages in memory. A connection may read and even commit long after the file
below it was overwritten or cut, and only the next start would notice. So the check looks at
the file itself and reads through a connection of its own, besides a write that is synced.

It looks through one descriptor that stays open. When a process closes any descriptor of a file,
the kernel drops all POSIX locks that the process has on it, SQLite's too; another process that
opened the store and closed it again would then take itself for the last one, and delete the log
under this one's feet.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from pathlib import Path

from app.errors import StorageFullError

from .base import (
    HeadExistsError,
    HeadMissingError,
    StateStore,
    StoreDamagedError,
    StoreError,
    Usage,
)

KIND, IDENT = "probe", "readiness"
_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16sH10xI")
"""Magic, size of a page, and number of pages when the header was last written."""
_ROWS = 64
"""Rows read by each check; the next one continues after them."""


class Probe:
    """Checks the heads in a SQLite file.

    Args:
        heads: the store to write to.
        path: its file.
    """

    def __init__(self, heads: StateStore, path: Path) -> None:
        self._heads = heads
        self._path = path
        self._row = 0
        self._descriptor: int | None = None

    def close(self) -> None:
        """Close the file, after the store, whose locks it would drop; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def check(self) -> None:
        """Write a head, and read the header of the file and a few rows.

        Raises:
            StoreError: one of them failed.
        """
        try:
            self._heads.touch(KIND, IDENT)
        except HeadMissingError:
            # Below the reserve of the disk nothing new is stored; that is another check's.
            with contextlib.suppress(StorageFullError, HeadExistsError):
                self._heads.create(KIND, IDENT, b"")
        try:
            self._check_header()
            self._read_rows()
        except (sqlite3.DatabaseError, OSError) as e:
            if isinstance(e, sqlite3.OperationalError) and "locked" in str(e):
                return
            raise self._damaged(f"the stored state cannot be read: {e}") from e

    def largest_usage(self, kind: str) -> Usage:
        """Return the most heads, and the most bytes, that one owner has of a kind.

        Raises:
            StoreError: they cannot be read.
        """
        query = "SELECT coalesce(max(count), 0), coalesce(max(nbytes), 0) FROM usage WHERE kind = ?"
        try:
            with contextlib.closing(self._connect()) as connection:
                return Usage(*connection.execute(query, (kind,)).fetchone())
        except sqlite3.Error as e:
            raise StoreError(f"the usage of owners cannot be read: {e}") from e

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=1)

    def _check_header(self) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self._descriptor, _HEADER.size, 0)
        size = os.fstat(self._descriptor).st_size
        if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
            raise self._damaged("the file of the state has lost its header")
        _, page, pages = _HEADER.unpack(data)
        # A size of 1 stands for 65536, which does not fit.
        if size < pages * (65536 if page == 1 else page):
            raise self._damaged("the file of the state was cut")

    def _read_rows(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            rows = connection.execute(
                "SELECT rowid, kind, id, nonce FROM head WHERE rowid > ? ORDER BY rowid LIMIT ?",
                (self._row, _ROWS),
            ).fetchall()
        self._row = rows[-1][0] if len(rows) == _ROWS else 0

    def _damaged(self, detail: str) -> StoreDamagedError:
        return StoreDamagedError(detail, path=self._path)
