"""The tables of the SQLite file, and how those of earlier versions are brought up to date."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from .base import StoreError, StoreForeignError, space_of

VERSION = 4
"""Version of the schema; 1 had neither checksums nor times of use, 2 no usage, and in 3 streams of
runs had the partition and a random end as their key."""
_CHECKSUMS = 2
"""Version that brought checksums and times of use."""
_USAGES = 3
"""Version that brought usage."""
_APPLICATION = 0x54575331
"""What SQLite files of ours call themselves."""
_TABLE = """
CREATE TABLE head (kind TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL,
    generation INTEGER NOT NULL, nonce TEXT NOT NULL, PRIMARY KEY (kind, id))
"""
_ADDED = (
    "ALTER TABLE head ADD COLUMN used REAL NOT NULL DEFAULT 0",
    "ALTER TABLE head ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
)
_USAGE = (
    "ALTER TABLE head ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    "UPDATE head SET size = length(value)",
    """
CREATE TABLE usage (kind TEXT NOT NULL, space TEXT NOT NULL, count INTEGER NOT NULL,
    nbytes INTEGER NOT NULL, PRIMARY KEY (kind, space)) WITHOUT ROWID
""",
    """
INSERT INTO usage SELECT kind, substr(id, 1, instr(id, '.')) AS space, count(*), sum(size)
    FROM head GROUP BY kind, space
""",
)
_DELETE = "DELETE FROM head WHERE kind = 'stream' AND id = ? RETURNING size"
_UNCOUNT = """
UPDATE usage SET count = count - 1, nbytes = nbytes - ? WHERE kind = 'stream' AND space = ?
"""
_RENAME = """
UPDATE OR IGNORE head SET id = ?, value = ?, checksum = ? WHERE kind = 'stream' AND id = ?
"""
_SIGN = 1 << 63
"""SQLite's integers are signed: checksums are stored less by this."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables or bring them up to date, after a check that the file is ours.

    Args:
        connection: may write; nobody else writes meanwhile.
        path: of the file, for messages.

    Raises:
        StoreForeignError: it belongs to a newer version, or to another program.
        StoreError: the file system does not support WAL mode.
    """
    version = _scalar(connection, "PRAGMA user_version")
    application = _scalar(connection, "PRAGMA application_id")
    tables = _scalar(connection, "SELECT count(*) FROM sqlite_master")
    if tables and application != _APPLICATION:
        raise StoreForeignError(
            "the file of the state belongs to another program",
            path=path,
            hint="Use another data directory",
            retry_after=None,
        )
    if version > VERSION:
        raise StoreForeignError(
            f"the state has version {version}, but this server supports only {VERSION}",
            path=path,
            hint="Run the newer server that wrote it, or use another data directory",
            retry_after=None,
        )
    if _scalar(connection, "PRAGMA journal_mode = WAL") != "wal":
        raise StoreError(
            "the file system does not support SQLite's WAL mode",
            path=path,
            hint="Use a data directory on a local file system",
            retry_after=None,
        )
    with transaction(connection):
        if not tables:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(_TABLE)
        if version < _CHECKSUMS:
            _add_columns(connection)
        if version < _USAGES:
            for statement in _USAGE:
                connection.execute(statement)
        if version < VERSION:
            _key_streams(connection)
        # Written even without a change: a read-only file must fail now, not later.
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _scalar(connection: sqlite3.Connection, query: str) -> Any:  # noqa: ANN401 - any column type
    return connection.execute(query).fetchone()[0]


def _add_columns(connection: sqlite3.Connection) -> None:
    for statement in _ADDED:
        connection.execute(statement)
    rows = connection.execute("SELECT rowid, kind, id, value, generation, nonce FROM head")
    known = [(checksum_of(*row[1:]), row[0]) for row in rows]
    connection.executemany("UPDATE head SET checksum = ? WHERE rowid = ?", known)
    connection.execute("UPDATE head SET used = ?", (time.time(),))


def _key_streams(connection: sqlite3.Connection) -> None:
    """Give each stream of a run its partition as key, and drop those that no run lists."""
    rows = connection.execute("SELECT id FROM head WHERE kind = 'stream' ORDER BY id").fetchall()
    for run, keys in groupby((row[0] for row in rows), lambda key: key.rpartition(".")[0]):
        listed = _listed(connection, run)
        for key in keys:
            stream = key.removeprefix(f"{run}.")
            if listed is None or stream in listed:
                _rename(connection, key, f"{run}.{stream.partition('-')[0]}", stream)
            else:
                (size,) = connection.execute(_DELETE, (key,)).fetchone()
                connection.execute(_UNCOUNT, (size, space_of(key)))


def _listed(connection: sqlite3.Connection, run: str) -> set[str] | None:
    """Return the streams that a run lists, none if there is no run; None if it is damaged."""
    row = connection.execute("SELECT value FROM head WHERE kind = 'run' AND id = ?", (run,))
    found = row.fetchone()
    if found is None:
        return set()
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):
        return set(json.loads(found[0])["value"]["streams"].values())
    return None


def _rename(connection: sqlite3.Connection, key: str, new: str, stream: str) -> None:
    """Change the key of a stream, which is in its value from now on; damage stays as it is."""
    value, generation, nonce, checksum = connection.execute(
        "SELECT value, generation, nonce, checksum FROM head WHERE kind = 'stream' AND id = ?",
        (key,),
    ).fetchone()
    if checksum_of("stream", key, value, generation, nonce) == checksum:
        values = json.loads(value)
        values["value"]["id"] = stream
        value = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
        checksum = checksum_of("stream", new, value, generation, nonce)
    connection.execute(_RENAME, (new, value, checksum, key))


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the block, or undo all of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has already rolled back.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def checksum_of(kind: str, head_id: str, value: bytes, generation: int, nonce: str) -> int:
    """Compute the checksum of a version of a head."""
    try:
        name = f"{kind}\0{head_id}\0{generation}\0{nonce}\0".encode()
        return xxh3_64_intdigest(name + value) - _SIGN
    except (TypeError, UnicodeError):
        # A damaged row may hold values of other types.
        return 0
