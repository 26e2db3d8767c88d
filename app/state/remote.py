"""Stores that other nodes share, opened by their addresses, with libraries that are extras.

They are imported where they are used: a service that keeps everything in its data directory needs
neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from .base import StateStore, StorageError, StoreError
from .blobs import Note, no_note

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from .objects import ObjectBlobStore
    from .postgres import PostgresStateStore

_SECRET = re.compile(r"(?i)([?&][^=&]*(?:password|secret|key|token|sig)[^=&]*=)[^&]+")
"""A parameter of an address that may hold a secret."""


def open_database(url: str, blobs: str) -> PostgresStateStore:
    """Open heads in a database.

    Args:
        url: address of the database.
        blobs: where its blobs are, for messages; the same for all who use it.

    Raises:
        StorageError: the library is missing, or the database cannot be used.
    """
    try:
        from .postgres import PostgresStateStore  # noqa: PLC0415 - an extra
    except ImportError as e:
        _refuse("THALWEG_STATE", url, f"{e}; pip install 'psycopg[binary]'", e)
    try:
        return PostgresStateStore(url, blobs)
    except StoreError as e:
        _refuse("THALWEG_STATE", url, _reason(e), e)


def open_object_blobs(url: str, heads: StateStore, note: Note = no_note) -> ObjectBlobStore:
    """Open blobs in an object store, after a check that it keeps its promises.

    Raises:
        StorageError: the library is missing, or the store cannot be used.
    """
    objects, _ = try_objects(url)
    from .objects import ObjectBlobStore  # noqa: PLC0415 - an extra

    return ObjectBlobStore(heads, objects, note=note)


def try_objects(url: str) -> tuple[ObjectStore, float]:
    """Open an object store, and check that it keeps its promises.

    Returns:
        The store, and the seconds that it took to store a small object.

    Raises:
        StorageError: the library is missing, or the store cannot be used.
    """
    try:
        from .object_service import check_objects, open_objects  # noqa: PLC0415 - an extra
    except ImportError as e:
        _refuse("THALWEG_BLOBS", url, f"{e}; pip install obstore", e)
    try:
        objects = open_objects(url)
        return objects, check_objects(objects)
    except StoreError as e:
        _refuse("THALWEG_BLOBS", url, _reason(e), e)


def _reason(error: StoreError) -> str:
    """Return what is wrong, for the operator: with what the library says, which has no password."""
    cause = str(error.__cause__ or "").partition("\n")[0]
    hint = f". {error.hint}" if error.hint else ""
    return f"{error}{'' if cause in str(error) else f' ({cause})'}{hint}"


def _refuse(setting: str, url: str, reason: str, cause: Exception) -> NoReturn:
    raise StorageError(f"{setting} {redacted(url)}: {reason}", retry_after=None) from cause


def redacted(url: str) -> str:
    """Return an address without its secrets."""
    password = urlsplit(url).password
    shown = url.replace(f":{password}@", ":…@", 1) if password else url
    return _SECRET.sub(r"\1…", shown)
