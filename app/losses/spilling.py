"""Temporary files for what does not fit in memory; without a name, so that nothing is left."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from core.errors import LimitError


class SpilledFile:
    """One temporary file.

    Args:
        directory: where to make it.

    Raises:
        LimitError: it cannot be made there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            self._fd, name = tempfile.mkstemp(prefix=".thalweg-", suffix=".spill", dir=directory)
            # Whatever ends the process, the file ends with it.
            os.unlink(name)  # noqa: PTH108 - a name, not a path
        except OSError as e:
            raise self._error(e) from e

    def _error(self, e: OSError) -> LimitError:
        return LimitError(
            f"what exceeds the memory budget cannot be kept in {self._directory}: {e.strerror}",
            hint="Make room there, name another directory, or raise the memory budget",
        )

    def append(self, data: memoryview) -> None:
        """Write the next bytes.

        Raises:
            LimitError: the disk is full, or failed.
        """
        view = data.cast("B")
        at = 0
        try:
            while at < len(view):
                at += os.write(self._fd, view[at:])
        except OSError as e:
            raise self._error(e) from e

    def read_into(self, offset: int, target: memoryview) -> None:
        """Read bytes; any thread may.

        Raises:
            LimitError: the disk failed.
        """
        view = target.cast("B")
        at = 0
        try:
            while at < len(view):
                count = os.preadv(self._fd, [view[at:]], offset + at)
                at += count or self._cut()
        except OSError as e:
            raise self._error(e) from e

    @staticmethod
    def _cut() -> int:
        raise OSError(0, "the temporary file is cut")

    def close(self) -> None:
        """Give the room back; may be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class SpillFiles:
    """Makes temporary files in a directory.

    Args:
        directory: it is made when the first file is.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[SpilledFile] = []

    def create(self) -> SpilledFile:
        """Make one.

        Raises:
            LimitError: it cannot be made.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise LimitError(
                f"what exceeds the memory budget cannot be kept in {self._directory}: {e.strerror}",
                hint="Name another directory, or raise the memory budget",
            ) from e
        self._files.append(SpilledFile(self._directory))
        return self._files[-1]

    def close(self) -> None:
        """Give all room back."""
        for file in self._files:
            file.close()
