"""Items that lie in segments, each decoded as a whole: loss streams, tables, lines of text.

A *segment* is some neighbouring items that are read and decoded together: a stretch of a
file, a row group, a record batch. Where each begins is the sparse index that makes any
item reachable.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from core.arrays import Indices
from core.errors import OptionError
from core.iterate.base import Block, Column, Indexed, Ragged, Schema
from core.iterate.columns import check_positions, concatenate, empty_block, take_block

KEPT_BYTES = 16 << 20
"""Bytes of decoded segments that a source keeps; the one in use is always kept."""


def column_bytes(column: Column) -> int:
    """Memory of a column."""
    if isinstance(column, Ragged):
        return column.values.nbytes + column.offsets.nbytes
    return column.nbytes


def block_bytes(block: Block) -> int:
    """Memory of a block."""
    return sum(column_bytes(column) for column in block.values())


def select_fields(schema: Schema, fields: Sequence[str] | None) -> Schema:
    """The fields of a schema that are wanted, in the order of the schema.

    Raises:
        OptionError: one is not there, or none is wanted.
    """
    if fields is None:
        return schema
    names = [field.name for field in schema]
    unknown = [name for name in fields if name not in names]
    if unknown or not fields:
        what = f"there is no field {unknown[0]!r}" if unknown else "no field is wanted"
        raise OptionError(what, hint=f"There are {', '.join(names)}")
    return tuple(field for field in schema if field.name in fields)


class Segmented(Indexed):
    """Items in segments; any thread may ask, also at once.

    Args:
        schema: fields of the items.
        starts: first item of each segment and, last, the number of items; shape (k + 1,).
        load: decodes a segment by its number: all its items, with exactly these fields.
    """

    def __init__(
        self, schema: Schema, starts: Indices, load: Callable[[int], Mapping[str, Column]]
    ) -> None:
        self._schema = schema
        self._starts = starts
        self._load = load
        self._kept: OrderedDict[int, tuple[Block, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def schema(self) -> Schema:
        """Fields of its items."""
        return self._schema

    @property
    def length(self) -> int:
        """Number of items."""
        return int(self._starts[-1])

    def at(self, positions: Indices) -> Block:
        """The items at these positions, in this order.

        Raises:
            PositionError: one lies outside.
            ServiceError, CoreError: why they cannot be read.
        """
        positions = check_positions(positions, self.length)
        if not len(positions):
            return empty_block(self._schema)
        which = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(which, kind="stable")
        segments, begins = np.unique(which[order], return_index=True)
        edges = [*begins.tolist(), len(order)]
        parts = []
        for number, segment in enumerate(segments.tolist()):
            rows = positions[order[edges[number] : edges[number + 1]]] - self._starts[segment]
            parts.append(take_block(self._segment(segment), rows))
        joined = concatenate(parts, self._schema)
        if len(segments) == 1 or bool(np.all(order[1:] > order[:-1])):
            return joined
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return take_block(joined, back)

    def _segment(self, number: int) -> Block:
        with self._lock:
            known = self._kept.get(number)
            if known is not None:
                self._kept.move_to_end(number)
                return known[0]
        block = self._load(number)
        size = block_bytes(block)
        with self._lock:
            if number not in self._kept:
                self._kept[number] = block, size
                self._bytes += size
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return block


class ItemRange(Indexed):
    """Items start to stop of a source, from 0.

    Args:
        inner: the source.
        start: the first item.
        stop: the one behind the last.

    Raises:
        OptionError: they are not there.
    """

    def __init__(self, inner: Indexed, start: int, stop: int) -> None:
        length = inner.length
        if not 0 <= start <= stop or (length is not None and stop > length):
            raise OptionError(
                f"items {start} to {stop} are wanted, but there are {length}", hint="See range"
            )
        self._inner = inner
        self._start = start
        self._length = stop - start

    @property
    def schema(self) -> Schema:
        """Fields of its items."""
        return self._inner.schema

    @property
    def length(self) -> int:
        """Number of items."""
        return self._length

    def at(self, positions: Indices) -> Block:
        """The items at these positions.

        Raises:
            PositionError: one lies outside.
        """
        return self._inner.at(check_positions(positions, self._length) + self._start)
