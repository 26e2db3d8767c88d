"""The keys that sign tokens: from the settings, or stored in the data directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from app.tokens import Key, new_key, parse_key

FILE = "token.keys"


def resolve_keys(texts: Sequence[str], directory: Path) -> list[Key]:
    """Return the token keys of the settings, else of the data directory, else temporary ones.

    Args:
        texts: keys from the settings.
        directory: the data directory.

    Raises:
        ValueError: a key is malformed.
    """
    if texts:
        return [parse_key(text) for text in texts]
    stored = load_keys(directory)
    if stored is not None:
        return stored
    structlog.get_logger().warning(
        "tokens will not outlive this process: the data directory is not writable",
        data_dir=str(directory),
        hint="set THALWEG_TOKEN_KEYS",
    )
    return [new_key()]


def load_keys(directory: Path) -> list[Key] | None:
    """Load the keys of a data directory; create one if there are none.

    Returns:
        The keys, or None if the directory is not writable.

    Raises:
        ValueError: the file contains a malformed key.
    """
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create(path, new_key())
        text = path.read_text("ascii")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines()]
    return [parse_key(line) for line in lines if line and not line.startswith("#")]


def _create(path: Path, key: Key) -> None:
    """Create the file for its owner alone: atomically, and once among all processes."""
    temporary = path.with_name(f".{FILE}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{key.to_text()}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass  # another process was first: its key is used
    finally:
        temporary.unlink()
