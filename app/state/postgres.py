"""Records in a Postgres database, shared by the nodes of a service.

Each call is one statement: it changes the record, counts the usage of its space, and returns what
the caller has to know. So a database that is far away is asked once. Where a quota has to admit the
change before it is committed, it is asked three times: psycopg's pipeline mode takes more::

    WITH old AS (lock the record), changed AS (change it if it is ``old``), counted AS (usage)

Rows are locked in the same order everywhere, the record before the usage of its space, so no two
calls wait for each other.

*What a commit means.* A database that answers before its log is on the disk would lose what a
client was told is stored; the store refuses one whose settings say so. What a standby has when it
is promoted is a matter of ``synchronous_standby_names``: with a synchronous one nothing is lost.

A read that loses its connection is repeated. A change that does may or may not have taken effect:
StoreError, as the interface says.

Checked after every read, as in the SQLite store: the checksum of the row.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, LiteralString

import psycopg
from psycopg import errors

from . import base
from .base import Admit, Record, StoreDamagedError, StoreError, Usage, check_key
from .connections import Connection, Connections
from .sql import COLUMNS, SqlStateStore

VERSION = 1
_APART = 300.0
"""Seconds between clocks, at most: half the age that the sweepers of all nodes leave alone."""
_SHOWN = (["server_version", "synchronous_commit", "synchronous_standby_names"],)
_TABLES = """
CREATE TABLE IF NOT EXISTS thalweg_head (
    kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, value bytea NOT NULL,
    generation bigint NOT NULL, nonce text NOT NULL, used double precision NOT NULL,
    checksum bigint NOT NULL, size bigint NOT NULL, PRIMARY KEY (kind, id));
CREATE TABLE IF NOT EXISTS thalweg_usage (
    kind text COLLATE "C" NOT NULL, space text COLLATE "C" NOT NULL, count bigint NOT NULL,
    nbytes bigint NOT NULL, PRIMARY KEY (kind, space));
CREATE TABLE IF NOT EXISTS thalweg_schema (version integer NOT NULL, blobs text NOT NULL);
"""
_NOW = "extract(epoch FROM clock_timestamp())"
"""The clock of the database: nodes need not agree on the time."""
_COUNTED = """
counted AS (
    INSERT INTO thalweg_usage AS u SELECT %(kind)s, %(space)s, {count}, {nbytes} FROM changed
    ON CONFLICT (kind, space) DO UPDATE
        SET count = u.count + excluded.count, nbytes = u.nbytes + excluded.nbytes
    RETURNING count, nbytes)
"""
_OLD = """
old AS (
    SELECT used, size, generation, nonce FROM thalweg_head
    WHERE kind = %(kind)s AND id = %(id)s FOR UPDATE)
"""
_CREATE = f"""
WITH changed AS (
    INSERT INTO thalweg_head ({COLUMNS})
    VALUES (%(kind)s, %(id)s, %(value)s, %(generation)s, %(nonce)s, {{used}}, %(checksum)s,
        %(size)s)
    ON CONFLICT DO NOTHING RETURNING used, size), {_COUNTED.format(count=1, nbytes="size")}
