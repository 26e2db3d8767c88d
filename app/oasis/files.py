"""Files of a run: what is wrong with one names it, and one run at a time writes an output.

A lock is a file that a process locks, so it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import InputError


@contextlib.contextmanager
def failing_as(fault: str, source: Path | str) -> Iterator[None]:
    """Raise an error of the system as one of a file.

    Args:
        fault: such as ``cannot be written``.
        source: the file.

    Raises:
        InputError: instead of an OSError.
    """
    try:
        yield
    except OSError as e:
        raise InputError(f"{fault}: {e.strerror}", source=str(source)) from e


def write_whole(path: Path, text: str) -> None:
    """Write a file that others see whole, or not at all.

    Raises:
        InputError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with failing_as("cannot be written", path):
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


def json_object(octets: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a file.

    Raises:
        InputError: it is not a JSON object.
    """
    try:
        document = json.loads(octets)
    except ValueError as e:
        raise InputError(f"is not JSON: {e}", source=str(path)) from e
    if not isinstance(document, dict):
        raise InputError("is not a JSON object", source=str(path))
    return document


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name in a folder.

    Args:
        folder: it exists.
        name: of what is written, such as ``gul``.

    Raises:
        InputError: another process holds the lock, or its file cannot be made.
    """
    path = folder / f".thalweg-{name}.lock"
    with failing_as("cannot be locked", folder):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"another run writes {name} in this directory (process {holder})",
                hint="Wait for it, or give each run a directory of its own",
                source=str(folder),
            ) from e
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)
