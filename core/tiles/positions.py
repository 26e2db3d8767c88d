"""Positions of a scan that a view selects, computed where possible, listed otherwise.

A selection maps the axes of a view to flat indices of the scan. For the common ones (the whole
scan, or regular steps along each axis) an index is a sum of one term per axis, so a
:class:`Lattice` computes it and a scan of any size takes no memory. Index lists, masks and
shuffles have no such rule; they become a :class:`Listed` array with one axis, and are limited
to ``MAX_SELECTED`` positions::

    scan (4, 6), nav = [[1, 4, 2], [0, 6, 3]]

     0  1  2  3  4  5
    [6] 7  8 [9]10 11      index = 6 * (1 + 2 * i) + (0 + 3 * j)
    12 13 14 15 16 17      shape = (2, 2)
   [18]19 20[21]22 23

A plan asks both kinds only two questions: the indices in a box of the view's axes, and the
lowest and highest index, which show whether every position has a frame.

A position is not yet a frame: the frame of position p is p + sync_offset, and may be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import Indices
from ..errors import SelectionError, ShapeError
from .view import MAX_SELECTED, Every, Frames, Grid, Mask, Select, Shuffle


class Positions(Protocol):
    """Flat indices of a scan, arranged along the navigation axes of a view."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions along each axis."""

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices in a box of the axes, shape high - low."""

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""

    @property
    def nbytes(self) -> int:
        """Memory of the listed indices in bytes; 0 if they are computed."""


@dataclass(frozen=True, slots=True)
class Lattice:
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
            along = (start + step * np.arange(low[axis], high[axis])) * pitch
            shape = [1] * len(self.scan)
            shape[axis] = len(along)
            indices = indices + along.reshape(shape)
            pitch *= self.scan[axis]
        return indices

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""
        corners = [(r[0], r[-1]) for r in (range(*bounds) for bounds in self.slices)]
        pitches = [math.prod(self.scan[axis + 1 :]) for axis in range(len(self.scan))]
        low = sum(c[0] * p for c, p in zip(corners, pitches, strict=True))
        high = sum(c[1] * p for c, p in zip(corners, pitches, strict=True))
        return low, high

    @property
    def nbytes(self) -> int:
        """Zero: nothing is listed."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Positions listed one by one, along a single axis."""

    indices: Indices

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions, as a shape with one axis."""
        return (len(self.indices),)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the indices in a range of the list."""
        return self.indices[low[0] : high[0]]

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest flat index."""
        return int(self.indices.min()), int(self.indices.max())

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
    match select:
        case Every():
            return Lattice(scan, tuple((0, length, 1) for length in scan))
        case Grid(slices):
            return _grid(slices, scan)
        case Frames():
            listed = np.array(select.indices)
            if listed.max() >= size:
                raise SelectionError(
                    f"index {int(listed.max())} is selected, but the scan has {size} positions"
                )
            return Listed(listed)
        case Mask(bits):
            return Listed(_masked(bits, size, scan))
        case Shuffle(seed):
            return Listed(shuffled(size, seed))


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


def _masked(bits: bytes, size: int, scan: tuple[int, ...]) -> Indices:
    if len(bits) != -(-size // 8):
        raise ShapeError(
            f"select.mask has {len(bits)} bytes, but a scan of {list(scan)} needs {-(-size // 8)}",
            hint="Send base64 of np.packbits of the flat mask",
        )
    mask = np.unpackbits(np.frombuffer(bits, np.uint8))
    if mask[size:].any():
        raise ShapeError("select.mask has bits after its last position")
    selected = np.flatnonzero(mask[:size]).astype(np.int64)
    if not len(selected):
        raise SelectionError("select.mask selects nothing")
    return selected


def shuffled(size: int, seed: int) -> Indices:
    """Permute 0 to size - 1 by a seed, in an order that never changes.

    Positions are sorted by a keyed 64-bit hash: the SplitMix64 finaliser (Steele et al.,
    2014) of (position + 1) * increment + seed. Equal hashes keep their order.

    Raises:
        SelectionError: the scan has more than ``MAX_SELECTED`` positions.
    """
    if size > MAX_SELECTED:
        raise SelectionError(f"a scan of {size} positions is too large to be shuffled")
    with np.errstate(over="ignore"):
        x = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.argsort(x, kind="stable").astype(np.int64)


def present(positions: Positions, frames: int, sync_offset: int) -> Positions:
    """Keep the positions that have a frame, at position + sync_offset in the files.

    Raises:
        SelectionError: none has a frame, or too many would have to be listed.
    """
    if isinstance(positions, Lattice):
        low, high = positions.extremes()
        if low + sync_offset >= 0 and high + sync_offset < frames:
            return positions
        if positions.slices == tuple((0, length, 1) for length in positions.scan):
            # A contiguous stretch of the whole scan: a lattice with a single axis.
            size = math.prod(positions.scan)
            begin, end = max(0, -sync_offset), min(size, frames - sync_offset)
            if begin < end:
                return Lattice((size,), ((begin, end, 1),))
            raise _no_frame(frames, sync_offset)
    listed = _flat(positions)
    listed = listed[(listed + sync_offset >= 0) & (listed + sync_offset < frames)]
    if not len(listed):
        raise _no_frame(frames, sync_offset)
    return Listed(listed)


def _flat(positions: Positions) -> Indices:
    if math.prod(positions.shape) > MAX_SELECTED:
        raise SelectionError(f"more than {MAX_SELECTED} positions would have to be listed")
    return positions.box((0,) * len(positions.shape), positions.shape).reshape(-1)


def _no_frame(frames: int, sync_offset: int) -> SelectionError:
    return SelectionError(
        f"no selected position has a frame: there are {frames}, with sync_offset {sync_offset}",
        hint="Set missing to zero or nan to fill positions without a frame",
    )
