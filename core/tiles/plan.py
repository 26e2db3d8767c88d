"""Plans: a view of a dataset cut into tiles, in a fixed order with fixed borders.

A view may select terabytes, so it travels as a stream of tiles of about 2 MiB. Client and
server must agree on the tiles without sending a list of them, and a broken download must resume
anywhere. A plan therefore *computes* everything: the tiles are a regular grid over
the axes of the view (navigation axes first, then signal axes), numbered in C order. Only the
tiles at the far borders are smaller::

        axis 1 -->
        +-------+-------+----+
      a |   0   |   1   |  2 |      shape      (5, 10)
      x |       |       |    |      tile_shape (2, 4)
      i +-------+-------+----+      grid       (3, 3)
      s |   3   |   4   |  5 |
        |       |       |    |      The values of a tile are contiguous in the
      0 +-------+-------+----+      stream; tile 4 follows all values of tiles
        |   6   |   7   |  8 |      0 to 3.
        +-------+-------+----+

The origin, shape and byte offset of a tile follow from its index by arithmetic
(:meth:`Plan.tile`), whatever the number of tiles. From its box a tile learns which frames of
the files it needs (:meth:`Plan.frames_of`, through the positions of the scan) and which pixels
of them (:meth:`Plan.pixels_of`). Binning is accounted for here: a tile of binned data covers
``step`` times as many frames or pixels along each axis.

Tile shapes are negotiated so that a tile holds whole frames where one fits, and whole rows of
a frame otherwise: those are contiguous in the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays import Indices
from ..errors import CastingError, SelectionError, ShapeError
from .positions import Lattice, Positions, Stretch, present, resolve
from .recording import Recording
from .view import View

TARGET_BYTES = 2 << 20
"""Default size of a tile: small enough for a cache, large enough to keep requests few."""
MAX_TILE_BYTES = 64 << 20
"""Maximum size of a tile."""
MAX_SUMMED_BYTES = 1 << 30
"""Maximum bytes of pixels summed into one tile, because a tile is computed in one go."""

_PART = 1 << 18
"""Frames of which a tile is read at a time: each takes some 40 bytes to be located."""

Box = tuple[tuple[int, int], ...]
"""(start, stop) along each axis."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile of a plan."""

    index: int
    origin: tuple[int, ...]
    """Index of its first value along each axis of the view: navigation, then signal."""
    shape: tuple[int, ...]
    offset: int
    """Total size of all earlier tiles in bytes."""
    nbytes: int

    @property
    def box(self) -> Box:
        """(start, stop) along each axis."""
        return tuple((o, o + n) for o, n in zip(self.origin, self.shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All tiles of a view in C order; :func:`make_plan` creates it."""

    view: View
    positions: Positions
    """Selected positions of the scan, before binning."""
    frames: int
    """Number of frames in the files."""
    sync_offset: int
    """Frame of the files that belongs to position 0 of the scan."""
    nav_shape: tuple[int, ...]
    """Navigation shape of the view, after binning."""
    sig_shape: tuple[int, ...]
    """Signal shape of the view, after binning."""
    sig_box: Box
    """Selected pixels of a frame, before binning."""
    dtype: np.dtype[Any]
    """Dtype of the tiles, little endian."""
    tile_shape: tuple[int, ...]
    """Shape of every tile that does not touch the far border."""

    # Derived once, because every tile needs them.
    shape: tuple[int, ...] = field(init=False)
    """Shape of the whole view."""
    grid: tuple[int, ...] = field(init=False)
    """Number of tiles along each axis."""
    tiles: int = field(init=False)
    """Number of tiles."""
    nbytes: int = field(init=False)
    """Total size of all tiles in bytes."""
    complete: bool = field(init=False)
    """Whether every selected position has a frame."""

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

    def for_reader(self) -> Plan:
        """Return the same plan for one reader, with positions of its own if it keeps some."""
        positions = self.positions.for_reader()
        return self if positions is self.positions else replace(self, positions=positions)

    def tile(self, index: int) -> Tile:
        """Compute a tile from its index.

        Raises:
            SelectionError: the plan has no such tile.
        """
        if not 0 <= index < self.tiles:
            raise SelectionError(f"there is no tile {index}: the plan has {self.tiles}")
        # Plain integers: numpy's call overhead would exceed the cost of a small tile.
        rest, origin = index, []
        for length, parts, size in zip(
            reversed(self.shape), reversed(self.grid), reversed(self.tile_shape), strict=True
        ):
            rest, i = divmod(rest, parts)
            origin.append((i * size, min(size, length - i * size)))
        origin.reverse()
        # Earlier tiles form one slab per axis: as wide as this tile along the axes before it,
        # ``start`` along the axis, and as wide as the whole view along the axes after it.
        before, outer, inner = 0, 1, math.prod(self.shape)
        for (start, size), length in zip(origin, self.shape, strict=True):
            inner //= length
            before += outer * start * inner
            outer *= size
        item = self.dtype.itemsize
        starts, shape = zip(*origin, strict=True)
        return Tile(index, starts, shape, before * item, outer * item)

    def parts(self, tile: Tile) -> Iterator[Tile]:
        """Divide a tile into parts of about 260,000 frames, one after the other in C order.

        Their index and bytes are those of the tile.
        """
        frames = tile.shape[: len(self.nav_shape)]
        most = max(_PART // self.view.bin_nav ** len(frames), 1)
        if math.prod(frames) <= most:
            yield tile
            return
        axis = next(axis for axis, length in enumerate(frames) if length > 1)
        step = max(most // math.prod(frames[axis + 1 :]), 1)
        for begin in range(0, frames[axis], step):
            origin, shape = list(tile.origin), list(tile.shape)
            origin[axis] += begin
            shape[axis] = min(step, frames[axis] - begin)
            yield from self.parts(replace(tile, origin=tuple(origin), shape=tuple(shape)))

    def frames_of(self, tile: Tile) -> Indices:
        """Return the frames of the files that a tile needs.

        Returns:
            Frame indices, shape (frames of the tile, frames summed into each); -1 where a
            position has no frame.
        """
        axes = len(self.nav_shape)
        step = self.view.bin_nav
        box = tile.box[:axes]
        low = tuple(start * step for start, _ in box)
        high = tuple(stop * step for _, stop in box)
        positions = self.positions.box(low, high)
        if step > 1:
            positions = _group(positions, step)
        frames = positions.reshape(math.prod(tile.shape[:axes]), -1)
        if self.sync_offset:
            frames = frames + self.sync_offset
        if not self.complete:
            outside = (frames < 0) | (frames >= self.frames)
            frames = np.where(outside, -1, frames)
        return np.ascontiguousarray(frames)

    def pixels_of(self, tile: Tile) -> Box:
        """Return the pixels of a frame that a tile needs, before binning."""
        step = self.view.bin_sig
        axes = len(self.nav_shape)
        if tile.shape[axes:] == self.sig_shape:
            return self.sig_box
        return tuple(
            (start + step * low, start + step * high)
            for (start, _), (low, high) in zip(self.sig_box, tile.box[axes:], strict=True)
        )

    def table(self) -> dict[str, Indices]:
        """Return the plan as columns: tile, offset, nbytes, and origin and shape per axis."""
        tiles, inner = np.arange(self.tiles), 1
        sizes = np.full(self.tiles, self.dtype.itemsize)
        columns = {"tile": tiles, "offset": sizes, "nbytes": sizes}
        for axis in reversed(range(len(self.grid))):
            origin = tiles // inner
            origin %= self.grid[axis]
            origin *= self.tile_shape[axis]
            shape = np.minimum(self.shape[axis] - origin, self.tile_shape[axis])
            sizes *= shape
            inner *= self.grid[axis]
            columns[f"shape_{axis}"], columns[f"origin_{axis}"] = shape, origin
        columns["offset"] = np.cumsum(sizes)
        columns["offset"] -= sizes
        names = [f"{name}_{axis}" for axis in range(len(self.grid)) for name in ("origin", "shape")]
        return {name: columns[name] for name in ["tile", "offset", "nbytes", *names]}


def _group(box: Indices, step: int) -> Indices:
    """Reshape axes (a, b) to (a/step, b/step, step, step): the last ones are to be summed."""
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
    """Plan the tiles of a view.

    Args:
        recording: description of the files.
        view: the request.
        nav_shape: shape of the scan; None for that of the files.
        sync_offset: frame at which the scan begins; None for that of the files. The view's
            own sync_offset overrides both.

    Raises:
        SelectionError: the view selects positions, pixels or frames that do not exist.
        ShapeError: the view's axes, bins or tile_shape do not fit the data.
        CastingError: missing frames cannot be NaN in the requested dtype.
    """
    scan = recording.nav_shape if nav_shape is None else nav_shape
    sync = recording.sync_offset if sync_offset is None else sync_offset
    sync = sync if view.sync_offset is None else view.sync_offset
    positions = resolve(view.select, scan)
    if not -math.prod(scan) < sync < max(recording.frames, 1):
        raise SelectionError(
            f"sync_offset {sync} leaves no position of {list(scan)} with a frame, of"
            f" {recording.frames}"
        )
    if view.missing == "skip":
        positions = present(positions, recording.frames, sync)
    sig_box = _sig_box(view, recording.sig_shape)
    nav = _binned(positions.shape, view.bin_nav, "bin.nav")
    sig = _binned(tuple(b - a for a, b in sig_box), view.bin_sig, "bin.sig")
    dtype = output_dtype(recording.dtype, view)
    if view.tile_shape is not None and len(view.tile_shape) == 1 + len(sig) != len(nav) + len(sig):
        # tile_shape starts with a number of frames, whatever the axes of the scan.
        positions, nav = _flattened(positions, view.bin_nav), (math.prod(nav),)
    summed = view.bin_nav ** len(nav) * view.bin_sig ** len(sig) * recording.dtype.itemsize
    tile_shape = _tile_shape(view, nav, sig, dtype.itemsize, summed)
    return Plan(view, positions, recording.frames, sync, nav, sig, sig_box, dtype, tile_shape)


def _flattened(positions: Positions, bin_nav: int) -> Positions:
    if bin_nav > 1:
        raise ShapeError(
            "a tile_shape that counts frames does not go with bin.nav",
            hint="Give tile_shape one length per axis of the scan and of a frame",
        )
    assert isinstance(positions, Lattice)  # noqa: S101 - all others have one axis
    return Stretch(positions, 0, math.prod(positions.shape))


def _sig_box(view: View, sig_shape: tuple[int, ...]) -> Box:
    if view.sig is None:
        return tuple((0, length) for length in sig_shape)
    if len(view.sig) != len(sig_shape):
        raise ShapeError(
            f"sig is of {len(view.sig)} axes, but a frame has the shape {list(sig_shape)}"
        )
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
                hint=f"Select a multiple of {step}",
            )
    return tuple(length // step for length in shape)


def output_dtype(stored: np.dtype[Any], view: View) -> np.dtype[Any]:
    """Choose the dtype of a view's tiles: the requested one, else one that holds the values.

    Sums of integers default to 4 bytes for values of up to 2 bytes, else to 8 bytes; where missing
    frames are to be NaN, integers become float32, and float64 if they have more than 2 bytes.

    Raises:
        CastingError: missing frames are to be NaN, which the dtype cannot hold.
    """
    if view.dtype is not None:
        dtype = np.dtype(view.dtype)
    elif view.bins and stored.kind in "biu":
        size = 4 if stored.itemsize <= 2 else 8  # noqa: PLR2004
        dtype = np.dtype(f"{'i' if stored.kind == 'i' else 'u'}{size}")
    else:
        dtype = stored
    if view.missing == "nan" and dtype.kind not in "fc":
        if view.dtype is not None:
            hint = f"Leave dtype out, or request '{np.result_type(dtype, np.float32).str}'"
            raise CastingError(f"missing frames cannot be NaN in {dtype.str}", hint=hint)
        dtype = np.result_type(dtype, np.float32)
    return dtype.newbyteorder("<") if dtype.byteorder != "|" else dtype


def _tile_shape(
    view: View, nav: tuple[int, ...], sig: tuple[int, ...], item: int, summed: int
) -> tuple[int, ...]:
    """Choose the shape of a tile whose values have ``item`` bytes, summed from ``summed``."""
    view_shape = nav + sig
    if view.tile_shape is None:
        default = (
            min(TARGET_BYTES, MAX_SUMMED_BYTES // summed * item) if view.bins else TARGET_BYTES
        )
        shape = _negotiate(nav, sig, item, view.target_bytes or default)
    elif len(view.tile_shape) != len(view_shape):
        raise ShapeError(
            f"tile_shape has {len(view.tile_shape)} axes, but the view has {list(view_shape)}",
            hint="Give one length per axis, or a number of frames and a length per axis of a frame",
        )
    else:
        shape = tuple(min(n, length) for n, length in zip(view.tile_shape, view_shape, strict=True))
    if math.prod(shape) * item > MAX_TILE_BYTES:
        raise ShapeError(
            f"a tile of {list(shape)} has {math.prod(shape) * item} bytes,"
            f" more than {MAX_TILE_BYTES}",
            hint="Request smaller tiles; a stream can have any number of them",
        )
    if view.bins and math.prod(shape) * summed > MAX_SUMMED_BYTES:
        raise ShapeError(
            f"a tile of {list(shape)} is summed from {math.prod(shape) * summed} bytes,"
            f" more than {MAX_SUMMED_BYTES}",
            hint="Request smaller tiles or bins; reductions sum any number of frames",
        )
    return shape


def _negotiate(
    nav: tuple[int, ...], sig: tuple[int, ...], item: int, target: int
) -> tuple[int, ...]:
    """Fill a tile with whole frames, evenly split; with whole rows if no frame fits."""
    room = max(min(target, MAX_TILE_BYTES) // item, 1)
    shape: list[int] = []
    for length in reversed(nav + sig):
        parts = -(-length // room)
        size = -(-length // parts)
        shape.append(size)
        room = max(room // size, 1) if size == length else 1
    return tuple(reversed(shape))
