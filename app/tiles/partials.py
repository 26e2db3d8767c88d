"""Partial results by name: written once, never changed, deleted when unused."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_digest

from core.arrays import Array

_DAY = 86400.0
_DIGEST = 8
"""Bytes of the digest before the array: files are not synced, and a crash may leave zeros."""


class PartialStore:
    """Arrays in files, each named after the computation it is the result of.

    A lost result costs only the time to compute it again. Files are therefore not synced,
    and a failing disk raises no error.

    Args:
        directory: created on first use.
        days: results unused for longer are deleted.
    """

    def __init__(self, directory: Path, days: float) -> None:
        self._directory = directory
        self._seconds = days * _DAY

    def get(self, name: str) -> Array | None:
        """Return a result; None if it is missing or damaged."""
        path = self._path(name)
        try:
            content = path.read_bytes()
            data = content[_DIGEST:]
            if content[:_DIGEST] != xxh3_64_digest(data):
                path.unlink()
                return None
            os.utime(path)
        except OSError:
            return None
        array: Array = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    def put(self, name: str, array: Array) -> None:
        """Store a result, unless the name is taken."""
        path = self._path(name)
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        data = buffer.getvalue()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(xxh3_64_digest(data) + data)
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(temporary)
            finally:
                Path(temporary).unlink()
            self._sweep(path.parent)

    def _sweep(self, directory: Path) -> None:
        oldest = time.time() - self._seconds
        for entry in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    Path(entry.path).unlink()

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / f"{name}.partial"
