"""Positions of a scan that a view selects, computed where possible, listed otherwise.

A selection maps the axes of a view to flat indices of the scan. For the common ones (the whole
scan, or regular steps along each axis) an index is a sum of one term per axis, so a
:class:`Lattice` computes it and a scan of any size takes no memory. Index lists become a
:class:`Listed` array with one axis; so do short masks and shuffles, while those of millions of
positions are sought where they are wanted: to list those of a mask of 32 MiB would take two
gigabytes. So the mask stays as it is, and the set bits before each block of it are counted once; a
block is looked for by bisection, and its bits are told one by one only then. All three are limited
to ``MAX_SELECTED`` positions::

    scan (4, 6), nav = [[1, 4, 2], [0, 6, 3]]

     0  1  2  3  4  5
    [6] 7  8 [9]10 11      index = 6 * (1 + 2 * i) + (0 + 3 * j)
    12 13 14 15 16 17      shape = (2, 2)
   [18]19 20[21]22 23

A plan asks all kinds three questions: the indices in a box of the view's axes; the lowest and
highest index, which show whether every position has a frame; and which indices lie in a range, if
some have none.

A position is not yet a frame: the frame of position p is p + sync_offset, and may be missing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import Indices, Octets
from ..budget import Scope, current
from ..errors import SelectionError, ShapeError
from .shuffled import Shuffled
from .view import MAX_SELECTED, Every, Frames, Grid, Mask, Select, Shuffle

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


_LISTED = 1 << 22
"""Positions of a mask or a shuffle up to which they are listed: that is faster to read from."""


class Positions(Protocol):
    """Flat indices of a scan, arranged along the navigation axes of a view."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions along each axis."""

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices in a box of the axes, shape high - low."""

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""

    def within(self, low: int, high: int) -> Positions | None:
        """Return the indices from ``low`` to ``high`` - 1, along one axis; None if there are none.

        They keep their order.
        """

    def for_reader(self) -> Positions:
        """Return the same positions for one reader, which may keep what it found."""
        return self

    @property
    def nbytes(self) -> int:
        """Memory of the positions in bytes; 0 if they are computed."""
        return 0


@dataclass(frozen=True, slots=True)
class Lattice(Positions):
    """Positions at regular steps along each axis of a scan."""

    scan: tuple[int, ...]
    slices: tuple[tuple[int, int, int], ...]
    """(start, stop, step) along each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions along each axis."""
        return tuple(len(range(*bounds)) for bounds in self.slices)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices in a box of the axes, shape high - low."""
        if len(self.scan) == 1:
            start, _, step = self.slices[0]
            return np.arange(start + step * low[0], start + step * high[0], step, dtype=np.int64)
        indices = np.zeros((1,) * len(self.scan), np.int64)
        pitch = 1
        for axis in reversed(range(len(self.scan))):
            start, _, step = self.slices[axis]
            steps = (start + step * np.arange(low[axis], high[axis])) * pitch
            shape = [1] * len(self.scan)
            shape[axis] = len(steps)
            indices = indices + steps.reshape(shape)
            pitch *= self.scan[axis]
        return indices

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""
        return self.at(0), self.at(math.prod(self.shape) - 1)

    def at(self, place: int) -> int:
        """Return the index at a place in C order; the indices ascend."""
        index, pitch = 0, 1
        for length, bounds in zip(reversed(self.scan), reversed(self.slices), strict=True):
            steps = range(*bounds)
            place, i = divmod(place, len(steps))
            index += steps[i] * pitch
            pitch *= length
        return index

    def pick(self, places: Indices) -> Indices:
        """Return the indices at places in C order."""
        indices, pitch = np.zeros(len(places), np.int64), 1
        for length, (start, stop, step) in zip(
            reversed(self.scan), reversed(self.slices), strict=True
        ):
            places, offset = np.divmod(places, len(range(start, stop, step)))
            indices += (start + step * offset) * pitch
            pitch *= length
        return indices

    def within(self, low: int, high: int) -> Positions | None:
        """Return the indices from ``low`` to ``high`` - 1, along one axis; None if none is."""
        size = math.prod(self.scan)
        if self.slices == tuple((0, length, 1) for length in self.scan):
            low, high = max(low, 0), min(high, size)
            return Lattice((size,), ((low, high, 1),)) if low < high else None
        places = range(math.prod(self.shape))
        first, last = (bisect_left(places, index, key=self.at) for index in (low, high))
        return Stretch(self, first, last) if first < last else None


