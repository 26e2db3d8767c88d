"""The tiles of a view: their order, borders and bytes.

The service tells the shape of a view and of its tiles. Everything else follows from them, so
every tile is known in advance and a wrong one is noticed before it gets memory::

        sig ──▶                  a view of shape (4, 6) in tiles of (2, 4):
    nav ┌───────────┬───────┐
     │  │  tile 0   │tile 1 │    in C order of the grid; those at the borders are smaller.
     ▼  ├───────────┼───────┤    A tile is contiguous on the wire, but a set of *runs*
        │  tile 2   │tile 3 │    in a file or array of the whole view.
        └───────────┴───────┘
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ProtocolError
from ..transport.frames import Array, parse_dtype

_MOST_AXES = 32
_MOST_ITEMS = 1 << 62
_MOST_TILE_BYTES = 1 << 30
"""Services make tiles of at most 64 MiB."""
_MANY = 10_000
"""Tiles that are read without a warning, however small they are."""
_SMALL = 4096
"""Bytes of a tile that takes no longer than a smaller one."""


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a tile.

    Attributes:
        index: in the order of tiles.
        origin: of its first value, along each axis of the view.
        shape: of its values.
        offset: bytes of all tiles before it.
        nbytes: of its values.
    """

    index: int
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def slices(self) -> tuple[slice, ...]:
        """Place of the box in an array of the whole view."""
        pairs = zip(self.origin, self.shape, strict=True)
        return tuple(slice(start, start + length) for start, length in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A tile of a view.

    Attributes:
        index: in the order of tiles.
        origin: of its first value, along each axis of the view.
        shape: of its values.
        data: its values.
        token: to resume with after it.
    """

    index: int
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    data: Array
    token: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All tiles of a view, in C order of their grid: the last axes run fastest.

    Attributes:
        nav_shape: axes of the scan that the view keeps.
        sig_shape: axes of a frame.
        dtype: of the values.
        tile_shape: of every tile but those at the borders.
    """

    nav_shape: tuple[int, ...]
    sig_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tile_shape: tuple[int, ...]

    def warn_of_crumbs(self) -> None:
        """Warn, before all tiles are read, if they are many and so small that it takes long."""
        if self.tiles > _MANY and self.nbytes < self.tiles * _SMALL:
            frame = (1,) * len(self.nav_shape) + self.sig_shape
            text = f"reading {self.tiles:,} tiles of {self.tile_shape} takes long"
            warnings.warn(f"{text}: omit tile_shape, or give one such as {frame}", stacklevel=3)

    @classmethod
    def parse(cls, summary: Mapping[str, Any]) -> Plan:
        """The plan that an answer describes.

        Raises:
            ProtocolError: it describes none, or contradicts itself.
        """
        nav, sig, tile = (
            _lengths(summary, name) for name in ("nav_shape", "sig_shape", "tile_shape")
        )
        plan = cls(nav, sig, _dtype(summary.get("dtype")), tile)
        if len(tile) != len(plan.shape) or any(
            n > length for n, length in zip(tile, plan.shape, strict=True)
        ):
            raise ProtocolError(f"tiles of {list(tile)} do not fit into {list(plan.shape)}")
        if math.prod(tile) * plan.dtype.itemsize > _MOST_TILE_BYTES:
            raise ProtocolError(f"tiles of {list(tile)} are larger than any service makes them")
        claims = {name: summary.get(name) for name in ("shape", "grid", "tiles", "nbytes")}
        derived = {
            "shape": list(plan.shape),
            "grid": list(plan.grid),
            "tiles": plan.tiles,
            "nbytes": plan.nbytes,
        }
        if claims != derived:
            raise ProtocolError(f"the plan contradicts itself: {claims} where {derived} follows")
        return plan

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the whole view."""
        return self.nav_shape + self.sig_shape

    @property
    def grid(self) -> tuple[int, ...]:
        """Tiles along each axis."""
        pairs = zip(self.shape, self.tile_shape, strict=True)
        return tuple(-(-length // size) for length, size in pairs)

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return math.prod(self.grid)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole view."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def largest(self) -> int:
        """Bytes of the largest tile, which is the first."""
        return math.prod(self.tile_shape) * self.dtype.itemsize

    def box(self, index: int) -> Box:
        """The place of a tile.

        Raises:
            IndexError: there is no such tile.
        """
        if not 0 <= index < self.tiles:
            raise IndexError(f"there is no tile {index}: there are {self.tiles}")
        origin, left = [], index
        for parts, length in zip(reversed(self.grid), reversed(self.tile_shape), strict=True):
            left, at = divmod(left, parts)
            origin.append(at * length)
        origin.reverse()
        whole = self.shape
        shape = [
            min(length, end - start)
            for start, length, end in zip(origin, self.tile_shape, whole, strict=True)
        ]
        before, outer, inner = 0, 1, math.prod(whole)
        for start, length, end in zip(origin, shape, whole, strict=True):
            inner //= end
            before += outer * start * inner
            outer *= length
        item = self.dtype.itemsize
        return Box(index, tuple(origin), tuple(shape), before * item, outer * item)

    def boxes(self) -> Iterator[Box]:
        """All tiles in order."""
        return map(self.box, range(self.tiles))

    def runs(self, box: Box) -> Iterator[tuple[int, int]]:
        """The contiguous stretches of a tile in an array of the whole view.

        Yields:
            Offset in the array and length, both in bytes. The values of the tile fill the
            stretches in order.
        """
        whole = self.shape
        inner = len(whole)
        while inner > 0 and box.shape[inner - 1] == whole[inner - 1]:
            inner -= 1
        # Axes from `split` on are one stretch; those before are stepped through.
        split = max(inner - 1, 0)
        item = self.dtype.itemsize
        pitches = [math.prod(whole[axis + 1 :]) * item for axis in range(len(whole))]
        length = math.prod(box.shape[split:]) * item
        offset = sum(o * p for o, p in zip(box.origin[split:], pitches[split:], strict=True))
        outer = [
            range(start * pitch, (start + count) * pitch, pitch)
            for start, count, pitch in zip(
                box.origin[:split], box.shape[:split], pitches[:split], strict=True
            )
        ]
        for steps in itertools.product(*outer):
            yield sum(steps) + offset, length

    def stretches(self, parts: int) -> list[range]:
        """The tiles in at most so many stretches of similar length, for readers in parallel."""
        parts = max(1, min(parts, self.tiles))
        edges = [self.tiles * k // parts for k in range(parts + 1)]
        return [range(a, b) for a, b in itertools.pairwise(edges)]


def _lengths(summary: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = summary.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > _MOST_AXES:
        raise ProtocolError(f"the plan has no {name}")
    if not all(isinstance(n, int) and n > 0 for n in value) or math.prod(value) > _MOST_ITEMS:
        raise ProtocolError(f"the plan's {name} cannot be {value}")
    return tuple(value)


def _dtype(text: Any) -> np.dtype[Any]:  # noqa: ANN401 - JSON
    dtype = parse_dtype(text)
    if dtype.kind not in "biufc":
        raise ProtocolError(f"the plan has no such dtype: {str(text)[:80]}")
    return dtype
