"""Files that libraries read through Python: bytes of a descriptor, or those the service sends."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

_BLOCK = 256 << 10
"""Bytes that are asked for at least."""
_RUN = 16
"""Blocks that are asked for at most."""
_BLOCKS = 64
"""Blocks that are kept."""
_MIN_MAP = 64 << 10
"""Bytes from which on a map costs less than a copy."""


class Blocks:
    """The bytes of a file that this process does not have, and asks for.

    Args:
        fetch: returns so many bytes from an offset on; OSError if they cannot be had.
        size: size of the file in bytes.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next, self._run = 0, 1

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes that the file has.

        Raises:
            OSError: they cannot be had.
        """
        pieces = []
        while start < stop:
            number, skip = divmod(start, _BLOCK)
            if number not in self._blocks:
                self._load(number, -(-stop // _BLOCK) - number)
            self._blocks.move_to_end(number)
            pieces.append(self._blocks[number][skip : skip + stop - start])
            start += len(pieces[-1])
        return b"".join(pieces)

    def _load(self, number: int, count: int) -> None:
        """Fetch some blocks, twice as many as the last time if they follow those."""
        self._run = min(2 * self._run, _RUN) if number == self._next else 1
        self._next = number + max(self._run, min(count, _RUN))
        start = number * _BLOCK
        octets = self._fetch(start, min(self._next * _BLOCK, self._size) - start)
        for at in range(0, len(octets), _BLOCK):
            self._blocks[number + at // _BLOCK] = octets[at : at + _BLOCK]
        while len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)


class DescriptorFile(io.RawIOBase):
    """A read-only, seekable file object over a descriptor, by pread, or over what is fetched.

    The offset is the object's own: other users of the open file are not disturbed.

    Args:
        descriptor: the open file, which ``close`` closes; -1 if there is none.
        size: its size in bytes; what follows is not read.
        blocks: its bytes, if it is not open.
    """

    def __init__(self, descriptor: int, size: int, blocks: Blocks | None = None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._size = size
        self._blocks = blocks
        self._at = 0

    @classmethod
    def of(cls, arguments: Mapping[str, Any], descriptors: Sequence[int]) -> Self:
        """Open the file of a subject; see ``serving.Format``."""
        size = arguments["size"]
        if descriptors:
            return cls(descriptors[0], size)
        return cls(-1, size, Blocks(arguments["fetch"], size))

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
        if self._blocks is not None:
            view[:] = self._blocks.read(start, start + size)
            self._at += size
            return size
        # A single call nearly always suffices.
        total = os.preadv(self._descriptor, [view], start) if size else 0
        while total < size:
            count = os.preadv(self._descriptor, [view[total:]], start + total)
            if not count:
                raise EOFError(f"the file ends at byte {start + total}")
            total += count
        self._at = start + total
        return total

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; to the end of the file if negative.

        Raises:
            EOFError: the file has become shorter.
            OSError: the disk failed.
        """
        left = max(self._size - self._at, 0)
        left = left if size < 0 else min(size, left)
        if self._blocks is not None:
            self._at += left
            return self._blocks.read(self._at - left, self._at)
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
        if not self.closed and self._descriptor >= 0:
            os.close(self._descriptor)
        super().close()


class MappedFile(DescriptorFile):
    """A DescriptorFile that maps what is large, and knows where in the file its bytes lie.

    A library that leaves bytes as they are returns addresses within them. Pages that nobody
    touches are never read. A file that is cut while it is mapped ends this process, not the
    service.
    """

    def __init__(self, descriptor: int, size: int, blocks: Blocks | None = None) -> None:
        super().__init__(descriptor, size, blocks)
        self._windows: list[tuple[int, int, int, bytes | memoryview]] = []

    def read(self, size: int = -1) -> bytes | memoryview:  # type: ignore[override]  # any buffer
        """Read up to ``size`` bytes; to the end of the file if negative; see DescriptorFile."""
        start = self._at
        left = max(self._size - start, 0)
        left = left if size < 0 else min(size, left)
        octets: bytes | memoryview | None = None
        if left >= _MIN_MAP and self._blocks is None:
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
