"""Which positions of the scan are wanted, as arithmetic where possible, else as a list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import Indices
from ..errors import SelectionError, ShapeError
from .view import MAX_SELECTED, Every, Frames, Grid, Mask, Select, Shuffle


class Positions(Protocol):
    """Flat indices of a scan, arranged along axes of their own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many there are along each axis."""

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Those of a box of the axes, shape high - low."""

    def extremes(self) -> tuple[int, int]:
        """Lowest and highest flat index."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Regular steps along each axis of a scan."""

    scan: tuple[int, ...]
    slices: tuple[tuple[int, int, int], ...]
    """(start, stop, step) along each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many there are along each axis."""
        return tuple(len(range(*each)) for each in self.slices)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Those of a box of the axes, shape high - low."""
        if len(self.scan) == 1:
            start, _, step = self.slices[0]
            return np.arange(start + step * low[0], start + step * high[0], step, dtype=np.int64)
        found = np.zeros((1,) * len(self.scan), np.int64)
        pitch = 1
        for axis in reversed(range(len(self.scan))):
            start, _, step = self.slices[axis]
            along = (start + step * np.arange(low[axis], high[axis])) * pitch
            shape = [1] * len(self.scan)
            shape[axis] = len(along)
            found = found + along.reshape(shape)
            pitch *= self.scan[axis]
        return found

    def extremes(self) -> tuple[int, int]:
        """Lowest and highest flat index."""
        corners = [(r[0], r[-1]) for r in (range(*each) for each in self.slices)]
        pitches = [math.prod(self.scan[axis + 1 :]) for axis in range(len(self.scan))]
        low = sum(c[0] * p for c, p in zip(corners, pitches, strict=True))
        high = sum(c[1] * p for c, p in zip(corners, pitches, strict=True))
        return low, high


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Positions one by one."""

    indices: Indices

    @property
    def shape(self) -> tuple[int, ...]:
        """How many there are."""
        return (len(self.indices),)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Those of a range."""
        return self.indices[low[0] : high[0]]

    def extremes(self) -> tuple[int, int]:
        """Lowest and highest flat index."""
        return int(self.indices.min()), int(self.indices.max())


def resolve(select: Select, scan: tuple[int, ...]) -> Positions:
    """The positions a selection names in a scan of this shape.

    Raises:
        SelectionError: one lies outside, none is selected, or there are too many.
        ShapeError: it has more or fewer axes than the scan, or is a mask of another size.
    """
    size = math.prod(scan)
    match select:
        case Every():
            return Lattice(scan, tuple((0, length, 1) for length in scan))
        case Grid(slices):
            return _grid(slices, scan)
        case Frames(indices):
            listed = np.array(indices, np.int64)
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
            hint="base64 of np.packbits of the flat mask",
        )
    mask = np.unpackbits(np.frombuffer(bits, np.uint8))
    if mask[size:].any():
        raise ShapeError("select.mask has bits after its last position")
    found = np.flatnonzero(mask[:size]).astype(np.int64)
    if not len(found):
        raise SelectionError("select.mask selects nothing")
    return found


def shuffled(size: int, seed: int) -> Indices:
    """0 to size - 1 in an order drawn from a seed, the same for ever.

    Positions are sorted by a keyed hash of 64 bits (the finaliser of SplitMix64, Steele
    et al. 2014, of the position times its odd increment plus the seed); positions of
    equal hash stay in order.

    Raises:
        SelectionError: they are more than may be listed.
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
    """Those positions for which there is a frame: position + sync_offset in the files.

    Raises:
        SelectionError: there is none, or too many would have to be listed.
    """
    if isinstance(positions, Lattice):
        low, high = positions.extremes()
        if low + sync_offset >= 0 and high + sync_offset < frames:
            return positions
        if positions.slices == tuple((0, length, 1) for length in positions.scan):
            # A stretch of the scan, which stays arithmetic along one axis.
            size = math.prod(positions.scan)
            begin, end = max(0, -sync_offset), min(size, frames - sync_offset)
            if begin < end:
                return Lattice((size,), ((begin, end, 1),))
            raise _nothing(frames, sync_offset)
    listed = _flat(positions)
    listed = listed[(listed + sync_offset >= 0) & (listed + sync_offset < frames)]
    if not len(listed):
        raise _nothing(frames, sync_offset)
    return Listed(listed)


def _flat(positions: Positions) -> Indices:
    if math.prod(positions.shape) > MAX_SELECTED:
        raise SelectionError(f"more than {MAX_SELECTED} positions would have to be listed")
    return positions.box((0,) * len(positions.shape), positions.shape).reshape(-1)


def _nothing(frames: int, sync_offset: int) -> SelectionError:
    return SelectionError(
        f"no selected position has a frame: there are {frames}, with sync_offset {sync_offset}",
        hint="missing=zero or nan makes frames of their own for positions without one",
    )
