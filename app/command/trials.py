"""Stores opened as a service would, to try them: nothing that is kept changes.

A service brings the state of an earlier version up to date, and makes what it lacks. Here the one
is refused, and the other made beside it and removed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from app.settings import Settings
from app.state.base import StoreError
from app.state.durable import store_error
from app.state.space import Space
from app.state.sqlite import SqliteStateStore
from app.state.sqlite_schema import OLDEST, VERSION
from app.state.storage import SQLITE, STATE, open_database, place_of, unusable

if TYPE_CHECKING:
    from app.state.postgres import PostgresStateStore


class EarlierStateError(Exception):
    """To open the state would change it for good."""


def existing(path: Path) -> Path:
    """Return a path, or the nearest directory above it that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


@contextlib.contextmanager
def tried_directory(settings: Settings, name: str) -> Iterator[Path]:
    """Provide the data directory; where it lacks a name, one beside it that is removed.

    Who starts the service may be another user, and could not write to what is made here.

    Raises:
        StorageError: it cannot be written.
    """
    directory = settings.data_dir
    with contextlib.ExitStack() as undo:
        try:
            if not (directory / name).exists():
                other = TemporaryDirectory(prefix=".doctor-", dir=existing(directory))
                directory = Path(undo.enter_context(other))
            yield directory
        except OSError as e:
            raise unusable(settings.data_dir, store_error(e, directory)) from e
        except StoreError as e:
            raise unusable(settings.data_dir, e) from e


@contextlib.contextmanager
def tried_records(settings: Settings) -> Iterator[SqliteStateStore | PostgresStateStore]:
    """Open the records of the service, and check that they can be written.

    Raises:
        StorageError, StoreError: they cannot.
    """
    if settings.state != SQLITE:
        database = open_database(settings.state, place_of(settings.data_dir, settings.blobs))
        with closing(database):
            database.check()
            yield database
        return
    with tried_directory(settings, STATE) as directory:
        path = directory / STATE
        _check_version(path)
        records = SqliteStateStore(path, space=Space(directory, settings.reserve_bytes))
        with closing(records):
            records.check()
            yield records


def _check_version(path: Path) -> None:
    """Check that opening the state would not bring it up to date.

    Raises:
        EarlierStateError: it would.
    """
    version = 0
    with contextlib.suppress(sqlite3.Error):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    if OLDEST <= version < VERSION:
        raise EarlierStateError(
            f"{path} has version {version}, and the first start makes it {VERSION}, which earlier"
            " servers cannot read"
        )
