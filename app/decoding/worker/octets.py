"""Files that libraries read through Python: bytes of a descriptor, wherever its path leads."""

from __future__ import annotations

import contextlib
import io
import mmap
import os

import numpy as np

_MIN_MAP = 64 << 10
"""Bytes from which on a map costs less than a copy."""


class DescriptorFile(io.RawIOBase):
    """A read-only, seekable file object over a descriptor, by pread.

    The offset is the object's own: other users of the open file are not disturbed.

    Args:
        descriptor: the open file, which ``close`` closes.
        size: its size in bytes; what follows is not read.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte; return its offset."""
        if whence != io.SEEK_SET:
            offset += {io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(offset, 0)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer
        """Fill a buffer.

        Raises:
            EOFError: the file ends before. HDF5 ignores how many bytes it got, and would take
                what was in the buffer before for data.
            OSError: the disk failed.
        """
        view = memoryview(buffer).cast("B")
        start, size = self._at, len(view)
        if start + size > self._size:
            raise EOFError(f"{size} bytes at byte {start} of {self._size}")
        # A single call nearly always suffices.
        done = os.preadv(self._descriptor, [view], start) if size else 0
        while done < size:
            count = os.preadv(self._descriptor, [view[done:]], start + done)
            if not count:
                raise EOFError(f"the file ends at byte {start + done}")
            done += count
        self._at = start + done
        return done

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; to the end of the file if negative.

        Raises:
            EOFError: the file has become shorter.
            OSError: the disk failed.
        """
        left = max(self._size - self._at, 0)
        left = left if size < 0 else min(size, left)
        # Straight into the result, which a buffer of our own would have to be copied to.
        octets = os.pread(self._descriptor, left, self._at)
        if len(octets) == left:
            self._at += left
            return octets
        pieces = bytearray(left)
        self.readinto(pieces)
        return bytes(pieces)

    def close(self) -> None:
        """Close the descriptor."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class MappedFile(DescriptorFile):
    """A DescriptorFile that maps what is large, and knows where in the file its bytes lie.

    A library that leaves bytes as they are returns addresses within them. Pages that nobody
    touches are never read. A file that is cut while it is mapped ends this process, not the
    service.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(descriptor, size)
        self._windows: list[tuple[int, int, int, bytes | memoryview]] = []

    def read(self, size: int = -1) -> bytes | memoryview:  # type: ignore[override]  # any buffer
        """Read up to ``size`` bytes; to the end of the file if negative; see DescriptorFile."""
        start = self._at
        left = max(self._size - start, 0)
        left = left if size < 0 else min(size, left)
        octets: bytes | memoryview | None = None
        if left >= _MIN_MAP:
            # Each map holds a descriptor and address space, of which there may be none left.
            with contextlib.suppress(OSError, ValueError):
                octets = self._map(start, left)
                self._at += left
        if octets is None:
            octets = super().read(left)
        if octets:
            address = np.frombuffer(octets, np.uint8).ctypes.data
            self._windows.append((address, start, len(octets), octets))
        return octets

    def _map(self, start: int, size: int) -> memoryview:
        before = start % mmap.ALLOCATIONGRANULARITY
        window = mmap.mmap(
            self._descriptor, before + size, access=mmap.ACCESS_READ, offset=start - before
        )
        return memoryview(window)[before:]

    def place_of(self, address: int, size: int) -> int | None:
        """Return the offset in the file of memory that was read; None if it was not."""
        for begin, start, length, _ in self._windows:
            if begin <= address and address + size <= begin + length:
                return start + address - begin
        return None

    def forget(self) -> None:
        """Let go of what was read so far, unless the library still uses it."""
        self._windows.clear()
