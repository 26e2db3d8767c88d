"""Which tiles a view has: their order, borders and bytes. No input or output.

The service says the shape of a view and of its tiles; everything else follows, so that
every tile that comes is known beforehand, and one that is not what it should be is noticed
before there is memory for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError

Array = npt.NDArray[Any]

_MOST_AXES = 32
_MOST_ITEMS = 1 << 62
_MOST_TILE_BYTES = 1 << 30
"""Services make tiles of at most 64 MiB."""


@dataclass(frozen=True, slots=True)
class Box:
    """A tile before its values are there.

    Attributes:
        index: place in the order.
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
        """Its place in an array of the whole view."""
        pairs = zip(self.origin, self.shape, strict=True)
        return tuple(slice(start, start + length) for start, length in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A tile of a view.

    Attributes:
        index: place in the order.
        origin: of its first value, along each axis of the view.
        shape: of its values.
        data: its values.
        token: what goes on behind it.
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
        nav_shape: axes of the scan, as far as the view keeps them.
        sig_shape: axes of a frame.
        dtype: of the values.
        tile_shape: of every tile but those at the borders.
    """

    nav_shape: tuple[int, ...]
    sig_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tile_shape: tuple[int, ...]

    @classmethod
    def parse(cls, about: Mapping[str, Any]) -> Plan:
        """The plan of a service's answer.

        Raises:
            ProtocolError: it is none, or contradicts itself.
        """
        nav, sig, tile = (
            _lengths(about, name) for name in ("nav_shape", "sig_shape", "tile_shape")
        )
        plan = cls(nav, sig, _dtype(about.get("dtype")), tile)
        if len(tile) != len(plan.shape) or any(
            n > length for n, length in zip(tile, plan.shape, strict=True)
        ):
            raise ProtocolError(f"tiles of {list(tile)} do not fit into {list(plan.shape)}")
        if math.prod(tile) * plan.dtype.itemsize > _MOST_TILE_BYTES:
            raise ProtocolError(f"tiles of {list(tile)} are larger than any service makes them")
        told = {name: about.get(name) for name in ("shape", "grid", "tiles", "nbytes")}
        found = {
            "shape": list(plan.shape),
            "grid": list(plan.grid),
            "tiles": plan.tiles,
            "nbytes": plan.nbytes,
        }
        if told != found:
            raise ProtocolError(f"the plan contradicts itself: {told} where {found} follows")
        return plan

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole view."""
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
        """A tile by its place in the order.

        Raises:
            IndexError: there is none.
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
        before, outer, behind = 0, 1, math.prod(whole)
        for start, length, end in zip(origin, shape, whole, strict=True):
            behind //= end
            before += outer * start * behind
            outer *= length
        item = self.dtype.itemsize
        return Box(index, tuple(origin), tuple(shape), before * item, outer * item)

    def boxes(self) -> Iterator[Box]:
        """All tiles in order."""
        return map(self.box, range(self.tiles))

    def runs(self, box: Box) -> Iterator[tuple[int, int]]:
        """Where a tile's values lie in an array of the whole view: stretches without gaps.

        Yields:
            Offset of the stretch in the array, and its length; both in bytes. The values
            of the tile fill them in order.
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
        behind = sum(o * p for o, p in zip(box.origin[split:], pitches[split:], strict=True))
        outer = [
            range(start * pitch, (start + count) * pitch, pitch)
            for start, count, pitch in zip(
                box.origin[:split], box.shape[:split], pitches[:split], strict=True
            )
        ]
        for steps in itertools.product(*outer):
            yield sum(steps) + behind, length

    def stretches(self, parts: int) -> list[range]:
        """Tiles cut into at most so many stretches of like length, for readers in parallel."""
        parts = max(1, min(parts, self.tiles))
        edges = [self.tiles * k // parts for k in range(parts + 1)]
        return [range(a, b) for a, b in itertools.pairwise(edges)]


def _lengths(about: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = about.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > _MOST_AXES:
        raise ProtocolError(f"the plan has no {name}")
    if not all(isinstance(n, int) and n > 0 for n in value) or math.prod(value) > _MOST_ITEMS:
        raise ProtocolError(f"the plan's {name} cannot be {value}")
    return tuple(value)


def _dtype(text: Any) -> np.dtype[Any]:  # noqa: ANN401 - JSON
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in "biufc" or dtype.subdtype is not None:
        raise ProtocolError(f"the plan's values are of no type: {str(text)[:80]}")
    return dtype
