"""Records in a SQLite file, shared by the threads and processes of one machine.

The workers of a service are separate processes, and each must see at once what another
registered. One SQLite file gives them transactions and crash safety without a server.

    worker 1  ── reader ───────────────────────▶ state.sqlite        the database
              ── writer ─┐                       state.sqlite-wal    commits not yet in it
    worker 2  ── reader ─│─────────────────────▶ state.sqlite-shm    index of the wal
              ── writer ─┴▶ state.sqlite.lock
                            one turn at a time ▶ state.sqlite-wal

*WAL mode*: a commit appends to the write-ahead log, and readers continue on the snapshot
they began with. So reads never wait for writes, and each process has two connections, one
for reading, whose query need not wait until another thread's commit is on the disk.
``synchronous = FULL`` syncs the log before a commit returns. With NORMAL, usual in WAL mode,
a power failure could undo the last commits, and with them ids that clients were given.

*Turns*: SQLite allows one writer at a time, and lets others sleep and retry, in longer and
longer pauses. Besides, releases before 3.51.3 can damage the file when one connection
commits while another moves the log into the database (a checkpoint). Writers therefore take
a lock of our own before they begin: among our processes no commit or checkpoint happens
beside another, and the retries of SQLite are only a fallback against other programs.

Checked before every access, because SQLite does not: that the file under our path is still
the one we opened (writes to a deleted file would succeed, and be lost), and that this is
the process that opened it (connections must not be carried over a fork). Checked after every
read: the checksum of the row, because SQLite has none. A page that the disk returns with a
changed byte is otherwise a value like any other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString, TypeVar

from app.errors import StorageFullError

from . import base
from .base import Admit, Record, StoreDamagedError, StoreError, StoreFullError, Usage, check_key
from .space import Space
from .sql import COLUMNS, SqlStateStore
from .sqlite_schema import prepare, transaction
from .turns import Turns, open_private

T = TypeVar("T")

_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_INSERT = f"INSERT INTO head ({COLUMNS}) VALUES {_VALUES}"  # noqa: S608 - all ours
_COUNT = """
INSERT INTO usage VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
    SET count = count + excluded.count, nbytes = nbytes + excluded.nbytes
    RETURNING count, nbytes
