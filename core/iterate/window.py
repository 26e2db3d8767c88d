"""Items together with those that follow them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Indices
from ..errors import PipelineError
from .base import Block, Column, Indexed, Ragged, Schema
from .columns import check_positions, offsets_of, take_block
from .options import one_of, whole
from .sources import MAX_ITEMS

MAX_WIDTH = 2**20


class Window(Indexed):
    """Windows of ``width`` items, each beginning ``stride`` items after the one before.

    Every field gets an axis of ``width`` in front of those of an item. With partial
    windows kept, every position that a stride reaches begins one; those at the end are
    shorter, so the fields are ragged.

    Args:
        inner: what it takes items from, by position; its fields are not ragged.
        width: items of a window.
        stride: items from one window's beginning to the next.
        partial: ``drop`` or ``keep`` windows that the end cuts.

    Raises:
        PipelineError: a width, stride or partial that is none, a window wider than the
            inner stage, or ragged items.
    """

    def __init__(
        self, inner: Indexed, *, width: int, stride: int = 1, partial: str = "drop"
    ) -> None:
        self._width = whole("width", width, 1, MAX_WIDTH)
        self._stride = whole("stride", stride, 1, MAX_ITEMS)
        self._keep = one_of("partial", partial, ("drop", "keep")) == "keep"
        n = inner.length
        if n is not None and width > n:
            raise PipelineError(
                f"a window of {width} items over {n} items",
                field="width",
                hint="A window is at most as wide as what it moves over.",
            )
        if any(field.ragged for field in inner.schema):
            raise PipelineError("windows of items of differing length", field="width")
        self.inner = inner

    @property
    def schema(self) -> Schema:
        """The fields with another axis in front; ragged along it if windows may be cut."""
        if self._keep:
            return tuple(replace(field, ragged=True) for field in self.inner.schema)
        width = self._width
        return tuple(replace(field, shape=(width, *field.shape)) for field in self.inner.schema)

    @property
    def length(self) -> int | None:
        """Number of windows; None if the inner stage has no end."""
        n = self.inner.length
        if n is None:
            return None
        if self._keep:
            return -(-n // self._stride)
        return (n - self._width) // self._stride + 1

    def at(self, positions: Indices) -> Block:
        """The windows at these positions; items that several have are read once."""
        positions = check_positions(positions, self.length)
        starts = positions * self._stride
        n = self.inner.length
        if not self._keep or n is None:
            indices = (starts[:, None] + np.arange(self._width)).reshape(-1)
            block = self._read(indices)
            shape = (len(positions), self._width)
            return {name: self._windows(block[name], shape, starts) for name in block}
        lengths = np.minimum(self._width, n - starts)
        offsets = offsets_of(lengths)
        indices = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        block = self._read(indices)
        return {name: Ragged(_values(column), offsets) for name, column in block.items()}

    def _windows(self, column: Column, shape: tuple[int, int], starts: Indices) -> Column:
        values = _values(column)
        if self._keep:  # no window of a stage without end is cut
            return Ragged(values, np.arange(len(starts) + 1, dtype=np.int64) * self._width)
        return values.reshape(*shape, *values.shape[1:])

    def _read(self, indices: Indices) -> Block:
        if not len(indices):
            return self.inner.at(indices)
        low, high = int(indices.min()), int(indices.max())
        if high - low < len(indices):
            return take_block(self.inner.at(np.arange(low, high + 1)), indices - low)
        return self.inner.at(indices)


def _values(column: Column) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return column.values if isinstance(column, Ragged) else column
