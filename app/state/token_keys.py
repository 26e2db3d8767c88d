"""Where the keys that sign tokens come from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from app.tokens import Key, new_key, parse_key

FILE = "token.keys"


def resolve_keys(texts: Sequence[str], directory: Path) -> list[Key]:
    """The token keys of the settings, else of the data directory, else for this run only.

    Args:
        texts: keys as the settings have them.
        directory: where data is kept.

    Raises:
        ValueError: they are malformed.
    """
    if texts:
        return [parse_key(text) for text in texts]
    stored = load_keys(directory)
    if stored is not None:
        return stored
    structlog.get_logger().warning(
        "tokens will not outlive this process: the data directory cannot be written to",
        data_dir=str(directory),
        hint="set THALWEG_TOKEN_KEYS",
    )
    return [new_key()]


def load_keys(directory: Path) -> list[Key] | None:
    """The keys kept in the data directory, made if there are none; None if they cannot be.

    Raises:
        ValueError: the file is there, but holds no keys.
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
    """Make the file for its owner alone, whole or not at all, once among processes."""
    fresh = path.with_name(f".{FILE}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{key.to_text()}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        pass  # another process was first: its key counts
    finally:
        fresh.unlink()
