"""Heads in a SQLite file, shared by the threads and processes of one machine.

Writes of all processes queue at a lock file of ours before they begin. SQLite would let
them wait too, but by sleeping, and releases before 3.51.3 can damage a file when one
connection commits while another checkpoints; here neither happens beside the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .base import (
    Head,
    Page,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreReadOnlyError,
    check_key,
    check_page,
    check_value,
    conflict,
    exists,
    missing,
    new_nonce,
)
from .turns import Turns, open_private

VERSION = 1
"""Of the schema."""
_APPLICATION = 0x54575331
_TABLE = """
CREATE TABLE head (kind TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL,
    generation INTEGER NOT NULL, nonce TEXT NOT NULL, PRIMARY KEY (kind, id))
"""
_COLUMNS = "kind, id, value, generation, nonce"
_BEHIND = "\x7f"  # sorts behind every character of an id
_PRIMARY = 0xFF
"""Bits of an error code that are not its detail."""
_BUSY = (StoreBusyError, "others kept the state locked for too long")
_DAMAGED = (StoreDamagedError, "the stored state is damaged")
_READ_ONLY = (StoreReadOnlyError, "the state cannot be written")
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
    """A StateStore in one file, with two beside it while it is in use, and a lock file.

    A commit is on the disk when a method returns. A store must not be carried over a fork.

    Args:
        path: the file; made, with its directory, if it is not there.
        wait: seconds to wait for others' writes.

    Raises:
        StoreDamagedError: the file is no SQLite file, or damaged.
        StoreForeignError: it is of a newer version, or of another program.
        StoreReadOnlyError: it cannot be made, opened or written.
        StoreBusyError: others kept it locked for too long.
        StoreError: the file system cannot hold such a file.
    """

    def __init__(self, path: Path, wait: float = 10.0) -> None:
        self._path = path
        self._wait = wait
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
            # Two: a read does not wait until a commit is on the disk.
            self._writer = undo.enter_context(contextlib.closing(self._connect()))
            with self._turns.turn():
                self._prepare()
            self._reader = undo.enter_context(contextlib.closing(self._connect()))
            self._reader.execute("PRAGMA query_only = 1")
            undo.pop_all()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._wait, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        """Make the table, or make sure that it is ours."""
        version = self._first("PRAGMA user_version")
        application = self._first("PRAGMA application_id")
        tables = self._first("SELECT count(*) FROM sqlite_master")
        if tables and application != _APPLICATION:
            raise self._foreign("the file is another program's", "Give another data directory")
        if version > VERSION:
            raise self._foreign(
                f"the state has version {version}, and this server knows {VERSION}",
                "A newer server wrote it: run that, or give another data directory",
            )
        if self._first("PRAGMA journal_mode = WAL") != "wal":
            raise StoreError(
                "the file system cannot hold the state", path=self._path, retry_after=None
            )
        with self._transaction():
            if not tables:
                self._writer.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._writer.execute(_TABLE)
            # Also written when nothing changes: a file that cannot be is found out now.
            self._writer.execute(f"PRAGMA user_version = {VERSION}")

    def _first(self, query: str) -> Any:  # noqa: ANN401 - what the column holds
        return self._writer.execute(query).fetchone()[0]

    def _foreign(self, detail: str, hint: str) -> StoreForeignError:
        return StoreForeignError(detail, path=self._path, hint=hint, retry_after=None)

    def create(self, kind: str, head_id: str, value: bytes) -> Head:
        """Make a head, at generation 1.

        Raises:
            HeadExistsError: there is one already, whatever its value.
            HeadInvalidError: an argument that no store takes.
            StoreError: the store failed.
        """
        check_key(kind, head_id)
        head = Head(kind, head_id, check_value(value), 1, new_nonce())
        row = (kind, head_id, head.value, 1, head.nonce)
        with self._writing() as connection:
            insert = "INSERT INTO head VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            if not connection.execute(insert, row).rowcount:
                raise exists(kind, head_id)
        return head

    def get(self, kind: str, head_id: str) -> Head:
        """The head as it is.

        Raises:
            HeadMissingError: there is none.
            HeadInvalidError: an argument that no store takes.
            StoreError: the store failed.
        """
        check_key(kind, head_id)
        rows = self._select("kind = ? AND id = ?", (kind, head_id))
        if not rows:
            raise missing(kind, head_id)
        return rows[0]

    def compare_and_swap(self, seen: Head, value: bytes) -> Head:
        """Replace the value of a head that is still as it was seen; returns the new one.

        Raises:
            HeadMissingError: there is none any more.
            HeadConflictError: it was swapped since, or deleted and made again.
            HeadInvalidError: an argument that no store takes.
            StoreError: the store failed.
        """
        check_key(seen.kind, seen.id)
        head = Head(seen.kind, seen.id, check_value(value), seen.generation + 1, seen.nonce)
        with self._writing() as connection:
            self._compare(seen.kind, seen.id, seen)
            connection.execute(
                "UPDATE head SET value = ?, generation = ? WHERE kind = ? AND id = ?",
                (head.value, head.generation, head.kind, head.id),
            )
        return head

    def _compare(self, kind: str, head_id: str, seen: Head | None) -> None:
        row = self._writer.execute(
            "SELECT generation, nonce FROM head WHERE kind = ? AND id = ?", (kind, head_id)
        ).fetchone()
        if row is None:
            raise missing(kind, head_id)
        if seen is not None and not seen.same_version(*row):
            raise conflict(kind, head_id)

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """Heads whose id begins with a prefix, in the order of their ids' bytes.

        Raises:
            HeadInvalidError: an argument that no store takes.
            StoreError: the store failed.
        """
        check_page(kind, prefix, after, limit)
        heads = self._select(
            "kind = ? AND id >= ? AND id < ? AND id > ? ORDER BY id LIMIT ?",
            (kind, prefix, prefix + _BEHIND, after, limit + 1),
        )
        page = heads[:limit]
        return Page(page, page[-1].id if len(heads) > limit else None)

    def delete(self, kind: str, head_id: str, seen: Head | None = None) -> None:
        """Remove a head; if ``seen`` is given, only if it is still as it was seen.

        Raises:
            HeadMissingError: there is none.
            HeadConflictError: it is not as it was seen.
            HeadInvalidError: an argument that no store takes.
            StoreError: the store failed.
        """
        check_key(kind, head_id)
        with self._writing() as connection:
            self._compare(kind, head_id, seen)
            connection.execute("DELETE FROM head WHERE kind = ? AND id = ?", (kind, head_id))

    def close(self) -> None:
        """Let go of everything; may be called twice."""
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
            # No value of a caller is in the text.
            query = f"SELECT {_COLUMNS} FROM head WHERE {where}"  # noqa: S608
            return tuple(Head(*row) for row in self._reader.execute(query, values))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone among all threads and processes; durable behind it."""
        with self._translated(), self._turns.turn():
            self._check_usable()
            with self._transaction():
                yield self._writer

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back by itself.
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _check_usable(self) -> None:
        if self._closed or self._process != os.getpid():
            raise StoreError("the store is closed, or was opened before a fork")
        found = self._path.stat().st_ino if self._path.exists() else None
        if found != self._inode:
            # What is written to the old one would be lost.
            detail = "the file of the state was removed or replaced"
            raise StoreDamagedError(detail, path=self._path)

    def _error(self, code: int, detail: str = "") -> StoreError:
        known = _ERRORS.get(code & _PRIMARY)
        if known is None:
            return StoreError(f"the state cannot be read or written: {detail}", path=self._path)
        kind, text = known
        retry = 1 if kind is StoreBusyError else 30
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