SELECT count, nbytes, used FROM counted, changed
"""
_INSERT = _CREATE.format(used=_NOW)
_RESTORE = _CREATE.format(used="%(used)s")
_SWAP = f"""
WITH {_OLD}, changed AS (
    UPDATE thalweg_head AS h
    SET value = %(value)s, generation = %(generation)s, checksum = %(checksum)s, size = %(size)s
    FROM old WHERE h.kind = %(kind)s AND h.id = %(id)s
        AND h.generation = %(generation)s - 1 AND h.nonce = %(nonce)s
    RETURNING h.size - old.size AS more),
{_COUNTED.format(count=0, nbytes="more")}
SELECT count, nbytes, used FROM old LEFT JOIN counted ON true
"""
_DELETE = f"""
WITH {_OLD}, changed AS (
    DELETE FROM thalweg_head AS h USING old WHERE h.kind = %(kind)s AND h.id = %(id)s
        AND (%(nonce)s::text IS NULL OR h.generation = %(generation)s AND h.nonce = %(nonce)s)
        AND (%(unused_since)s::float8 IS NULL OR h.used < %(unused_since)s)
    RETURNING h.size),
{_COUNTED.format(count=-1, nbytes="-size")}
SELECT count, generation, nonce FROM old LEFT JOIN counted ON true
"""
_TOUCH = f"UPDATE thalweg_head SET used = {_NOW} WHERE kind = %(kind)s AND id = %(id)s RETURNING id"
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('thalweg ' || %s, 0))"
_FORGET = "DELETE FROM thalweg_usage WHERE kind = %(kind)s AND space = %(space)s AND count = 0"
_BUSY = (base.StoreBusyError, "the database of the state was locked for too long", 1)
_READ_ONLY = (base.StoreReadOnlyError, "the database of the state is not writable", 30)
_GONE = (StoreError, "the database of the state cannot be reached", 5)
_DAMAGED = (StoreDamagedError, "the database of the state is damaged", 30)
_ERRORS: tuple[tuple[type[Exception], tuple[type[StoreError], str, int]], ...] = (
    (errors.LockNotAvailable, _BUSY),
    (errors.QueryCanceled, _BUSY),
    (errors.DeadlockDetected, _BUSY),
    (errors.DiskFull, (base.StoreFullError, "the disk of the database is full", 30)),
    (errors.ReadOnlySqlTransaction, _READ_ONLY),
    (errors.InsufficientPrivilege, _READ_ONLY),
    (errors.UndefinedTable, _DAMAGED),
    (errors.DataCorrupted, _DAMAGED),
    (errors.IndexCorrupted, _DAMAGED),
    (psycopg.OperationalError, _GONE),
)
"""The first that fits decides."""


class PostgresStateStore(SqlStateStore):
    """A StateStore in a Postgres database.

    Args:
        url: of the database, as libpq takes it; ``PGPASSWORD`` and the like are heeded.
        blobs: where the blobs of this state are: the same for all who use the database.
        wait: maximum seconds to wait for a connection, or for others.

    Attributes:
        connections: those that are open.

    Raises:
        StoreForeignError: the tables are of a newer version, or of other blobs.
        StoreReadOnlyError: they cannot be created, or written.
        StoreError: the database cannot be reached, or does not keep what it commits.
    """

    tables = "thalweg_"

    def __init__(self, url: str, blobs: str, wait: float = 10.0) -> None:
        self._wait = wait
        self._turns = threading.Lock()
        self.connections = Connections(url, wait)
        with _translated(), self.connections.open() as connection, connection.transaction():
            _prepare(connection, blobs)

    def insert(self, record: Record, admit: Admit | None) -> Record:
        """See StateStore."""
        row = self._change(_INSERT, record, admit)
        if row is None:
            raise base.exists(record.kind, record.id)
        return replace(record, used=row[2])

    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        """See StateStore."""
        row = self._change(_SWAP, new, admit)
        if row is None:
            raise base.missing(seen.kind, seen.id)
        if row[0] is None:
            raise base.conflict(seen.kind, seen.id)
        return replace(new, used=row[2])

    def _change(
        self, statement: LiteralString, record: Record, admit: Admit | None
    ) -> tuple[Any, ...] | None:
        """Store a version of a record if the usage of its space is admitted."""
        named = {
            **{field.name: getattr(record, field.name) for field in fields(record)},
            "space": base.space_of(record.id),
            "checksum": record.checksum(),
        }
        with _translated(), self.connections.use() as connection:
            if admit is None:
                return connection.execute(statement, named).fetchone()
            with connection.transaction():
                row = connection.execute(statement, named).fetchone()
                if row is not None and row[0] is not None:
                    admit(Usage(*row[:2]))
                return row

    def restore(self, record: Record) -> bool:
        """Create a record as it was in another store; return False if one of its id exists."""
        return self._change(_RESTORE, record, None) is not None

    def touch(self, kind: str, record_id: str) -> None:
        """See StateStore."""
        check_key(kind, record_id)
        with _translated(), self.connections.use() as connection:
            row = connection.execute(_TOUCH, {"kind": kind, "id": record_id}).fetchone()
        if row is None:
            raise base.missing(kind, record_id)

    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        """See StateStore."""
        named = {
            "kind": kind,
            "id": record_id,
            "space": base.space_of(record_id),
            "nonce": None if seen is None else seen.nonce,
            "generation": None if seen is None else seen.generation,
            "unused_since": unused_since,
        }
        with _translated(), self.connections.use() as connection:
            row = connection.execute(_DELETE, named).fetchone()
            if row is not None and row[0] == 0:
                connection.execute(_FORGET, named)
        if row is None:
            raise base.missing(kind, record_id)
        if row[0] is None:
            changed = seen is not None and not seen.same_version(*row[1:])
            raise (base.conflict if changed else base.in_use)(kind, record_id)

    def rows(self, query: LiteralString, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        """See SqlStateStore; asked once more if the connection is lost."""
        query = query.replace("?", "%s")
        for retry in (True, False):
            with _translated(), self.connections.use() as connection:
                try:
                    return connection.execute(query, values).fetchall()
                except psycopg.OperationalError:
                    if not (retry and connection.closed):
                        raise
        raise AssertionError

    def check(self) -> None:
        """See SqlStateStore; and that the clocks of the nodes agree.

        Raises:
            StoreError: none can be written, or the clock of this one is wrong.
        """
        super().check()
        self.check_clock()

    def check_clock(self) -> None:
        """Check that this machine's clock is near that of the database.

        Raises:
            StoreError: it is not, or the database cannot be reached.
        """
        ((now,),) = self.rows(f"SELECT {_NOW}", ())
        _check_clock(float(now))

    def describe(self) -> dict[str, str]:
        """Return the version of the database, and settings that its commits depend on, by name.

        Raises:
            StoreError: they cannot be read.
        """
        return dict(self.rows("SELECT name, setting FROM pg_settings WHERE name = ANY(?)", _SHOWN))

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Have a turn among all who use the database, until the end of the block.

        It ends with the connection, so also with the process. The block's changes are not part of
        its transaction: whoever loses the connection meanwhile is told at the end.

        Args:
            name: those with other names do not wait for each other.

        Raises:
            StoreBusyError: others had it for too long.
            StoreError: the database was lost before the end of the block.
        """
        # One thread of a process waits in the database, or all connections would.
        if not self._turns.acquire(timeout=self._wait):
            raise base.StoreBusyError("others store or delete for too long", retry_after=1)
        try:
            with _translated(), self.connections.use() as connection, connection.transaction():
                connection.execute(_TURN, (name,))
                yield
        finally:
            self._turns.release()

    def notify(self, channel: str, text: str) -> None:
        """Tell all who listen to a channel, on whichever node.

        Raises:
            StoreError: nobody was told.
        """
        with _translated(), self.connections.use() as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (channel, text))

    @contextlib.contextmanager
    def listening(self, channel: str) -> Iterator[Callable[[float], Iterator[str]]]:
        """Provide what yields the texts that a channel is told within some seconds.

        Raises:
            StoreError: the database cannot be reached, or was lost.
        """
        with _translated(), self.connections.open() as own:
            own.execute(f"LISTEN {channel}")

            def hear(seconds: float) -> Iterator[str]:
                return (notice.payload for notice in own.notifies(timeout=seconds))

            yield hear

    def close(self) -> None:
        """See StateStore."""
        self.connections.close()


