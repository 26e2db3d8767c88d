"""The keys that sign tokens: from the settings, or stored with the state."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from app.tokens import Key, new_key, parse_key

from .base import RecordExistsError, RecordMissingError, StateStore
from .durable import create_once, make_directories, store_error
from .storage import Storage, unusable

FILE = "token.keys"
_KIND, _ID = "token_keys", "all"
_ABANDONED = 3600.0
"""Seconds after which a file that was never finished is removed."""


def resolve_keys(texts: Sequence[str], storage: Storage) -> list[Key]:
    """Return the token keys of the settings, else those that are stored with the state.

    Args:
        texts: keys from the settings.
        storage: of the service; a database has the keys of all nodes that share it.

    Raises:
        ValueError: a key is malformed.
        StorageError: there are no keys, and none can be stored.
        StoreError: the database failed.
    """
    if texts:
        return [parse_key(text) for text in texts]
    if storage.database is None:
        return load_keys(storage.directory)
    return _load_shared(storage.records)


def shared_keys(records: StateStore) -> list[Key]:
    """Return the keys that are stored in a database.

    Raises:
        RecordMissingError: there are none.
        ValueError: one is malformed.
        StoreError: the database failed.
    """
    return _parse(records.get(_KIND, _ID).value.decode())


def _load_shared(records: StateStore) -> list[Key]:
    while True:
        with contextlib.suppress(RecordMissingError):
            return shared_keys(records)
        with contextlib.suppress(RecordExistsError):
            records.create(_KIND, _ID, new_key().to_text().encode())


def load_keys(directory: Path) -> list[Key]:
    """Load the keys of a data directory; create one if there are none.

    Raises:
        ValueError: the file contains a malformed key.
        StorageError: it cannot be created or read.
    """
    path = directory / FILE
    try:
        make_directories(directory)
        # Also where it exists, as a token must not outlive its key: it may not be synced yet.
        create_once(path, f"{new_key().to_text()}\n".encode())
        text = path.read_text("ascii")
    except OSError as e:
        raise unusable(directory, store_error(e, path)) from e
    return _parse(text)


def _parse(text: str) -> list[Key]:
    lines = [line.strip() for line in text.splitlines()]
    return [parse_key(line) for line in lines if line and not line.startswith("#")]


def share(directory: Path, records: StateStore) -> None:
    """Store the keys of a data directory in a database, unless it has some."""
    text = "\n".join(key.to_text() for key in load_keys(directory))
    with contextlib.suppress(RecordExistsError):
        records.create(_KIND, _ID, text.encode())


def clean(directory: Path) -> None:
    """Remove what crashed processes left of their attempts to create keys.

    Raises:
        OSError: the directory cannot be read.
    """
    for path in directory.glob(f".{FILE}.*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _ABANDONED:
                path.unlink()
