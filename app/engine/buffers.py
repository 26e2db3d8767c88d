"""A bounded number of buffers for request bodies."""

from __future__ import annotations

import mmap
import threading

from app.errors import BusyError

_MAX_FREE = 16
"""Maximum number of free buffers to retain for later requests."""


class Buffers:
    """A bounded number of page-aligned buffers.

    Args:
        limit: maximum number of buffers in use.
        size: size of a buffer in bytes.

    Attributes:
        limit: as above.
        size: as above.
    """

    def __init__(self, limit: int, size: int) -> None:
        self.size = size
        self.limit = limit
        self._out = 0
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    @property
    def has_free(self) -> bool:
        """Whether a body can have its two buffers."""
        return self._out + 2 <= self.limit

    @property
    def out(self) -> int:
        """Number of buffers in use."""
        return self._out

    def take(self, count: int) -> list[mmap.mmap]:
        """Take ``count`` buffers, all or none.

        Raises:
            BusyError: fewer are free.
        """
        with self._lock:
            if self._out + count > self.limit:
                raise BusyError(
                    "all buffers for request bodies are in use",
                    hint="Retry after the seconds in Retry-After",
                    retry_after=1,
                )
            self._out += count
            free = [self._free.pop() for _ in range(min(count, len(self._free)))]
        # An anonymous mapping has memory only where it was written to: a slow upload that
        # never fills its buffer costs a page or two.
        return free + [mmap.mmap(-1, self.size) for _ in range(count - len(free))]

    def give_back(self, buffers: list[mmap.mmap]) -> None:
        """Return buffers; nothing may write to them from now on."""
        with self._lock:
            self._out -= len(buffers)
            room = _MAX_FREE - len(self._free)
            # The others are not closed, since the traceback of a failed request may still
            # refer to them. Their memory is freed with the last reference.
            self._free += buffers[:room]
