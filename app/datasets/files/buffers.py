"""A bounded pool of page-aligned buffers."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from app.errors import BusyError
from core.arrays import Octets

PAGE = 4096
"""Alignment of buffers in bytes: enough for O_DIRECT reads from any disk."""


class BufferPool:
    """Buffers lent to one thread at a time, allocated when first needed.

    Args:
        count: number of buffers; with one per reading thread, none ever waits.
        size: size of a buffer in bytes, a multiple of ``PAGE``.
        wait: seconds to wait for a buffer.

    Raises:
        ValueError: ``size`` is not such a multiple.
    """

    def __init__(self, count: int = 8, size: int = 1 << 20, wait: float = 5.0) -> None:
        if size <= 0 or size % PAGE:
            raise ValueError(f"a buffer must consist of whole pages of {PAGE} bytes, not {size}")
        self.size = size
        self._wait = wait
        self._left = threading.BoundedSemaphore(count)
        self._free: list[Octets] = []

    @contextmanager
    def lend(self) -> Iterator[Octets]:
        """Lend a buffer with arbitrary contents until the end of the block.

        Raises:
            BusyError: no buffer became free in time.
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
