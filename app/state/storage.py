"""The stores of a service: in its data directory, or where other nodes share them.

Those that nodes share are opened by their addresses, with libraries that are extras. They are
imported where they are used: a service that keeps everything in its data directory needs neither.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from .base import StorageError, StoreError, StoreFullError
from .blob_files import FileBlobStore
from .blobs import GrowingBlobs, Note, no_note
from .durable import make_directories, store_error
from .notices import NodeNotices, Notices
from .presence import node_of
from .space import Space
from .sql import SqlStateStore
from .sqlite import SqliteStateStore
from .sqlite_schema import too_old
from .turns import Turn, Turns

if TYPE_CHECKING:
    from obstore.store import ObjectStore

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
SHARING = "sharing.lock"
_WAIT = 10.0
"""Maximum seconds to wait for a turn among those that change who owns something."""
_BUSY = "others store or delete for too long"
_SECRET = re.compile(r"(?i)([?&][^=&]*(?:password|secret|key|token|sig)[^=&]*=)[^&]+")
"""A parameter of an address that may hold a secret."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a service keeps its state in."""

    records: SqlStateStore
    blobs: GrowingBlobs
    turn: Turn
    """Turns among all that change who owns a blob."""
    space: Space
    """Free space of the data directory's disk."""
    directory: Path
    """The data directory."""
    database: PostgresStateStore | None = None
    """The records, where other nodes share them."""
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Closes the stores."""

    def notices(self) -> Notices:
        """Return the notices among all processes that use the records.

        Raises:
            StoreError: their directory cannot be made.
        """
        directory = self.directory / NOTICES
        if self.database is None:
            return Notices(directory)
        return NodeNotices(directory, self.database, node_of(self.directory / CLAIMS))

    def check(self) -> None:
        """Check that records can be written and read, by a small write, synced; and blobs written.

        Raises:
            StoreError: they cannot.
        """
        self.records.check()
        # A full disk is another check's.
        with contextlib.suppress(StoreFullError):
            self.blobs.check()

    def check_clock(self) -> None:
        """Check that the clock of this node is that of the others.

        Raises:
            StoreError: it is not, or nobody can say.
        """
        if self.database is not None:
            self.database.check_clock()

    def close(self) -> None:
        """Close the stores; may be called twice."""
        self.resources.close()


def open_storage(
    directory: Path, reserve: int, state: str = SQLITE, blobs: str = FILES, note: Note = no_note
) -> Storage:
    """Open the stores of a service; its data directory is created if it does not exist.

    Args:
        directory: the data directory.
        reserve: bytes of its disk that nothing new may take.
        state: where the records are: in it, or the address of a database.
        blobs: where the blobs are: in it, or the address of an object store.
        note: told the kind of each request to that, its seconds, and whether it failed.

    Raises:
        StorageError: they cannot be opened or written; the message says what to do.
    """
    try:
        make_directories(directory)
        if any((directory / _EARLIER_INPUTS).glob("*")):
            raise too_old("an input", directory / _EARLIER_INPUTS)
        space = Space(directory, reserve)
        is_lost = (state, blobs) == (SQLITE, FILES) and not (directory / STATE).exists()
        if is_lost and any((directory / BLOBS).glob("*/*/*")):
            structlog.get_logger().warning(
                "there are files, but no records: was the state deleted? What no record names will"
                " be swept: stop the service, and restore the state from a backup",
                state=str(directory / STATE),
                files=str(directory / BLOBS),
            )
        try:
            storage = _open_stores(directory, space, state, blobs, note)
        except (OSError, StoreError) as e:
            # Opening takes a little space: without it nothing could be deleted.
            full = isinstance(e, StoreFullError) or space.is_full()
            if not full or not space.release():
                raise
            storage = _open_stores(directory, space, state, blobs, note)
    except StorageError:
        raise
    except OSError as e:
        raise unusable(directory, store_error(e, directory)) from e
    except StoreError as e:
        raise unusable(directory, e) from e
    space.restore()
    return storage


def _open_stores(directory: Path, space: Space, state: str, blobs: str, note: Note) -> Storage:
    with contextlib.ExitStack() as undo:
        records: SqlStateStore
        database = None
        if state == SQLITE:
            records = SqliteStateStore(directory / STATE, space=space)
            turns = Turns(directory / SHARING, _WAIT, _BUSY)
            turn = undo.enter_context(contextlib.closing(turns)).turn
        else:
            records = database = open_database(state, place_of(directory, blobs))
            turn = partial(database.turn, "sharing")
        undo.callback(records.close)
        found: GrowingBlobs
        if blobs == FILES:
            found = FileBlobStore(directory / BLOBS, space=space)
        else:
            objects, _ = try_objects(blobs)
            from .objects import ObjectBlobStore  # noqa: PLC0415 - an extra

            found = ObjectBlobStore(records, objects, note=note)
        undo.callback(found.close)
        return Storage(records, found, turn, space, directory, database, resources=undo.pop_all())


def place_of(directory: Path, blobs: str) -> str:
    """Return where the blobs of a service are, for the database that has its records.

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


def open_database(url: str, blobs: str) -> PostgresStateStore:
    """Open records in a database.

    Args:
        url: address of the database.
        blobs: where its blobs are, for messages; the same for all who use it.

    Raises:
        StorageError: the library is missing, or the database cannot be used.
    """
    with _refusing("THALWEG_STATE", url, "'psycopg[binary]'"):
        from .postgres import PostgresStateStore  # noqa: PLC0415 - an extra

        return PostgresStateStore(url, blobs)


def try_objects(url: str) -> tuple[ObjectStore, float]:
    """Open an object store, and check that it keeps its promises.

    Returns:
        The store, and the seconds that it took to store a small object.

    Raises:
        StorageError: the library is missing, or the store cannot be used.
    """
    with _refusing("THALWEG_BLOBS", url, "obstore"):
        from .object_service import check_objects, open_objects  # noqa: PLC0415 - an extra

        objects = open_objects(url)
        return objects, check_objects(objects)


@contextlib.contextmanager
def _refusing(setting: str, url: str, package: str) -> Iterator[None]:
    """Raise what is wrong as the fault of a setting."""
    try:
        yield
    except (ImportError, StoreError) as e:
        reason = _reason(e) if isinstance(e, StoreError) else f"{e}; pip install {package}"
        raise StorageError(f"{setting} {redacted(url)}: {reason}", retry_after=None) from e


def _reason(error: StoreError) -> str:
    """Return what is wrong, for the operator: with what the library says, which has no password."""
    cause = str(error.__cause__ or "").partition("\n")[0]
    hint = f". {error.hint}" if error.hint else ""
    return f"{error}{'' if cause in str(error) else f' ({cause})'}{hint}"


def redacted(url: str) -> str:
    """Return an address without its secrets."""
    password = urlsplit(url).password
    shown = url.replace(f":{password}@", ":…@", 1) if password else url
    return _SECRET.sub(r"\1…", shown)
