"""Flatten a ragged field: its elements become items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Indices
from ..budget import Scope, current
from ..errors import StateError, TransformError
from .base import Block, Counting, Indexed, Ragged, Schema, Stage, State, check_state, in_order
from .columns import block_bytes, check_positions, concatenate, take_block, take_column
from .options import refuse

_MAX_READ = 65_536
"""Most items read at a time."""
_STRETCH = 65_536
"""Elements looked up at a time, which takes 24 bytes for each."""
_READ_BYTES = 16 << 20
"""Bytes of items read at a time; a single item may be larger."""


def _ragged_field(inner: Stage, field: str) -> Schema:
    """The schema with one ragged field flattened."""
    if not any(candidate.name == field and candidate.ragged for candidate in inner.schema):
        hint = "Only ragged fields can be flattened."
        raise refuse(f"there is no ragged field {field!r}", hint, "field")
    return tuple(replace(f, ragged=False) if f.name == field else f for f in inner.schema)


class SelectMany(Counting):
    """The elements of a ragged field one by one, each beside the other fields of its item.

    The state is the position among the elements of the current item, and the state of the
    inner stage before that item. So resuming reads at most one item again.

    Args:
        inner: stage the items come from.
        field: the ragged field.

    Raises:
        PipelineError: there is no such ragged field.
    """

    def __init__(self, inner: Stage, *, field: str) -> None:
        self.inner = in_order(inner)
        self._field = field
        self.schema = _ragged_field(inner, field)
        self.initial = (0, *self.inner.initial)
        self.endless = self.inner.endless

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items until they have ``count`` elements.

        Raises:
            StateError: it cannot be a state of this stage.
        """
        check_state(state, self.initial)
        start, at = state[0], state[1:]
        parts: list[Block] = []
        missing, size = count, 1
        while missing:
            with Scope():
                block, after = self.inner.take(at, size)
                column = block[self._field]
                if not isinstance(column, Ragged) or not len(column):
                    at = after
                    break
                ends = column.offsets[1:] - column.offsets[0] - start
                if start and ends[0] <= 0:
                    raise StateError(f"element {start} of an item that has fewer")
                count = min(missing, max(int(ends[-1]), 0))
                part = self._elements(block, column, start, count)
                complete = int(np.searchsorted(ends, count, side="right"))
                if complete < len(ends):
                    before = int(ends[complete - 1]) if complete else -start
                    start, at = count - before, self.inner.skip(at, complete)
                else:
                    start, at = 0, after
                most = max(_READ_BYTES * len(column) // (block_bytes(block) + 1), 1)
            parts.append(part)
            current().hold("select_many", block_bytes(part))
            missing -= count
            size = min(2 * size, most, _MAX_READ)
        return concatenate(parts, self.schema), (start, *at)

    def _elements(self, block: Block, column: Ragged, begin: int, count: int) -> Block:
        """Elements ``begin`` to ``begin + count`` of a block, which lie together in its column."""
        first = int(column.offsets[0]) + begin
        values = column.values[first : first + count].copy()
        others = {name: other for name, other in block.items() if name != self._field}
        if not others:
            return {self._field: values}
        parts = []
        for start in range(first, first + count, _STRETCH):
            elements = np.arange(start, min(start + _STRETCH, first + count))
            outer = np.searchsorted(column.offsets, elements, side="right") - 1
            parts.append(take_block(others, outer))
        schema = tuple(field for field in self.schema if field.name != self._field)
        columns = {self._field: values, **concatenate(parts, schema)}
        return {name: columns[name] for name in block}


class SelectManyIndexed(Indexed):
    """:class:`SelectMany` with random access, for items of known lengths.

    Args:
        inner: stage the items come from.
        field: the ragged field.
        offsets: shape (items + 1,), elements before each item, then the total.

    Raises:
        PipelineError: there is no such ragged field, or the offsets do not fit the items.
    """

    def __init__(self, inner: Indexed, *, field: str, offsets: Indices) -> None:
        self.inner = inner
        self._field = field
        self.schema = _ragged_field(inner, field)
        if inner.length is None or len(offsets) != inner.length + 1 or offsets[0] != 0:
            raise refuse(f"{len(offsets)} offsets for {inner.length} items", option="offsets")
        self._offsets = offsets
        self.length = int(self._offsets[-1])

    def at(self, positions: Indices) -> Block:
        """Read elements; an item is read once, however many of its elements are asked for.

        Raises:
            PositionError: a position is out of range.
            TransformError: an item has another length than ``offsets`` says.
        """
        positions = check_positions(positions, self.length)
        outer = np.searchsorted(self._offsets, positions, side="right") - 1
        items, back = np.unique(outer, return_inverse=True)
        block = self.inner.at(items)
        column = block[self._field]
        if not isinstance(column, Ragged) or not np.array_equal(
            np.diff(column.offsets), self._offsets[items + 1] - self._offsets[items]
        ):
            raise TransformError(f"items of {self._field!r} have other lengths than declared")
        elements = positions - self._offsets[outer] + column.offsets[:-1][back]
        values = column.values[elements]
        return {
            name: values if name == self._field else take_column(other, back)
            for name, other in block.items()
        }


def select_many(inner: Stage, *, field: str, offsets: Indices | None = None) -> Stage:
    """Flatten a ragged field, with random access if offsets are given."""
    if isinstance(inner, Indexed) and offsets is not None:
        return SelectManyIndexed(inner, field=field, offsets=offsets)
    return SelectMany(inner, field=field)
