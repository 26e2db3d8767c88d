"""The stores of a service: in its data directory, or where other nodes share them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.errors import StorageFullError

from .base import (
    HeadExistsError,
    HeadMissingError,
    StateStore,
    StorageError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    Usage,
)
from .blob_files import FileBlobStore
from .blobs import BlobStore
from .durable import make_directories, store_error
from .notices import Notices
from .presence import node_of
from .remote import open_database, open_object_blobs
from .shares import SharingTurns
from .space import Space
from .sqlite import SqliteStateStore
from .sqlite_schema import too_old
from .turns import Turn

if TYPE_CHECKING:
    from .postgres import PostgresStateStore

SQLITE, FILES = "sqlite:", "file:"
"""Settings of what is kept in the data directory."""
STATE = "state.sqlite"
BLOBS = "blobs"
CLAIMS = "claims"
NOTICES = "notices"
SPOOL = "spool"
SWEEPER = "sweeper.lock"
_EARLIER_INPUTS = "inputs"
"""Where versions that are not supported any more kept inputs."""
KIND, IDENT = "probe", "readiness"
_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16sH10xI")
"""Magic, size of a page, and number of pages when the header was last written."""
_ROWS = 64
"""Rows read by each check; the next one continues after them."""


class CheckedBlobs(BlobStore, Protocol):
    """A store of blobs that can be checked."""

    def check(self) -> None:
        """Check that it can be written.

        Raises:
            StoreError: it cannot.
        """

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all blobs."""


class HeadProbe(Protocol):
    """Checks a store of heads."""

    def check(self) -> None:
        """Check that it can be written and read.

        Raises:
            StoreError: it cannot.
        """

    def largest_usage(self, kind: str, space: str = "") -> Usage:
        """Return the most heads, and the most bytes, that one owner has of a kind.

        Args:
            kind: the kind.
            space: beginning of the ids of the only owner to look at; default: all are.
        """

    def close(self) -> None:
        """Close it; may be called twice."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a service keeps its state in."""

    heads: StateStore
    blobs: CheckedBlobs
    turn: Turn
    """Turns among all that change who owns a blob."""
    space: Space
    """Free space of the data directory's disk."""
    probe: HeadProbe
    """Checks the heads."""
    directory: Path
    """The data directory."""
    database: PostgresStateStore | None = None
    """The heads, where other nodes share them."""
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Closes the stores."""

    def notices(self) -> Notices:
        """Return the notices among all processes that use the heads.

        Raises:
            StoreError: their directory cannot be made.
        """
        directory = self.directory / NOTICES
        if self.database is None:
            return Notices(directory)
        from .node_notices import NodeNotices  # noqa: PLC0415 - an extra

        return NodeNotices(directory, self.database, node_of(self.directory / CLAIMS))

    def check(self) -> None:
        """Check that heads can be written and read, by a small write, synced; and blobs written.

        Raises:
            StoreError: they cannot.
        """
        self.probe.check()
        # A full disk is another check's.
        with contextlib.suppress(StoreFullError):
            self.blobs.check()

    def close(self) -> None:
        """Close the stores; may be called twice."""
        self.resources.close()


def open_storage(directory: Path, reserve: int, state: str = SQLITE, blobs: str = FILES) -> Storage:
    """Open the stores of a service; its data directory is created if it does not exist.

    Args:
        directory: the data directory.
        reserve: bytes of its disk that nothing new may take.
        state: where the heads are: in it, or the address of a database.
        blobs: where the blobs are: in it, or the address of an object store.

    Raises:
        StorageError: they cannot be opened or written; the message says what to do.
    """
    try:
        make_directories(directory)
        if any((directory / _EARLIER_INPUTS).glob("*")):
            raise too_old("an input", directory / _EARLIER_INPUTS)
        space = Space(directory, reserve)
        try:
            storage = _open_stores(directory, space, state, blobs)
        except (OSError, StoreError) as e:
            # Opening takes a little space: without it nothing could be deleted.
            full = isinstance(e, StoreFullError) or space.is_full()
            if not full or not space.release():
                raise
            storage = _open_stores(directory, space, state, blobs)
    except StorageError:
        raise
    except OSError as e:
        raise unusable(directory, store_error(e, directory)) from e
    except StoreError as e:
        raise unusable(directory, e) from e
    space.restore()
    return storage


def _open_stores(directory: Path, space: Space, state: str, blobs: str) -> Storage:
    with contextlib.ExitStack() as undo:
        heads: StateStore
        probe: HeadProbe
        database = None
        if state == SQLITE:
            heads = SqliteStateStore(directory / STATE, space=space)
            probe = Probe(heads, directory / STATE)
            undo.callback(probe.close)
            turn = undo.enter_context(contextlib.closing(SharingTurns(directory))).turn
        else:
            heads = probe = database = open_database(state, place_of(directory, blobs))
            turn = partial(database.turn, "sharing")
        undo.callback(heads.close)
        found: CheckedBlobs
        if blobs == FILES:
            found = FileBlobStore(directory / BLOBS, space=space)
        else:
            found = open_object_blobs(blobs, heads)
        undo.callback(found.close)
        return Storage(
            heads, found, turn, space, probe, directory, database, resources=undo.pop_all()
        )


def place_of(directory: Path, blobs: str) -> str:
    """Return where the blobs of a service are, for the database that has its heads.

    Raises:
        StoreError: the data directory cannot be written.
    """
    return f"the files of node {node_of(directory / CLAIMS)}" if blobs == FILES else blobs


def unusable(directory: Path, reason: StoreError) -> StorageError:
    """Build the error for a data directory that cannot be used, in one line."""
    advice = reason.hint or "make room there, or make it writable"
    return StorageError(
        f"the data directory {directory} cannot be used: {reason}. Set THALWEG_DATA_DIR to "
        f"another one, or {advice[0].lower()}{advice[1:]}; or start with --ephemeral, "
        "which keeps nothing",
        path=directory,
        retry_after=None,
    )


class Probe:
    """Checks the heads in a SQLite file.

    SQLite works from pages in memory. A connection may read and even commit long after the file
    below it was overwritten or cut, and only the next start would notice. So the check looks at
    the file itself and reads through a connection of its own, besides a write that is synced.

    It looks through one descriptor that stays open. When a process closes any descriptor of a file,
    the kernel drops all POSIX locks that the process has on it, SQLite's too; another process that
    opened the store and closed it again would then take itself for the last one, and delete the log
    under this one's feet.

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

    def largest_usage(self, kind: str, space: str = "") -> Usage:
        """Return the most that one owner has of a kind; see HeadProbe.

        Raises:
            StoreError: they cannot be read.
        """
        query = (
            "SELECT coalesce(max(count), 0), coalesce(max(nbytes), 0) FROM usage"
            " WHERE kind = ?1 AND ?2 IN ('', space)"
        )
        try:
            with contextlib.closing(self._connect()) as connection:
                return Usage(*connection.execute(query, (kind, space)).fetchone())
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
