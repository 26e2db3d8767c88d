"""Bounded memory that request bodies are read into."""

from __future__ import annotations

import mmap
import threading

from app.errors import BusyError

_KEEP_FREE = 16
"""Buffers that are kept for the next request; memory of others is given back."""


class Buffers:
    """A bounded number of page-aligned buffers.

    Args:
        most: buffers that may be out at once.
        size: bytes of each.
    """

    def __init__(self, most: int, size: int) -> None:
        self.size = size
        self._most = most
        self._out = 0
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    @property
    def out(self) -> int:
        """Buffers that are in use."""
        return self._out

    def take(self, count: int) -> list[mmap.mmap]:
        """So many buffers, all or none.

        Raises:
            BusyError: fewer are left.
        """
        with self._lock:
            if self._out + count > self._most:
                raise BusyError(
                    "as many bodies as this server has buffers for are being read",
                    hint="Try again after the seconds in Retry-After",
                    retry_after=1,
                )
            self._out += count
            free = [self._free.pop() for _ in range(min(count, len(self._free)))]
        # An anonymous mapping has memory only where it was written to, so that a slow
        # upload, which never fills its buffer, costs a page or two.
        return free + [mmap.mmap(-1, self.size) for _ in range(count - len(free))]

    def give_back(self, buffers: list[mmap.mmap]) -> None:
        """Return buffers; nothing may write to them any more."""
        with self._lock:
            self._out -= len(buffers)
            room = _KEEP_FREE - len(self._free)
            # The others are not closed: the traceback of what ended a request may still
            # refer to them. Their memory goes with the last reference.
            self._free += buffers[:room]
