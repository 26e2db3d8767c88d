"""The tables of the SQLite file, and how those of earlier versions are brought up to date."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from .base import StoreError, StoreForeignError, checksum_of, space_of

VERSION = 4
"""Version of the schema; in 3 streams of runs had the partition and a random end as their key."""
OLDEST = 3
"""Oldest version that is brought up to date."""
_APPLICATION = 0x54575331
"""What SQLite files of ours call themselves."""
_TABLES = (
    """
CREATE TABLE head (kind TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL,
    generation INTEGER NOT NULL, nonce TEXT NOT NULL, used REAL NOT NULL,
    checksum INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (kind, id))
""",
    """
CREATE TABLE usage (kind TEXT NOT NULL, space TEXT NOT NULL, count INTEGER NOT NULL,
    nbytes INTEGER NOT NULL, PRIMARY KEY (kind, space)) WITHOUT ROWID
""",
)
_UNOWNED = """
SELECT count(*) FROM head WHERE kind IN ('dataset', 'view', 'pipeline', 'input')
    AND NOT EXISTS (SELECT * FROM head WHERE kind = 'migration')
"""
"""Counts what has no owner yet: servers up to version 3 noted that they gave everything one."""
_DELETE = "DELETE FROM head WHERE kind = 'stream' AND id = ? RETURNING size"
_UNCOUNT = """
UPDATE usage SET count = count - 1, nbytes = nbytes - ? WHERE kind = 'stream' AND space = ?
"""
_RENAME = """
UPDATE OR IGNORE head SET id = ?, value = ?, checksum = ? WHERE kind = 'stream' AND id = ?
"""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables or bring them up to date, after a check that the file is ours.

    Args:
        connection: may write; nobody else writes meanwhile.
        path: of the file, for messages.

    Raises:
        StoreForeignError: it belongs to a newer version, to one too old, or to another program.
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
    if tables and (version < OLDEST or (version < VERSION and _scalar(connection, _UNOWNED))):
        raise too_old("the state", path)
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
            for statement in _TABLES:
                connection.execute(statement)
        elif version < VERSION:
            _key_streams(connection)
        # Written even without a change: a read-only file must fail now, not later.
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _scalar(connection: sqlite3.Connection, query: str) -> Any:  # noqa: ANN401 - any column type
    return connection.execute(query).fetchone()[0]


def too_old(subject: str, path: Path) -> StoreForeignError:
    """Build the error for what only earlier versions can bring up to date."""
    return StoreForeignError(
        f"{subject} was written by a version before 0.1.0 of 2026-11-23",
        path=path,
        hint="Start version 0.1.0 of that day (revision 426697b) with it once",
        retry_after=None,
    )


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
