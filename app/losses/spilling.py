"""Temporary files for what does not fit in memory; without a name, so that nothing is left.

Whoever closes a file without a name frees its pages: 40 milliseconds for each gigabyte that is in
memory, for nobody where a client has left. So of what lies beyond the first part of a file, the
system is told to keep nothing: of what was written, once it is on the disk, and of what was read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.errors import LimitError

KEPT = 512 << 20
"""Bytes at the beginning of a file that may stay."""
STEP = 128 << 20
"""Bytes between two times that the system is told. What it has not written yet stays until it is
told again."""
_TIMES = 4
Fail = Callable[[OSError], Exception]
"""Makes the error of a directory that takes no more."""


def forget(fd: int, begin: int, end: int) -> None:
    """Have the bytes from ``begin`` to ``end`` leave memory, if they are on the disk."""
    begin = max(begin, KEPT)
    if begin < end:
        os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)


def forget_written(fd: int, begin: int, end: int) -> None:
    """Note that the bytes from ``begin`` to ``end`` were written, and forget those before."""
    if begin // STEP != end // STEP:
        forget(fd, end - _TIMES * STEP, end)


def _limit_error(directory: Path, e: OSError) -> LimitError:
    return LimitError(
        f"what exceeds the memory budget cannot be kept in {directory}: {e.strerror}",
        limit="disk",
        allowed=0,
        hint="Make room there, name another directory, or raise the memory budget",
    )


class SpilledFile:
    """One temporary file.

    Args:
        directory: where to make it.
        fail: makes the errors that are raised.
        cover: called with the bytes that are appended before they are; may raise.

    Raises:
        Exception: of ``fail``: it cannot be made there.
    """

    def __init__(
        self, directory: Path, fail: Fail, cover: Callable[[int], None] = lambda _nbytes: None
    ) -> None:
        self._fail = fail
        self._cover = cover
        self._size = 0
        try:
            self._fd, name = tempfile.mkstemp(prefix=".thalweg-", suffix=".spill", dir=directory)
            # Whatever ends the process, the file ends with it.
            os.unlink(name)  # noqa: PTH108 - a name, not a path
        except OSError as e:
            raise fail(e) from e

    def append(self, data: memoryview) -> None:
        """Write the next bytes.

        Raises:
            Exception: of ``fail``: the disk is full, or failed; or of ``cover``.
        """
        self._cover(data.nbytes)
        self.write(self._size, data)
        self._size += data.nbytes

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; any thread may.

        Raises:
            Exception: of ``fail``: the disk is full, or failed.
        """
        view = data.cast("B")
        try:
            while len(view):
                count = os.pwrite(self._fd, view, offset)
                forget_written(self._fd, offset, offset + count)
                view = view[count:]
                offset += count
        except OSError as e:
            raise self._fail(e) from e

    def read_into(self, offset: int, target: memoryview) -> None:
        """Read bytes; any thread may.

        Raises:
            Exception: of ``fail``: the disk failed.
        """
        view = target.cast("B")
        at = 0
        try:
            while at < len(view):
                count = os.preadv(self._fd, [view[at:]], offset + at)
                at += count or self._cut()
        except OSError as e:
            raise self._fail(e) from e
        forget(self._fd, offset, offset + at)

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
        fail: makes the errors that are raised; by default a LimitError that names the directory.
        cover: called with the bytes of all files after a write, before it is made; may raise.
    """

    def __init__(
        self,
        directory: Path,
        fail: Fail | None = None,
        cover: Callable[[int], None] = lambda _nbytes: None,
    ) -> None:
        self._directory = directory
        self._fail = fail or partial(_limit_error, directory)
        self._cover = cover
        self._files: list[SpilledFile] = []
        self.nbytes = 0
        """Bytes written to all files."""

    def create(self) -> SpilledFile:
        """Make one.

        Raises:
            Exception: of ``fail``: it cannot be made.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise self._fail(e) from e
        self._files.append(SpilledFile(self._directory, self._fail, self._grow))
        return self._files[-1]

    def _grow(self, nbytes: int) -> None:
        self._cover(self.nbytes + nbytes)
        self.nbytes += nbytes

    def close(self) -> None:
        """Give all room back."""
        for file in self._files:
            file.close()
