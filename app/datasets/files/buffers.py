"""A bounded pool of page-aligned buffers, in huge pages where the kernel has them.

The kernel copies to a buffer page by page, and the processor looks up each page: a huge one
takes one look where small ones take 512.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import AbstractContextManager, suppress

import numpy as np

from app.errors import BusyError
from core.arrays import Octets

PAGE = 4096
"""Alignment of buffers in bytes: enough for O_DIRECT reads from any disk."""


_HUGE = 2 << 20
"""Size of a huge page."""


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
        self._unmade = count
        self._lock = threading.Lock()

    def lend(self) -> AbstractContextManager[Octets]:
        """Lend a buffer with arbitrary contents until the end of the block.

        Raises:
            BusyError: no buffer became free in time.
        """
        return _Loan(self)

    def take(self) -> Octets:
        """Return a buffer that is the caller's until ``put``; see ``lend``."""
        if not self._left.acquire(timeout=self._wait):
            raise BusyError("no buffers are left to read into", retry_after=1)
        try:
            with self._lock:
                if not self._free:
                    self._free = self._allocate()[: self._unmade]
                    self._unmade -= len(self._free)
                return self._free.pop()
        except BaseException:
            self._left.release()
            raise

    def put(self, buffer: Octets) -> None:
        """Give a buffer back."""
        self._free.append(buffer)
        self._left.release()

    def _allocate(self) -> list[Octets]:
        """Allocate as many buffers as fit into whole huge pages; memory is taken when used."""
        length = -(-self.size // _HUGE) * _HUGE
        memory = mmap.mmap(-1, length + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        octets = np.frombuffer(memory, np.uint8)
        first = -octets.ctypes.data % _HUGE
        return [
            octets[at : at + self.size]
            for at in range(first, first + length - self.size + 1, self.size)
        ]


class _Loan:
    """A block that a buffer is lent to: a class, since a generator costs as much as a small read.

    Args:
        pool: the pool of the buffer.
    """

    __slots__ = ("_buffer", "_pool")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool

    def __enter__(self) -> Octets:
        self._buffer = self._pool.take()
        return self._buffer

    def __exit__(self, *_: object) -> None:
        self._pool.put(self._buffer)
