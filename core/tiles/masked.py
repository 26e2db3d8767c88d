"""Positions whose bits are set in a mask, found where they are wanted.

To list those of a mask of 32 MiB would take two gigabytes. So the mask stays as it is, and the set
bits before each block of it are counted once: a block is looked for by bisection, and its bits are
told one by one only then.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Indices, Octets
from ..budget import current

_BLOCK = 1024
"""Bytes of a mask that are taken apart at once."""
_BITS = 8 * _BLOCK
_SLICE = 1 << 21
"""Bytes of a mask that are counted between two looks at the budget."""


class Masked:
    """Positions whose bits are set, ascending, along a single axis.

    Args:
        bits: the mask, 8 positions to a byte, the first one in the highest bit.
        before: set bits before each block, and in all.
        first: number of set bits that are left out at the beginning.
        last: number of the set bit after the last one.
    """

    def __init__(self, bits: Octets, before: Indices, first: int, last: int) -> None:
        self._bits = bits
        self._before = before
        self._first = first
        self._last = last

    @classmethod
    def of(cls, mask: bytes) -> Masked:
        """Count the set bits of a mask."""
        bits = np.frombuffer(mask, np.uint8)
        starts = range(0, len(bits), _BLOCK)
        before = np.zeros(len(starts) + 1, np.int64)
        for start in range(0, len(bits), _SLICE):
            current().check("mask")
            counts = np.bitwise_count(bits[start : start + _SLICE])
            edges = np.arange(0, len(counts), _BLOCK)
            block = start // _BLOCK + 1
            before[block : block + len(edges)] = np.add.reduceat(counts, edges, dtype=np.int64)
        np.cumsum(before, out=before)
        return cls(bits, before, 0, int(before[-1]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions, as a shape with one axis."""
        return (self._last - self._first,)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the positions of set bits ``low`` to ``high``."""
        begin, end = self._first + low[0], self._first + high[0]
        out = np.empty(end - begin, np.int64)
        first, last = np.searchsorted(self._before, (begin, end - 1), side="right").tolist()
        filled = np.flatnonzero(np.diff(self._before[first - 1 : last + 1])) + first - 1
        for block in filled.tolist():
            here = self._positions(block)
            at = int(self._before[block])
            part = here[max(begin - at, 0) : end - at]
            skip = max(at - begin, 0)
            out[skip : skip + len(part)] = part
        return out

    def _positions(self, block: int) -> Indices:
        start = block * _BLOCK
        found: Indices = np.flatnonzero(np.unpackbits(self._bits[start : start + _BLOCK]))
        return found + start * 8

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest position."""
        count = self.shape[0]
        return int(self.box((0,), (1,))[0]), int(self.box((count - 1,), (count,))[0])

    def within(self, low: int, high: int) -> Masked | None:
        """Return those from ``low`` to ``high`` - 1; None if there are none."""
        first = max(self._first, self._set_before(low))
        last = min(self._last, self._set_before(high))
        return Masked(self._bits, self._before, first, last) if first < last else None

    def _set_before(self, position: int) -> int:
        """Return how many set bits come before a position."""
        position = min(max(position, 0), 8 * len(self._bits))
        block = position // _BITS
        count = int(self._before[block])
        if position % _BITS:
            count += int(np.searchsorted(self._positions(block), position))
        return count

    def for_reader(self) -> Masked:
        """Return these positions: nothing is kept while they are read."""
        return self

    @property
    def nbytes(self) -> int:
        """Memory of the counts in bytes; the mask is the view's."""
        return self._before.nbytes
