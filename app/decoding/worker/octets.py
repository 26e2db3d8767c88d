"""Files that libraries read through Python: bytes of a descriptor, wherever its path leads."""

from __future__ import annotations

import io
import os


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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer
        """Fill a buffer.

        Raises:
            EOFError: the file ends before. HDF5 ignores how many bytes it got, and would take
                what was in the buffer before for data.
            OSError: the disk failed.
        """
        view = memoryview(buffer).cast("B")
        if self._at + len(view) > self._size:
            raise EOFError(f"{len(view)} bytes at byte {self._at} of {self._size}")
        done = 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], self._at + done)
            if not count:
                raise EOFError(f"the file ends at byte {self._at + done}")
            done += count
        self._at += done
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