"""
_SWAP = """
UPDATE head SET value = ?, generation = ?, checksum = ?, size = ? WHERE kind = ? AND id = ?
"""
_OVERHEAD = 64 << 10
"""Bytes that storing a small value may take: pages of the log and of the database."""
_LOG_PAGES = 256
"""Pages of the log at which it is moved into the database: on a full disk the log has no more
space than the ballast."""
_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16sH10xI")
"""Magic, size of a page, and number of pages when the header was last written."""
_ROWS = 64
"""Rows read by each check; the next one continues after them."""
_PRIMARY = 0xFF
"""Bits of an extended error code that hold the primary one."""
_BUSY = (base.StoreBusyError, "the stored state was locked for too long")
_DAMAGED = (StoreDamagedError, "the stored state is damaged")
_READ_ONLY = (base.StoreReadOnlyError, "the state is not writable")
_ERRORS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_FULL: (StoreFullError, "the disk of the state is full"),
}
_SYSTEM = {
    errno.EACCES: sqlite3.SQLITE_READONLY,
    errno.EPERM: sqlite3.SQLITE_READONLY,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
}


class SqliteStateStore(SqlStateStore):
    """A StateStore in a SQLite file.

    Writes are on the disk when a method returns. A store must not be used after a fork.

    Args:
        path: path of the file; created, with its directory, if it does not exist.
        wait: maximum seconds to wait for other writers.
        space: of the disk, which bounds what is created; None for no bound.

    Raises:
        StoreDamagedError: the file is not a SQLite file, or damaged.
        StoreForeignError: it belongs to a newer version, or to another program.
        StoreReadOnlyError: it cannot be created, opened or written.
        StoreBusyError: others locked it for too long.
        StoreError: the file system does not support WAL mode.
    """

    path: Path

    def __init__(self, path: Path, wait: float = 10.0, space: Space | None = None) -> None:
        self.path = path
        self._wait = wait
        self._space = space
        self._process = os.getpid()
        self._read_lock = threading.Lock()
        self._closed = False
        self._row = 0
        with contextlib.ExitStack() as undo, self._translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._turns = Turns(path.with_name(f"{path.name}.lock"), wait, _BUSY[1])
            undo.callback(self._turns.close)
            # Closed last. A process that closes any descriptor of a file loses all its POSIX locks
            # on it, and SQLite's are such: another process that opened the store and closed it
            # again would take itself for the last one, and delete the log under our feet.
            self._file = open_private(path)
            undo.callback(os.close, self._file)
            self._inode = os.fstat(self._file).st_ino
            self._writer = undo.enter_context(contextlib.closing(self._connect()))
            with self._turns.turn():
                prepare(self._writer, path)
            self._reader = undo.enter_context(contextlib.closing(self._connect()))
            self._reader.execute("PRAGMA query_only = 1")
            self._resources = undo.pop_all()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._wait, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def insert(self, record: Record, admit: Admit | None) -> Record:
        """See StateStore."""
        self._check_space(record)
        version = (record.kind, record.id, record.value, record.generation, record.nonce)
        row = (*version, record.used, record.checksum(), record.size)
        with self._writing() as connection:
            if not connection.execute(_INSERT, row).rowcount:
                raise base.exists(record.kind, record.id)
            self._count(record.kind, record.id, 1, record.size, admit)
        return record

    def _count(
        self, kind: str, record_id: str, count: int, nbytes: int, admit: Admit | None = None
    ) -> None:
        """Add to the usage of a record's space within a transaction, if it is admitted."""
        space = base.space_of(record_id)
        row = self._writer.execute(_COUNT, (kind, space, count, nbytes)).fetchone()
        usage = Usage(*row)
        if admit is not None:
            admit(usage)
        if not usage.count:
            self._writer.execute("DELETE FROM usage WHERE kind = ? AND space = ?", (kind, space))

    def _check_space(self, record: Record) -> None:
        try:
            if self._space is not None:
                self._space.check(len(record.value) + _OVERHEAD)
        except StorageFullError:
            # Who creates again what exists asks for nothing more.
            if self.find(record.kind, record.id):
                raise base.exists(record.kind, record.id) from None
            raise

    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        """See StateStore."""

        def swap(connection: sqlite3.Connection) -> Record:
            used, before = self._compare(seen.kind, seen.id, seen)
            self._count(seen.kind, seen.id, 0, new.size - before, admit)
            values = (new.value, new.generation, new.checksum(), new.size, new.kind, new.id)
            connection.execute(_SWAP, values)
            return replace(new, used=used)

        return self._write_even_if_full(swap)

    def _compare(self, kind: str, record_id: str, seen: Record | None) -> tuple[float, int]:
        """Check that a record is unchanged; return when it was used, and its size."""
        row = self._writer.execute(
            "SELECT used, size, generation, nonce FROM head WHERE kind = ? AND id = ?",
            (kind, record_id),
        ).fetchone()
        if row is None:
            raise base.missing(kind, record_id)
        used, size, *version = row
        if seen is not None and not seen.same_version(*version):
            raise base.conflict(kind, record_id)
        return float(used), int(size)

    def touch(self, kind: str, record_id: str) -> None:
        """See StateStore."""
        check_key(kind, record_id)
        with self._writing() as connection:
            self._compare(kind, record_id, None)
            connection.execute(
                "UPDATE head SET used = ? WHERE kind = ? AND id = ?", (time.time(), kind, record_id)
            )

    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        """See StateStore."""

        def remove(connection: sqlite3.Connection) -> None:
            used, size = self._compare(kind, record_id, seen)
            if unused_since is not None and used >= unused_since:
                raise base.in_use(kind, record_id)
            self._count(kind, record_id, -1, -size)
            connection.execute("DELETE FROM head WHERE kind = ? AND id = ?", (kind, record_id))

        self._write_even_if_full(remove)

    def rows(self, query: LiteralString, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        """See SqlStateStore."""
        with self._translated(), self._read_lock:
            self._check_usable()
            return self._reader.execute(query, values).fetchall()

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all records."""
        return tuple(kind for (kind,) in self.rows("SELECT DISTINCT kind FROM head ORDER BY 1", ()))

    def check(self) -> None:
        """Write a record, and read the header of the file and a few rows.

        SQLite works from pages in memory. A connection may read and even commit long after the file
        below it was overwritten or cut, and only the next start would notice. So the check looks at
        the file itself, and reads through a connection of its own.

        Raises:
            StoreError: one of them failed.
        """
        super().check()
        try:
            self._check_header()
            query = "SELECT rowid, kind, id, nonce FROM head WHERE rowid > ? ORDER BY rowid LIMIT ?"
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1)) as connection:
                rows = connection.execute(query, (self._row, _ROWS)).fetchall()
            self._row = rows[-1][0] if len(rows) == _ROWS else 0
        except (sqlite3.DatabaseError, OSError) as e:
            if isinstance(e, sqlite3.OperationalError) and "locked" in str(e):
                return
            raise self._damaged(f"the stored state cannot be read: {e}") from e

    def _check_header(self) -> None:
        data = os.pread(self._file, _HEADER.size, 0)
        size = os.fstat(self._file).st_size
        if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
            raise self._damaged("the file of the state has lost its header")
        _, page, pages = _HEADER.unpack(data)
        # A size of 1 stands for 65536, which does not fit.
        if size < pages * (65536 if page == 1 else page):
            raise self._damaged("the file of the state was cut")

    def _damaged(self, detail: str) -> StoreDamagedError:
        return StoreDamagedError(detail, path=self.path)

    def close(self) -> None:
        """See StateStore."""
        if self._process != os.getpid():
            return
        self._closed = True
        self._turns.close()
        with self._translated(), self._read_lock:
            self._resources.close()

    def _write_even_if_full(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction that may need a little space to set more free."""
        try:
            with self._writing() as connection:
                return change(connection)
        except StoreFullError:
            if self._space is None or not self._space.release():
                raise
            with self._writing() as connection:
                return change(connection)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction alone among all threads and processes; durable after the block."""
        with self._translated(), self._turns.turn():
            self._check_usable()
            with transaction(self._writer):
                yield self._writer

    def _check_usable(self) -> None:
        if self._closed or self._process != os.getpid():
            raise StoreError("the store is closed, or was opened before a fork")
        try:
            inode = self.path.stat().st_ino
        except (FileNotFoundError, NotADirectoryError):
            inode = None
        if inode != self._inode:
            # Writes to the old file would be lost.
            detail = "the file of the state was removed or replaced"
            raise self._damaged(detail)

    def _error(self, code: int, detail: str = "") -> StoreError:
        known = _ERRORS.get(code & _PRIMARY)
        if known is None:
            return StoreError(f"the state cannot be read or written: {detail}", path=self.path)
        kind, text = known
        retry = 1 if kind is base.StoreBusyError else 30
        return kind(text, path=self.path, retry_after=retry)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as e:
            raise self._error(getattr(e, "sqlite_errorcode", 0), str(e)) from e
        except OSError as e:
            raise self._error(_SYSTEM.get(e.errno or 0, 0), e.strerror or "") from e
