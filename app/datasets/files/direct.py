"""Ranges of files past the page cache."""

from __future__ import annotations

import errno
import os
from typing import ClassVar

from core.arrays import Indices, Octets
from core.tiles.ranges import Ranges

from .buffered import BufferedBackend, Use
from .buffers import PAGE

_GAP = 128 << 10
"""Maximum gap between two ranges to read rather than skip: every call reaches the disk."""


class DirectBackend(BufferedBackend):
    """Reads past the page cache where the file system supports it."""

    name: ClassVar[str] = "direct"

    def _read(self, descriptor: int, ranges: Ranges, out: Octets) -> None:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
            direct = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            super()._read(descriptor, ranges, out)
            return
        try:
            self._read_together(direct, ranges, (_GAP, PAGE), out)
        except OSError as e:
            if e.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            super()._read(descriptor, ranges, out)
        finally:
            os.close(direct)

    def _load(self, descriptor: int, buffer: memoryview, at: int, length: int) -> None:
        done = 0
        while done < length:
            count = os.preadv(descriptor, [buffer[done:]], at + done)
            if count < min(PAGE, length - done):
                raise EOFError
            done += count if done + count >= length else count // PAGE * PAGE

    def _visit_row(self, descriptor: int, starts: Indices, size: int, use: Use) -> bool:
        """Return False: what is in memory is not looked for."""
        del descriptor, starts, size, use
        return False

    @staticmethod
    def _hint(descriptor: int, starts: Indices, size: int) -> None:
        """Do nothing: reads do not go through the page cache."""

    @staticmethod
    def _are_apart(starts: Indices, size: int) -> bool:
        """Return False: every call reaches the disk."""
        del starts, size
        return False
