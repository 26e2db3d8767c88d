"""Sliding windows over items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Indices
from ..budget import current
from ..errors import PipelineError
from .base import Block, Column, Indexed, Ragged
from .columns import block_bytes, check_positions, offsets_of, take_block
from .options import one_of, whole
from .sources import MAX_ITEMS

MAX_WIDTH = 2**20
_INDEX_BYTES = 8


class Window(Indexed):
    """Windows of ``width`` items, ``stride`` items apart.

    Every field gets a leading axis of length ``width``. If partial windows are kept, the
    last ones are shorter, so the fields are ragged instead.

    Args:
        inner: stage the items come from; none of its fields is ragged.
        width: items of a window.
        stride: items from the beginning of one window to the next.
        partial: ``drop`` or ``keep`` windows that reach past the end.

    Raises:
        PipelineError: an option is invalid, a window is wider than the inner stage, or a
            field is ragged.
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
                hint="A window is at most as wide as the stage it moves over.",
            )
        if any(field.ragged for field in inner.schema):
            raise PipelineError("windows of ragged items", field="width")
        self.inner = inner
        fields = inner.schema
        if self._keep:
            # Those at the end may be cut short.
            self.schema = tuple(replace(field, ragged=True) for field in fields)
            self.length = None if n is None else -(-n // stride)
        else:
            self.schema = tuple(replace(field, shape=(width, *field.shape)) for field in fields)
            self.length = None if n is None else (n - width) // stride + 1

    def at(self, positions: Indices) -> Block:
        """Read windows; overlapping windows read the items they share once."""
        positions = check_positions(positions, self.length)
        starts = positions * self._stride
        n = self.inner.length
        # Positions, and their distances from the first.
        current().hold("window", 2 * _INDEX_BYTES * self._width * len(positions))
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
        if self._keep:  # no window of an endless stage is cut
            return Ragged(values, np.arange(len(starts) + 1, dtype=np.int64) * self._width)
        return values.reshape(*shape, *values.shape[1:])

    def _read(self, indices: Indices) -> Block:
        if not len(indices):
            return self.inner.at(indices)
        low, high = int(indices.min()), int(indices.max())
        if high - low < len(indices):
            block = self.inner.at(np.arange(low, high + 1))
            current().hold("window", block_bytes(block) // max(high + 1 - low, 1) * len(indices))
            return take_block(block, indices - low)
        return self.inner.at(indices)


def _values(column: Column) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return column.values if isinstance(column, Ragged) else column