@dataclass(frozen=True, slots=True)
class Stretch(Positions):
    """Positions of a lattice at successive places in C order, along a single axis."""

    lattice: Lattice
    first: int
    last: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions, as a shape with one axis."""
        return (self.last - self.first,)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices at places ``low`` to ``high`` of the stretch."""
        return self.pick(np.arange(low[0], high[0]))

    def pick(self, places: Indices) -> Indices:
        """Return the indices at places of the stretch."""
        return self.lattice.pick(self.first + places)

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""
        return self.lattice.at(self.first), self.lattice.at(self.last - 1)

    def within(self, low: int, high: int) -> Positions | None:
        """Return the indices from ``low`` to ``high`` - 1; None if there are none."""
        places, at = range(self.first, self.last), self.lattice.at
        first, last = (self.first + bisect_left(places, i, key=at) for i in (low, high))
        return Stretch(self.lattice, first, last) if first < last else None


@dataclass(frozen=True, slots=True, eq=False)
class Listed(Positions):
    """Positions listed one by one, along a single axis."""

    indices: Indices

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions, as a shape with one axis."""
        return (len(self.indices),)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices in a range of the list."""
        # A copy: kernels take no array that cannot be written to.
        return np.array(self.indices[low[0] : high[0]])

    def pick(self, places: Indices) -> Indices:
        """Return the indices at places of the list."""
        return self.indices[places]

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""
        return int(self.indices.min()), int(self.indices.max())

    def within(self, low: int, high: int) -> Positions | None:
        """Return the indices from ``low`` to ``high`` - 1; None if there are none."""
        with Scope("positions", 2 * self.nbytes):
            listed = self.indices[(self.indices >= low) & (self.indices < high)]
        return Listed(listed) if len(listed) else None

    @property
    def nbytes(self) -> int:
        """Memory of the indices in bytes."""
        return self.indices.nbytes


def resolve(select: Select, scan: tuple[int, ...]) -> Positions:
    """Resolve a selection to positions of a scan of this shape.

    Raises:
        SelectionError: a position is outside the scan, none is selected, or too many are.
        ShapeError: the number of axes or the size of the mask differs from the scan's.
    """
    size = math.prod(scan)
    if not size:
        raise SelectionError(
            "the scan has no positions: its files hold no frame yet",
            hint="Wait until a frame is written, or give the dataset a nav_shape",
        )
    match select:
        case Every():
            return Lattice(scan, tuple((0, length, 1) for length in scan))
        case Grid(slices):
            return _grid(slices, scan)
        case Frames():
            listed = select.indices
            if listed.max() >= size:
                raise SelectionError(
                    f"index {int(listed.max())} is selected, but positions are 0 to {size - 1:,}"
                )
            return Listed(listed)
        case Mask(bits):
            return _listed(_masked(bits, size, scan))
        case Shuffle(seed):
            if size > MAX_SELECTED:
                raise SelectionError(f"a scan of {size} positions is too large to be shuffled")
            return _listed(Shuffled.of(seed, 0, size))


def _listed(positions: Masked | Shuffled) -> Positions:
    """List positions unless there are many."""
    if positions.shape[0] > _LISTED:
        return positions
    with Scope("positions", 8 * positions.shape[0]):
        return Listed(positions.box((0,), positions.shape))


def _grid(slices: tuple[tuple[int, int, int], ...], scan: tuple[int, ...]) -> Lattice:
    if len(slices) != len(scan):
        raise ShapeError(
            f"select.nav has {len(slices)} axes, but the scan has {len(scan)}: {list(scan)}"
        )
    for axis, ((_, stop, _), length) in enumerate(zip(slices, scan, strict=True)):
        if stop > length:
            raise SelectionError(
                f"select.nav goes to {stop} along axis {axis}, which has {length} positions"
            )
    return Lattice(scan, slices)


def _masked(bits: bytes, size: int, scan: tuple[int, ...]) -> Masked:
    if len(bits) != -(-size // 8):
        raise ShapeError(
            f"select.mask has {len(bits)} bytes, but a scan of {list(scan)} needs {-(-size // 8)}",
            hint="Send base64 of np.packbits of the flat mask",
        )
    if size % 8 and bits[-1] & (0xFF >> size % 8):
        raise ShapeError("select.mask has bits after its last position")
    selected = Masked.of(bits)
    if not selected.shape[0]:
        raise SelectionError("select.mask selects nothing")
    return selected


def present(positions: Positions, frames: int, sync_offset: int) -> Positions:
    """Keep the positions that have a frame, at position + sync_offset in the files.

    Raises:
        SelectionError: none has a frame.
    """
    low, high = positions.extremes()
    if low + sync_offset >= 0 and high + sync_offset < frames:
        return positions
    having = positions.within(-sync_offset, frames - sync_offset)
    if having is None:
        raise SelectionError(
            f"no selected position has a frame: there are {frames}, with sync_offset {sync_offset}",
            hint="Set missing to zero or nan to fill positions without a frame",
        )
    return having
