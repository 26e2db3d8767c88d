"""Partial results by name: made once, never changed, forgotten when nobody uses them."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_digest

_DAY = 86400.0
_DIGEST = 8
"""Bytes of the digest before an array: files are not synced, and a crash may leave zeros."""


class PartialStore:
    """Arrays in files named by what they are the result of.

    Losing one costs only the time to make it again, so a disk that fails is no error.

    Args:
        directory: made when needed.
        days: how long one is kept after its last use.
    """

    def __init__(self, directory: Path, days: float) -> None:
        self._directory = directory
        self._seconds = days * _DAY

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """A result, or None if it is not there or damaged."""
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
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Keep a result, unless there is one."""
        path = self._path(name)
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        data = buffer.getvalue()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(xxh3_64_digest(data) + data)
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(fresh)
            finally:
                Path(fresh).unlink()
            self._sweep(path.parent)

    def _sweep(self, directory: Path) -> None:
        oldest = time.time() - self._seconds
        for entry in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    Path(entry.path).unlink()

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / f"{name}.partial"
