"""Page-aligned buffers, of which there are only so many."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from app.errors import BusyError

Octets = npt.NDArray[np.uint8]

PAGE = 4096
"""What buffers are aligned to: enough for unbuffered reads of any disk."""


class BufferPool:
    """Buffers that are lent to one thread at a time, and made when first needed.

    Args:
        count: how many there are; as many as threads that read, and nobody waits.
        size: bytes of each, a multiple of PAGE.
        wait: seconds to wait for one.

    Raises:
        ValueError: a size that is no such multiple.
    """

    def __init__(self, count: int = 8, size: int = 1 << 20, wait: float = 5.0) -> None:
        if size <= 0 or size % PAGE:
            raise ValueError(f"a buffer must have whole pages of {PAGE} bytes, not {size} bytes")
        self.size = size
        self._wait = wait
        self._left = threading.BoundedSemaphore(count)
        self._free: list[Octets] = []

    @contextmanager
    def lend(self) -> Iterator[Octets]:
        """A buffer until the end of the block; what is in it is anything.

        Raises:
            BusyError: none came free in time.
        """
        if not self._left.acquire(timeout=self._wait):
            raise BusyError("no buffers are left to read into", retry_after=1)
        try:
            try:
                buffer = self._free.pop()
            except IndexError:
                buffer = np.frombuffer(mmap.mmap(-1, self.size), np.uint8)
            try:
                yield buffer
            finally:
                self._free.append(buffer)
        finally:
            self._left.release()
