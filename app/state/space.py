"""Free space of the data directory's disk: a reserve that nothing new may take.

A full disk is a trap: a database needs a little space even to delete. So creations are
refused while less than the reserve is free, and the rest of the service goes on. Another
program may still fill the disk to its last byte. For that case a file, the *ballast*, holds
some space: it is cut to nothing when a deletion, or a service that starts, finds the disk full, and
filled again by the sweeper once there is room.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from app.errors import StorageFullError

from .durable import opened

BALLAST = "ballast"
"""Name of the file."""
_BALLAST_BYTES = 2 << 20
_SHARE = 10
"""The reserve is at most this part of the disk."""


@dataclass(frozen=True, slots=True)
class Room:
    """A disk: its size, what is free of it, and what is reserved, in bytes."""

    size: int
    free: int
    reserve: int

    @property
    def left(self) -> int:
        """Bytes free above the reserve; negative if it is used up."""
        return self.free - self.reserve


class Space:
    """The free space of one directory's disk.

    Args:
        directory: the directory; it exists.
        reserve: bytes to keep free; at most a tenth of the disk is.
    """

    def __init__(self, directory: Path, reserve: int) -> None:
        self._directory = directory
        self._reserve = reserve

    def check(self, nbytes: int) -> None:
        """Check that something may be created.

        Args:
            nbytes: about how much it takes.

        Raises:
            StorageFullError: less than the reserve would be left.
        """
        try:
            room = self.room()
        except OSError:
            # The write that follows will tell what is wrong.
            return
        if room.left < nbytes:
            raise StorageFullError(
                f"the disk of the data directory is almost full: {max(nbytes, 0)} bytes are needed,"
                f" and {max(room.left, 0)} are free above the {room.reserve} that stay free",
                hint="Delete what is not needed, or ask the operator for more space",
                retry_after=30,
                limit="disk",
                setting="THALWEG_RESERVE_BYTES",
                allowed=room.size - room.reserve,
            )

    def room(self) -> Room:
        """Measure the disk.

        Raises:
            OSError: it cannot be measured.
        """
        found = os.statvfs(self._directory)
        size = found.f_blocks * found.f_frsize
        return Room(size, found.f_bavail * found.f_frsize, min(self._reserve, size // _SHARE))

    def release(self) -> bool:
        """Set the ballast's space free, to delete or to start; return whether there was any."""
        with contextlib.suppress(OSError), opened(self._directory / BALLAST) as descriptor:
            if os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, 0)
                # The space of a file is free when the change of its size is on the disk.
                os.fsync(descriptor)
                return True
        return False

    def is_full(self) -> bool:
        """Whether so little is free that a failure may come from that, whatever it is called."""
        try:
            return self.room().free < _BALLAST_BYTES
        except OSError:
            return False

    def restore(self) -> None:
        """Take the ballast's space again, at most an eighth of what is free above the reserve."""
        path = self._directory / BALLAST
        with contextlib.suppress(OSError):
            if path.exists() and path.stat().st_size:
                return
            size = min(_BALLAST_BYTES, max(self.room().left // 8, 0) // 4096 * 4096)
            if not size:
                return
            with opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
                try:
                    os.posix_fallocate(descriptor, 0, size)
                except OSError:
                    os.ftruncate(descriptor, 0)
