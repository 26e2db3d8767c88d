"""The keys that sign tokens: from the settings, or stored in the data directory."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from app.tokens import Key, new_key, parse_key

from .durable import make_directories, store_error, sync_directory, write_at
from .storage import unusable

FILE = "token.keys"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_ABANDONED = 3600.0
"""Seconds after which a file that was never finished is removed."""


def resolve_keys(texts: Sequence[str], directory: Path) -> list[Key]:
    """Return the token keys of the settings, else of the data directory.

    Args:
        texts: keys from the settings.
        directory: the data directory.

    Raises:
        ValueError: a key is malformed.
        StorageError: the data directory has no keys, and none can be stored there.
    """
    return [parse_key(text) for text in texts] or load_keys(directory)


def load_keys(directory: Path) -> list[Key]:
    """Load the keys of a data directory; create one if there are none.

    Raises:
        ValueError: the file contains a malformed key.
        StorageError: it cannot be created or read.
    """
    path = directory / FILE
    try:
        make_directories(directory)
        if not path.exists():
            _create(path, new_key())
        # Whoever created it may not have come to this: a token must not outlive its key.
        sync_directory(directory)
        text = path.read_text("ascii")
    except OSError as e:
        raise unusable(directory, store_error(e, path)) from e
    lines = [line.strip() for line in text.splitlines()]
    return [parse_key(line) for line in lines if line and not line.startswith("#")]


def _create(path: Path, key: Key) -> None:
    """Create the file for its owner alone: whole, and once among all processes."""
    temporary = path.with_name(f".{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, _CREATE, 0o600)
    try:
        write_at(descriptor, [f"{key.to_text()}\n".encode()], 0)
        os.fsync(descriptor)
        # If another process was first, its key is used.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def clean(directory: Path) -> None:
    """Remove what crashed processes left of their attempts to create keys.

    Raises:
        OSError: the directory cannot be read.
    """
    for path in directory.glob(f".{FILE}.*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _ABANDONED:
                path.unlink()
