"""Auxiliary files on disk, named by the digest of their content, until they fall unused."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import InputGoneError, StorageFullError

DIGEST_SIZE = 16
"""Bytes of a digest, written as twice as many hexadecimal digits."""
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """Confirms that a file is stored."""

    created: bool
    """False if the file was stored before."""
    expires: float
    """When the file expires if it is not used, in seconds since 1970."""


class InputStore:
    """Files in one directory, shared by all workers.

    Args:
        directory: created when needed.
        days: lifetime of a file after its last use.
    """

    def __init__(self, directory: Path, days: float) -> None:
        self.directory = directory
        self._seconds = days * _DAY

    def put(self, kind: str, digest: str, data: bytes) -> Receipt:
        """Store a file durably.

        Raises:
            StorageFullError: the file cannot be written.
        """
        path = self._path(kind, digest)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.sweep()
            created = not path.exists()
            if created:
                self._write(path, data)
            os.utime(path)
        except OSError as e:
            raise StorageFullError(
                f"the file cannot be stored: {e.strerror}", retry_after=30
            ) from e
        return Receipt(created, time.time() + self._seconds)

    def _write(self, path: Path, data: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.directory, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def touch(self, kind: str, digest: str) -> None:
        """Extend the lifetime of a file, because it is being used.

        Raises:
            InputGoneError: the file has expired or was never stored.
        """
        path = self._path(kind, digest)
        try:
            if path.stat().st_mtime + self._seconds < time.time():
                path.unlink()
                raise FileNotFoundError
            os.utime(path)
        except OSError as e:
            raise gone(kind, digest) from e

    def read(self, kind: str, digest: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputGoneError: the file has expired or was never stored.
        """
        self.touch(kind, digest)
        return self._path(kind, digest).read_bytes()

    def remove(self, kind: str, digest: str) -> bytes | None:
        """Delete a file; return its content, None if it is not stored."""
        path = self._path(kind, digest)
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError:
            return None
        return data

    def idents(self) -> Iterator[str]:
        """Yield digest and kind of all files, as ``digest.kind``."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    yield entry.name

    def sweep(self) -> None:
        """Remove expired files."""
        oldest = time.time() - self._seconds
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                # Another worker may remove it first.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < oldest:
                        Path(entry.path).unlink()

    def _path(self, kind: str, digest: str) -> Path:
        return self.directory / f"{digest}.{kind}"


def gone(kind: str, digest: str) -> InputGoneError:
    """Build the error for a file that is not stored, or not the caller's."""
    return InputGoneError(
        f"there is no {kind} input {digest}",
        hint=f"PUT it to /v1/inputs/{kind}, and use the digest in the answer",
    )
