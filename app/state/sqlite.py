"""Heads in a SQLite file, shared by the threads and processes of one machine.

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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from app.errors import StorageFullError

from . import base
from .base import (
    Admit,
    Head,
    Page,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    Usage,
    check_key,
    checksum_of,
)
from .space import Space
from .sqlite_schema import prepare, transaction
from .turns import Turns, open_private

T = TypeVar("T")

_COLUMNS = "kind, id, value, generation, nonce, used, checksum, size"
_INSERT = """
INSERT INTO head (kind, id, value, generation, nonce, used, checksum, size)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
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
_LAST = "\x7f"
"""Sorts after every character of an id."""
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


class SqliteStateStore:
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

    def __init__(self, path: Path, wait: float = 10.0, space: Space | None = None) -> None:
        self._path = path
        self._wait = wait
        self._space = space
        self._process = os.getpid()
        self._read_lock = threading.Lock()
        self._closed = False
        with contextlib.ExitStack() as undo, self._translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._turns = Turns(path.with_name(f"{path.name}.lock"), wait)
            undo.callback(self._turns.close)
            file = open_private(path)
            self._inode = os.fstat(file).st_ino
            os.close(file)
            self._writer = undo.enter_context(contextlib.closing(self._connect()))
            with self._turns.turn():
                prepare(self._writer, path)
            self._reader = undo.enter_context(contextlib.closing(self._connect()))
            self._reader.execute("PRAGMA query_only = 1")
            undo.pop_all()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._wait, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def create(
        self,
        kind: str,
        head_id: str,
        value: bytes,
        *,
        size: int | None = None,
        admit: Admit | None = None,
    ) -> Head:
        """See StateStore."""
        check_key(kind, head_id)
        nbytes = len(value) if size is None else size
        head = Head(
            kind, head_id, base.check_value(value), 1, base.new_nonce(), time.time(), nbytes
        )
        self._check_space(kind, head_id, len(value) + _OVERHEAD)
        version = (kind, head_id, head.value, 1, head.nonce)
        row = (*version, head.used, checksum_of(*version), nbytes)
        with self._writing() as connection:
            if not connection.execute(_INSERT, row).rowcount:
                raise base.exists(kind, head_id)
            self._count(kind, head_id, 1, nbytes, admit)
        return head

    def _count(
        self, kind: str, head_id: str, count: int, nbytes: int, admit: Admit | None = None
    ) -> None:
        """Add to the usage of a head's space within a transaction, if it is admitted."""
        space = base.space_of(head_id)
        row = self._writer.execute(_COUNT, (kind, space, count, nbytes)).fetchone()
        usage = Usage(*row)
        if admit is not None:
            admit(usage)
        if not usage.count:
            self._writer.execute("DELETE FROM usage WHERE kind = ? AND space = ?", (kind, space))

    def _check_space(self, kind: str, head_id: str, nbytes: int) -> None:
        try:
            if self._space is not None:
                self._space.check(nbytes)
        except StorageFullError:
            # Who creates again what exists asks for nothing more.
            if self._select("kind = ? AND id = ?", (kind, head_id)):
                raise base.exists(kind, head_id) from None
            raise

    def get(self, kind: str, head_id: str) -> Head:
        """See StateStore."""
        check_key(kind, head_id)
        rows = self._select("kind = ? AND id = ?", (kind, head_id))
        if not rows:
            raise base.missing(kind, head_id)
        return rows[0]

    def compare_and_swap(
        self, seen: Head, value: bytes, *, size: int | None = None, admit: Admit | None = None
    ) -> Head:
        """See StateStore."""
        check_key(seen.kind, seen.id)
        value, generation = base.check_value(value), seen.generation + 1
        nbytes = len(value) if size is None else size
        checksum = checksum_of(seen.kind, seen.id, value, generation, seen.nonce)

        def swap(connection: sqlite3.Connection) -> Head:
            used, before = self._compare(seen.kind, seen.id, seen)
            self._count(seen.kind, seen.id, 0, nbytes - before, admit)
            connection.execute(_SWAP, (value, generation, checksum, nbytes, seen.kind, seen.id))
            return Head(seen.kind, seen.id, value, generation, seen.nonce, used, nbytes)

        return self._write_even_if_full(swap)

    def _compare(self, kind: str, head_id: str, seen: Head | None) -> tuple[float, int]:
        """Check that a head is unchanged; return when it was used, and its size."""
        row = self._writer.execute(
            "SELECT used, size, generation, nonce FROM head WHERE kind = ? AND id = ?",
            (kind, head_id),
        ).fetchone()
        if row is None:
            raise base.missing(kind, head_id)
        used, size, *version = row
        if seen is not None and not seen.same_version(*version):
            raise base.conflict(kind, head_id)
        return float(used), int(size)

    def touch(self, kind: str, head_id: str) -> None:
        """See StateStore."""
        check_key(kind, head_id)
        with self._writing() as connection:
            self._compare(kind, head_id, None)
            connection.execute(
                "UPDATE head SET used = ? WHERE kind = ? AND id = ?", (time.time(), kind, head_id)
            )

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """See StateStore."""
        base.check_page(kind, prefix, after, limit)
        heads = self._select(
            "kind = ? AND id >= ? AND id < ? AND id > ? ORDER BY id LIMIT ?",
            (kind, prefix, prefix + _LAST, after, limit + 1),
        )
        page = heads[:limit]
        return Page(page, page[-1].id if len(heads) > limit else None)

    def delete(
        self,
        kind: str,
        head_id: str,
        seen: Head | None = None,
        *,
        unused_since: float | None = None,
    ) -> None:
        """See StateStore."""
        check_key(kind, head_id)

        def delete(connection: sqlite3.Connection) -> None:
            used, size = self._compare(kind, head_id, seen)
            if unused_since is not None and used >= unused_since:
                raise base.in_use(kind, head_id)
            self._count(kind, head_id, -1, -size)
            connection.execute("DELETE FROM head WHERE kind = ? AND id = ?", (kind, head_id))

        self._write_even_if_full(delete)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all heads."""
        with self._translated(), self._read_lock:
            self._check_usable()
            rows = self._reader.execute("SELECT DISTINCT kind FROM head ORDER BY kind")
            return tuple(str(row[0]) for row in rows)

    def close(self) -> None:
        """See StateStore."""
        if self._process != os.getpid():
            return
        self._closed = True
        self._turns.close()
        with self._translated(), self._read_lock:
            self._reader.close()
            self._writer.close()

    def _select(self, where: str, values: tuple[str | int, ...]) -> tuple[Head, ...]:
        with self._translated(), self._read_lock:
            self._check_usable()
            # The text is ours alone: values of callers are bound.
            query = f"SELECT {_COLUMNS} FROM head WHERE {where}"  # noqa: S608
            return tuple(self._head(row) for row in self._reader.execute(query, values))

    def _head(self, row: tuple[Any, ...]) -> Head:
        kind, head_id, value, generation, nonce, used, checksum, size = row
        if checksum_of(kind, head_id, value, generation, nonce) != checksum:
            raise base.damaged(str(kind), str(head_id), self._path)
        return Head(kind, head_id, value, generation, nonce, used, size)

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
            inode = self._path.stat().st_ino
        except (FileNotFoundError, NotADirectoryError):
            inode = None
        if inode != self._inode:
            # Writes to the old file would be lost.
            detail = "the file of the state was removed or replaced"
            raise StoreDamagedError(detail, path=self._path)

    def _error(self, code: int, detail: str = "") -> StoreError:
        known = _ERRORS.get(code & _PRIMARY)
        if known is None:
            return StoreError(f"the state cannot be read or written: {detail}", path=self._path)
        kind, text = known
        retry = 1 if kind is base.StoreBusyError else 30
        return kind(text, path=self._path, retry_after=retry)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as e:
            raise self._error(getattr(e, "sqlite_errorcode", 0), str(e)) from e
        except TimeoutError as e:
            raise self._error(sqlite3.SQLITE_BUSY) from e
        except OSError as e:
            raise self._error(_SYSTEM.get(e.errno or 0, 0), e.strerror or "") from e
