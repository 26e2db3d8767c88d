"""Where the values of tiles go."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..transport.frames import Array
from .plan import Box, Plan


class Memory(Protocol):
    """Provides arrays for tiles."""

    def prepare(self, box: Box) -> Array:
        """Contiguous memory for a tile that is about to arrive."""

    def settle(self, box: Box, values: Array) -> Array:
        """The array to hand out for a tile that arrived undamaged."""


class OwnMemory:
    """Each tile has an array of its own."""

    def __init__(self, plan: Plan) -> None:
        self._dtype = plan.dtype

    def prepare(self, box: Box) -> Array:
        """A new array."""
        return np.empty(box.shape, self._dtype)

    def settle(self, box: Box, values: Array) -> Array:  # noqa: ARG002 - of Memory
        """The same array."""
        return values


class OneMemory:
    """All tiles share one buffer, each overwriting the one before."""

    def __init__(self, plan: Plan) -> None:
        self._octets = np.empty(plan.largest, np.uint8)
        self._dtype = plan.dtype

    def prepare(self, box: Box) -> Array:
        """The buffer, as an array of the tile's shape."""
        return self._octets[: box.nbytes].view(self._dtype).reshape(box.shape)

    def settle(self, box: Box, values: Array) -> Array:  # noqa: ARG002 - of Memory
        """The same array."""
        return values


class InPlace:
    """Each tile goes to its place in an array of the whole view.

    Args:
        plan: of the view.
        out: the array; after a failure it may hold a damaged tile.

    Raises:
        ValueError: it has another shape or dtype, or is read-only.
    """

    def __init__(self, plan: Plan, out: Array) -> None:
        if out.shape != plan.shape or out.dtype != plan.dtype:
            raise ValueError(
                f"out is {out.dtype.str} {list(out.shape)}, "
                f"but the view is {plan.dtype.str} {list(plan.shape)}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        self._out = out
        self._plan = plan
        self._one: OneMemory | None = None

    def prepare(self, box: Box) -> Array:
        """The place itself if it is contiguous, else a buffer."""
        place = self._out[box.slices]
        if place.flags.c_contiguous:
            return place
        if self._one is None:
            self._one = OneMemory(self._plan)
        return self._one.prepare(box)

    def settle(self, box: Box, values: Array) -> Array:
        """The place, filled."""
        place = self._out[box.slices]
        if not place.flags.c_contiguous:
            place[...] = values
        return place


def memory_for(plan: Plan, out: Array | None) -> Memory:
    """Memory in an array of the whole view, or an array per tile.

    Raises:
        ValueError: the array does not fit.
    """
    return OwnMemory(plan) if out is None else InPlace(plan, out)
