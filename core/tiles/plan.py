"""A view of a dataset as a list of tiles in a fixed order with fixed borders."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Indices
from ..errors import CastingError, SelectionError, ShapeError
from .positions import Positions, present, resolve
from .recording import Recording
from .view import View

TARGET_BYTES = 2 << 20
"""Bytes of a tile if nothing is said: what a cache holds, and few enough requests."""
MAX_TILE_BYTES = 64 << 20
"""Most bytes of a tile."""
MAX_SUMMED_BYTES = 1 << 30
"""Most bytes of pixels that one tile is summed from: it is made in one go."""

Box = tuple[tuple[int, int], ...]
"""(start, stop) along each axis."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile of a plan."""

    index: int
    origin: tuple[int, ...]
    """In the axes of the view: navigation, then signal."""
    shape: tuple[int, ...]
    offset: int
    """Bytes of all tiles before it."""
    nbytes: int

    @property
    def box(self) -> Box:
        """(start, stop) along each axis."""
        return tuple((o, o + n) for o, n in zip(self.origin, self.shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All tiles of a view: the last navigation and signal axes run fastest.

    Made by :func:`make_plan`.
    """

    view: View
    positions: Positions
    """Positions of the scan, before binning."""
    frames: int
    """Frames there are in the files."""
    sync_offset: int
    nav_shape: tuple[int, ...]
    """Of the view, after binning."""
    sig_shape: tuple[int, ...]
    """Of the view, after binning."""
    sig_box: Box
    """Pixels of a frame that are used."""
    dtype: np.dtype[Any]
    """Of the tiles, little endian."""
    tile_shape: tuple[int, ...]
    """Of every tile but those at the borders."""

    # What follows from these is computed once: it is asked for with every tile.
    shape: tuple[int, ...] = field(init=False)
    """Of the whole view."""
    grid: tuple[int, ...] = field(init=False)
    """Tiles along each axis."""
    tiles: int = field(init=False)
    """Number of tiles."""
    nbytes: int = field(init=False)
    """Bytes of all tiles."""
    complete: bool = field(init=False)
    """Whether there is a frame for every position."""

    def __post_init__(self) -> None:
        shape = self.nav_shape + self.sig_shape
        pairs = zip(shape, self.tile_shape, strict=True)
        grid = tuple(-(-length // size) for length, size in pairs)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "tiles", math.prod(grid))
        object.__setattr__(self, "nbytes", math.prod(shape) * self.dtype.itemsize)
        low, high = self.positions.extremes()
        complete = low + self.sync_offset >= 0 and high + self.sync_offset < self.frames
        object.__setattr__(self, "complete", complete)

    def tile(self, index: int) -> Tile:
        """A tile by its place in the order.

        Raises:
            SelectionError: there is none.
        """
        if not 0 <= index < self.tiles:
            raise SelectionError(f"there is no tile {index}: the plan has {self.tiles}")
        # Plain numbers: numpy's calls cost more than a small tile.
        rest, origin = index, []
        for length, parts, size in zip(
            reversed(self.shape), reversed(self.grid), reversed(self.tile_shape), strict=True
        ):
            rest, i = divmod(rest, parts)
            origin.append((i * size, min(size, length - i * size)))
        origin.reverse()
        # Values before it: along each axis those of the tiles before, as long as the whole
        # view along the axes after, and as this tile along those before.
        before, outer, inner = 0, 1, math.prod(self.shape)
        for (start, size), length in zip(origin, self.shape, strict=True):
            inner //= length
            before += outer * start * inner
            outer *= size
        item = self.dtype.itemsize
        starts, shape = zip(*origin, strict=True)
        return Tile(index, starts, shape, before * item, outer * item)

    def frames_of(self, tile: Tile) -> Indices:
        """Frames of the files that a tile is made of; -1 where there is none.

        Returns:
            Shape (frames of the tile, frames summed into each).
        """
        axes = len(self.nav_shape)
        step = self.view.bin_nav
        box = tile.box[:axes]
        low = tuple(start * step for start, _ in box)
        high = tuple(stop * step for _, stop in box)
        where = self.positions.box(low, high)
        if step > 1:
            where = _group(where, step)
        found = where.reshape(math.prod(tile.shape[:axes]), -1)
        if self.sync_offset:
            found = found + self.sync_offset
        if not self.complete:
            outside = (found < 0) | (found >= self.frames)
            found = np.where(outside, -1, found)
        return np.ascontiguousarray(found)

    def pixels_of(self, tile: Tile) -> Box:
        """Pixels of a frame that a tile is made of, before binning."""
        step = self.view.bin_sig
        axes = len(self.nav_shape)
        if tile.shape[axes:] == self.sig_shape:
            return self.sig_box
        return tuple(
            (start + step * low, start + step * high)
            for (start, _), (low, high) in zip(self.sig_box, tile.box[axes:], strict=True)
        )

    def table(self) -> dict[str, Indices]:
        """The whole plan as columns: tile, offset, nbytes, origin and shape per axis."""
        grid = self.grid
        where = np.indices(grid).reshape(len(grid), -1)
        tile = np.array(self.tile_shape, np.int64)[:, None]
        whole = np.array(self.shape, np.int64)[:, None]
        origin = where * tile
        shape = np.minimum(tile, whole - origin)
        sizes = np.prod(shape, axis=0) * self.dtype.itemsize
        columns = {"tile": np.arange(self.tiles), "offset": np.cumsum(sizes) - sizes}
        columns["nbytes"] = sizes
        for axis in range(len(grid)):
            columns[f"origin_{axis}"] = origin[axis]
            columns[f"shape_{axis}"] = shape[axis]
        return columns


def _group(box: Indices, step: int) -> Indices:
    """Axes (a, b) as (a/step, b/step, step, step), so that the last ones are summed."""
    split = [n for length in box.shape for n in (length // step, step)]
    axes = len(box.shape)
    order = [*range(0, 2 * axes, 2), *range(1, 2 * axes, 2)]
    return box.reshape(split).transpose(order)


def make_plan(
    recording: Recording,
    view: View,
    *,
    nav_shape: tuple[int, ...] | None = None,
    sync_offset: int | None = None,
) -> Plan:
    """The tiles of a view.

    Args:
        recording: what is in the files.
        view: what is wanted.
        nav_shape: shape of the scan, if not the files'.
        sync_offset: of the dataset, if not the files'; the view's replaces both.

    Raises:
        SelectionError, ShapeError, CastingError: the view does not fit the data.
    """
    scan = recording.nav_shape if nav_shape is None else nav_shape
    sync = recording.sync_offset if sync_offset is None else sync_offset
    sync = sync if view.sync_offset is None else view.sync_offset
    positions = resolve(view.select, scan)
    if abs(sync) >= max(recording.frames, 1):
        raise SelectionError(f"sync_offset is {sync}, but there are only {recording.frames} frames")
    if view.missing == "skip":
        positions = present(positions, recording.frames, sync)
    sig_box = _sig_box(view, recording.sig_shape)
    nav = _binned(positions.shape, view.bin_nav, "bin.nav")
    sig = _binned(tuple(b - a for a, b in sig_box), view.bin_sig, "bin.sig")
    dtype = output_dtype(recording.dtype, view)
    if view.tile_shape is not None and len(view.tile_shape) == 1 + len(sig) != len(nav) + len(sig):
        # A depth in frames: the scan's axes do not matter.
        positions, nav = _flattened(positions, view.bin_nav), (math.prod(nav),)
    summed = view.bin_nav ** len(nav) * view.bin_sig ** len(sig) * recording.dtype.itemsize
    tile_shape = _tile_shape(view, nav, sig, dtype.itemsize, summed)
    return Plan(view, positions, recording.frames, sync, nav, sig, sig_box, dtype, tile_shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Flat:
    """Positions of several axes as if they had one."""

    inner: Positions

    @property
    def shape(self) -> tuple[int, ...]:
        return (math.prod(self.inner.shape),)

    def extremes(self) -> tuple[int, int]:
        return self.inner.extremes()

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        shape = self.inner.shape
        # Whole rows of the first axes that hold the range, then what is wanted of them.
        row = math.prod(shape[1:])
        first, last = low[0] // row, -(-high[0] // row)
        rows = self.inner.box((first, *(0,) * (len(shape) - 1)), (last, *shape[1:])).reshape(-1)
        return rows[low[0] - first * row : high[0] - first * row]


def _flattened(positions: Positions, bin_nav: int) -> Positions:
    if bin_nav > 1:
        raise ShapeError(
            "a tile_shape that counts frames does not go with bin.nav",
            hint="Give tile_shape one length per axis of the scan",
        )
    return _Flat(positions)


def _sig_box(view: View, sig_shape: tuple[int, ...]) -> Box:
    if view.sig is None:
        return tuple((0, length) for length in sig_shape)
    if len(view.sig) != len(sig_shape):
        raise ShapeError(f"sig has {len(view.sig)} axes, but a frame has {list(sig_shape)}")
    for axis, ((_, stop), length) in enumerate(zip(view.sig, sig_shape, strict=True)):
        if stop > length:
            raise SelectionError(
                f"sig goes to {stop} along axis {axis} of a frame, which has {length} pixels"
            )
    return view.sig


def _binned(shape: tuple[int, ...], step: int, name: str) -> tuple[int, ...]:
    for axis, length in enumerate(shape):
        if length % step:
            raise ShapeError(
                f"{name} is {step}, which does not divide the {length} selected along axis {axis}",
                hint="Select a multiple of it",
            )
    return tuple(length // step for length in shape)


def output_dtype(stored: np.dtype[Any], view: View) -> np.dtype[Any]:
    """Type of a view's tiles: the one asked for, else one that holds the values.

    Sums of integers are as wide as it takes: 4 bytes up to 2-byte values, else 8.

    Raises:
        CastingError: missing frames cannot be NaN in it.
    """
    if view.dtype is not None:
        dtype = np.dtype(view.dtype)
    elif (view.bin_nav, view.bin_sig) != (1, 1) and stored.kind in "biu":
        size = 4 if stored.itemsize <= 2 else 8  # noqa: PLR2004
        dtype = np.dtype(f"{'i' if stored.kind == 'i' else 'u'}{size}")
    else:
        dtype = stored
    if view.missing == "nan" and dtype.kind not in "fc":
        raise CastingError(
            f"missing frames cannot be NaN in {dtype.str}", hint="Ask for dtype '<f4' too"
        )
    return dtype.newbyteorder("<") if dtype.byteorder != "|" else dtype


def _tile_shape(
    view: View, nav: tuple[int, ...], sig: tuple[int, ...], item: int, summed: int
) -> tuple[int, ...]:
    """Shape of a tile; its values have ``item`` bytes, and are made of ``summed`` bytes."""
    whole = nav + sig
    binned = (view.bin_nav, view.bin_sig) != (1, 1)
    if view.tile_shape is None:
        some = min(TARGET_BYTES, MAX_SUMMED_BYTES // summed * item) if binned else TARGET_BYTES
        wanted = _negotiate(nav, sig, item, view.target_bytes or some)
    elif len(view.tile_shape) != len(whole):
        raise ShapeError(
            f"tile_shape has {len(view.tile_shape)} axes, but the view has {list(whole)}",
            hint="One length per axis, or a number of frames and then one per axis of a frame",
        )
    else:
        wanted = tuple(min(n, length) for n, length in zip(view.tile_shape, whole, strict=True))
    if math.prod(wanted) * item > MAX_TILE_BYTES:
        raise ShapeError(
            f"a tile of {list(wanted)} has {math.prod(wanted) * item} bytes,"
            f" more than {MAX_TILE_BYTES}",
            hint="Ask for smaller tiles: a stream has as many as it takes",
        )
    if binned and math.prod(wanted) * summed > MAX_SUMMED_BYTES:
        raise ShapeError(
            f"a tile of {list(wanted)} is summed from {math.prod(wanted) * summed} bytes,"
            f" more than {MAX_SUMMED_BYTES}",
            hint="Ask for smaller tiles or bins; reductions sum any number of frames",
        )
    return wanted


def _negotiate(
    nav: tuple[int, ...], sig: tuple[int, ...], item: int, target: int
) -> tuple[int, ...]:
    """Whole frames if one fits, in tiles of like size; else whole rows of one frame."""
    left = max(min(target, MAX_TILE_BYTES) // item, 1)
    shape: list[int] = []
    for length in reversed(nav + sig):
        parts = -(-length // left)
        size = -(-length // parts)
        shape.append(size)
        left = max(left // size, 1) if size == length else 1
    return tuple(reversed(shape))
