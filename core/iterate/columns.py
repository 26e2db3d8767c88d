"""Take, slice and join columns and blocks, plain or ragged; a pool of such results to reuse."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from ..arrays import Array, Indices
from ..budget import current
from ..errors import PipelineError, PositionError
from .base import Block, Column, Field, Ragged, Schema

T = TypeVar("T")

_COLUMN = (
    "A column is a numpy array with the items along its first axis, such as np.array([1, 2, 3])."
    " Items of different lengths, such as text, are a Ragged: see core.iterate.collate.ragged."
)
_STRETCH = 1 << 16
"""Elements that are gathered at once: their indices take more memory than they do."""
_INDEX_BYTES = 3 * 8
"""Memory of the indices of an element while it is gathered."""


def field_of(name: str, column: Column) -> Field:
    """Describe the items of a column as a field.

    Raises:
        PipelineError: the column is no array, has no axis of items, or its items are Python
            objects.
    """
    ragged = isinstance(column, Ragged)
    values = values_of(column)
    is_array = isinstance(values, np.ndarray)
    if not is_array or values.ndim == 0 or values.dtype.hasobject:
        found = f"{values.dtype} of shape {values.shape}" if is_array else type(values).__name__
        raise PipelineError(f"column {name!r} is {found}", field=name, hint=_COLUMN)
    return Field(name, values.dtype, values.shape[1:], ragged)


def values_of(column: Column) -> Array:
    """The values of a column, those of all items one after the other if it is ragged."""
    return column.values if isinstance(column, Ragged) else column


def schema_of(block: Mapping[str, Column]) -> Schema:
    """The fields of a block, in the order of its columns.

    Raises:
        PipelineError: a name is no text, or a column no array of items.
    """
    names: Iterable[object] = block
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise PipelineError(f"a field is named {wrong[0]!r}", hint="Give its name as text.")
    return tuple(field_of(name, column) for name, column in block.items())


def block_length(block: Block) -> int:
    """Number of items; 0 if there are no columns."""
    for column in block.values():
        return len(column)
    return 0


def block_bytes(block: Block) -> int:
    """Bytes of the columns of a block, offsets of ragged columns included."""
    total = 0
    for column in block.values():
        if isinstance(column, Ragged):
            total += column.values.nbytes + column.offsets.nbytes
        else:
            total += column.nbytes
    return total


def take_column(column: Column, indices: Indices) -> Column:
    """Select items of a column by index, shape (k,), each from 0 to its length - 1.

    Raises:
        WorkStoppedError: they do not fit into the budget, or the work was cancelled.
    """
    if not isinstance(column, Ragged):
        nbytes = len(indices) * (column.nbytes // len(column)) if len(column) else 0
        if nbytes > _STRETCH:
            current().hold("items", nbytes)
        return column[indices]
    starts = column.offsets[indices]
    offsets = offsets_of(column.offsets[indices + 1] - starts)
    return Ragged(_gathered(column.values, starts, offsets), offsets)


def _gathered(values: Array, starts: Indices, offsets: Indices) -> Array:
    """Elements of items that begin at ``starts``, as long as ``offsets`` has them."""
    total = int(offsets[-1])
    if total <= _STRETCH:
        return values[_elements(starts, offsets)]
    budget = current()
    shape = (total, *values.shape[1:])
    size = values.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    of_stretch = _STRETCH * (_INDEX_BYTES + size)
    budget.hold("items", total * size + of_stretch)
    out = np.empty(shape, values.dtype)
    first, count = 0, len(starts)
    while first < count:
        budget.check("items")
        end = int(np.searchsorted(offsets, offsets[first] + _STRETCH, side="right")) - 1
        last = max(end, first + 1)
        target = out[offsets[first] : offsets[last]]
        if last == first + 1:
            target[...] = values[starts[first] : starts[first] + len(target)]
        else:
            within = offsets[first : last + 1] - offsets[first]
            target[...] = values[_elements(starts[first:last], within)]
        first = last
    budget.release(of_stretch)
    return out


def _elements(starts: Indices, offsets: Indices) -> Indices:
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))


def take_block(block: Block, indices: Indices) -> Block:
    """Select items of a block by index, shape (k,)."""
    return {name: take_column(column, indices) for name, column in block.items()}


def slice_block(block: Block, start: int, stop: int) -> Block:
    """Items start to stop - 1 of a block; their values are not copied."""
    return {name: _slice(column, start, stop) for name, column in block.items()}


def _slice(column: Column, start: int, stop: int) -> Column:
    if not isinstance(column, Ragged):
        return column[start:stop]
    offsets = column.offsets[start : stop + 1]
    return Ragged(column.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def offsets_of(lengths: Indices) -> Indices:
    """Offsets of items of these lengths, shape (k + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concatenate(blocks: Sequence[Block], schema: Schema) -> Block:
    """Join blocks of one schema into one.

    Raises:
        BudgetExceededError: the result does not fit into the budget.
    """
    if len(blocks) == 1:
        return blocks[0]
    current().hold("items", sum(map(block_bytes, blocks)))
    return {field.name: _joined([b[field.name] for b in blocks], field) for field in schema}


def _joined(columns: Sequence[Column], field: Field) -> Column:
    if not field.ragged:
        parts = [column for column in columns if not isinstance(column, Ragged)]
        if not parts:
            return np.empty((0, *field.shape), field.dtype)
        return np.concatenate(parts)
    ragged = [column for column in columns if isinstance(column, Ragged)]
    lengths = [np.diff(column.offsets) for column in ragged]
    values = [column.values for column in ragged]
    return Ragged(
        np.concatenate([np.empty((0, *field.shape), field.dtype), *values]).astype(
            field.dtype, copy=False
        ),
        offsets_of(np.concatenate([np.empty(0, np.int64), *lengths])),
    )


def gather(owners: Indices, read: Callable[[int, Indices | slice], Block], schema: Schema) -> Block:
    """Read items of several owners, those of each at once, in the order they are asked for.

    Args:
        owners: the owner of each item, shape (n,).
        read: returns the items of an owner, given their places in ``owners``.
        schema: fields of the items.
    """
    if not len(owners):
        return empty_block(schema)
    is_ascending = bool(np.all(owners[1:] >= owners[:-1]))
    order = None if is_ascending else np.argsort(owners, kind="stable")
    if order is not None:
        owners = owners[order]
    edges = [*np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]]).tolist(), len(owners)]
    joined = concatenate(
        [
            read(int(owners[a]), slice(a, b) if order is None else order[a:b])
            for a, b in pairwise(edges)
        ],
        schema,
    )
    if order is None:
        return joined
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return take_block(joined, back)


