"""A byte buffer, filled at its end and consumed from its start."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Octets


def as_octets(data: Any) -> Octets:  # noqa: ANN401 - whatever has the buffer protocol
    """View any contiguous buffer as bytes, without copying, shape (n,)."""
    return np.frombuffer(memoryview(data).cast("B"), np.uint8)


def is_aligned(octets: Octets) -> bool:
    """Whether the bytes can be viewed as words of four bytes."""
    return bool(octets.__array_interface__["data"][0] % 4 == 0)


class ByteBuffer:
    """Bytes not yet consumed, contiguous and aligned to four bytes."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._octets: Octets = np.empty(capacity, np.uint8)
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def view(self) -> Octets:
        """All bytes in the buffer; valid until another method is called."""
        return self._octets[self._start : self._end]

    def append(self, octets: Octets) -> None:
        """Append a copy of some bytes."""
        needed = len(self) + len(octets)
        if self._end + len(octets) > len(self._octets):
            target = self._octets
            if needed > len(target):
                target = np.empty(max(needed, 2 * len(target)), np.uint8)
            target[: len(self)] = self.view
            self._octets, self._start, self._end = target, 0, len(self)
        self._octets[self._end : self._end + len(octets)] = octets
        self._end += len(octets)

    def consume(self, count: int) -> None:
        """Drop ``count`` bytes, a multiple of four or all of them, from the start."""
        self._start += count
        if self._start == self._end:
            self._start = self._end = 0

    def clear(self) -> None:
        """Drop everything."""
        self._start = self._end = 0