def _prepare(connection: Connection, blobs: str) -> None:
    """Create the tables, or check that they are of this version and of these blobs."""
    for name in ("fsync", "synchronous_commit"):
        if _scalar(connection, f"SHOW {name}") == "off":
            raise StoreError(
                f"the database has {name} off: what it commits may be lost",
                hint=f"Set {name} to on in the database",
                retry_after=None,
            )
    _check_clock(float(str(_scalar(connection, f"SELECT {_NOW}"))))
    connection.execute(_TURN, ("schema",))
    connection.execute(_TABLES)
    row = connection.execute("SELECT version, blobs FROM thalweg_schema").fetchone()
    if row is None:
        connection.execute("INSERT INTO thalweg_schema VALUES (%s, %s)", (VERSION, blobs))
        return
    version, found = row
    if version > VERSION:
        raise base.StoreForeignError(
            f"the state has version {version}, but this server supports only {VERSION}",
            hint="Run the newer server that wrote it, or use another database",
            retry_after=None,
        )
    if found != blobs:
        raise base.StoreForeignError(
            f"the blobs of this database are in {found}, not in {blobs}",
            hint="Use those, or another database: nodes that share it share an object store",
            retry_after=None,
        )


def _check_clock(now: float) -> None:
    ahead = time.time() - now
    if abs(ahead) > _APART:
        way = "ahead of" if ahead > 0 else "behind"
        raise StoreError(
            f"the clock of this machine is {abs(ahead):,.0f} s {way} that of the database",
            hint="Have NTP set the clocks: nodes tell by them what is garbage, and what expires",
            retry_after=None,
        )


def _scalar(connection: Connection, query: LiteralString) -> object:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as e:  # whose text may name hosts and users
        for kind, (store_error, text, retry_after) in _ERRORS:
            if isinstance(e, kind):
                raise store_error(text, retry_after=retry_after) from e
        raise StoreError("the database of the state failed") from e