def empty_block(schema: Schema) -> Block:
    """A block of no items."""
    return concatenate([], schema)


def check_positions(positions: Indices, length: int | None) -> Indices:
    """Return positions in the form kernels take: contiguous, writable, int64.

    Raises:
        PositionError: a position is out of range.
    """
    positions = np.require(positions, np.int64, ["C", "W"])
    if not len(positions):
        return positions
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or (length is not None and high >= length):
        there_are = "only positions from 0" if length is None else f"{length} items"
        wrong = low if low < 0 else high
        raise PositionError(f"position {wrong} is out of range: there are {there_are}")
    return positions


def unique_names(names: Iterable[str], field: str, hint: str | None = None) -> None:
    """Check that names differ.

    Raises:
        PipelineError: a name occurs twice.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise PipelineError(f"the name {name!r} occurs twice", field=field, hint=hint)
        seen.add(name)


class ReusePool(Generic[T]):
    """At most ``limit`` intermediate results for later calls; the oldest are dropped first.

    A call takes an entry out of the pool and gives it back when done. So two threads never work
    in the same arrays, and an empty pool costs time but changes no result.
    """

    def __init__(self, limit: int) -> None:
        self._entries: deque[T] = deque(maxlen=limit)

    def take(self, usable: Callable[[T], bool]) -> T | None:
        """Remove and return a usable entry, or None."""
        for _ in range(len(self._entries)):
            try:
                entry = self._entries.pop()
            except IndexError:  # another thread took the last
                return None
            if usable(entry):
                return entry
            self._entries.appendleft(entry)
        return None

    def kept(self) -> list[T]:
        """All entries that are in the pool now."""
        return list(self._entries)

    def give(self, entry: T) -> None:
        """Return an entry to the pool."""
        self._entries.append(entry)
