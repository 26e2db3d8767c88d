"""The interface of item formats, and random access to items of variable size.

Items of loss streams, tables and lines of text cannot be found by arithmetic, and an index of
every item of a large file would itself be large. So the index is sparse. A *segment* is a range
of neighbouring items that is read and decoded as a whole (some 64 KiB of a loss stream, a row
group, a record batch), and only the first item of each segment is recorded:

    items     0 1 2 3 4 5 6 7 8 9          number of items: 10
    segments  ├─────┤ ├─────┤ ├─┤
    starts    0       4       8   10

To read items at arbitrary positions, here 9, 0, 5:

    1. find the segment of each by bisection of ``starts``       2, 0, 1
    2. group the positions by segment, in the order of segments  [0] [5] [9]
    3. decode each segment once, and take the rows               0, 5, 9
    4. permute the rows back to the requested order              9, 0, 5

A request for a shuffled batch thus decodes each segment at most once, and a request in
order skips step 4. Decoded segments are cached up to a number of bytes, since readers in
order, and blockwise shuffles, come back to the same ones.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from app.engine.request_budget import keep_for_request
from core.arrays import Indices
from core.budget import current
from core.errors import OptionError, names_hint
from core.iterate.base import Block, Column, Indexed, Schema
from core.iterate.columns import block_bytes, check_positions, empty_block, gather, take_block
from core.losses.indexing import Points


class Items(Protocol):
    """The items in the files of a dataset; several threads may read at once."""

    @property
    def units(self) -> tuple[str, ...]:
        """What an item can be, such as an event or a block; the default first."""

    def schema(self, unit: str) -> Schema:
        """Return all fields of an item."""

    def count(self, unit: str) -> int:
        """Return the number of items."""

    def source(self, unit: str, fields: Sequence[str] | None) -> Indexed:
        """Return a source of the items.

        Args:
            unit: what an item is.
            fields: names of the requested fields; None for all.

        Raises:
            OptionError: there is no such field.
        """

    def stops(self, unit: str, count: int) -> tuple[int, ...]:
        """Return the leading bytes of each file that the first ``count`` items depend on.

        Later files, which these items do not need, are left out.
        """

    def describe(self) -> Mapping[str, Any]:
        """Return further metadata, as JSON values."""


CACHED_BYTES = 16 << 20
"""Bytes of decoded segments that a source caches, besides the latest, which always stays."""
_INDEX_BYTES = 5 * 8
"""Memory of an item while those of several segments are put in order."""


def select_fields(schema: Schema, fields: Sequence[str] | None) -> Schema:
    """Select fields of a schema, in the order of the schema.

    Args:
        schema: the schema.
        fields: names of the fields; None for all.

    Raises:
        OptionError: there is no such field, or the list is empty.
    """
    if fields is None:
        return schema
    names = [field.name for field in schema]
    for name in fields or [""]:
        if name not in names:
            message = f"there is no field {name!r}" if name else "no field is selected"
            raise OptionError(message, hint=names_hint(name, names), field="fields")
    return tuple(field for field in schema if field.name in fields)


class Segmented(Indexed):
    """Items in segments; several threads may read at once.

    Args:
        schema: fields of the items.
        starts: index of the first item of each segment, then the number of items; int64,
            shape (k + 1,).
        load: decodes all items of a segment, given its number, with exactly these fields.
    """

    def __init__(
        self, schema: Schema, starts: Indices, load: Callable[[int], Mapping[str, Column]]
    ) -> None:
        self.schema = schema
        self._starts = starts
        self._load = load
        self._cached: OrderedDict[int, tuple[Block, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.length = int(self._starts[-1])

    def at(self, positions: Indices) -> Block:
        """Read the items at ``positions``, in this order.

        Raises:
            PositionError: a position lies outside of the source.
            CoreError, ServiceError: the items cannot be read.
        """
        positions = check_positions(positions, self.length)
        if not len(positions):
            return empty_block(self.schema)
        ends = np.array([positions.min(), positions.max()])
        first, last = (np.searchsorted(self._starts, ends, side="right") - 1).tolist()
        if first == last:
            start = int(self._starts[first])
            current().hold("items", positions.nbytes)
            # Of a million positions a further array is 8 MiB.
            return take_block(self._segment(first), positions - start if start else positions)
        return self._of_several(positions)

    def _of_several(self, positions: Indices) -> Block:
        current().hold("items", _INDEX_BYTES * len(positions))
        owners = np.searchsorted(self._starts, positions, side="right") - 1

        def read(segment: int, places: Indices | slice) -> Block:
            return take_block(self._segment(segment), positions[places] - self._starts[segment])

        return gather(owners, read, self.schema)

    def _segment(self, number: int) -> Block:
        with self._lock:
            entry = self._cached.get(number)
            if entry is not None:
                self._cached.move_to_end(number)
                return entry[0]
        # Without the lock: two threads may decode the same segment, but none waits.
        block = self._load(number)
        size = block_bytes(block)
        with self._lock:
            before = self._bytes
            if number not in self._cached:
                self._cached[number] = block, size
                self._bytes += size
            while self._bytes > CACHED_BYTES and len(self._cached) > 1:
                self._bytes -= self._cached.popitem(last=False)[1][1]
            grown = self._bytes - before
        if grown > 0:
            keep_for_request("items", grown)
        return block


class Pointed(ABC):
    """Items of files of which points are known: an offset for every so many items."""

    @abstractmethod
    def schema(self, unit: str) -> Schema:
        """Return the fields of an item."""

    @abstractmethod
    def _points(self, unit: str) -> Sequence[Points]:
        """Return the points of each file."""

    @abstractmethod
    def _load(self, unit: str, file: int, number: int) -> Mapping[str, Column]:
        """Decode the items from a point of a file to the next one."""

    @abstractmethod
    def _stop(self, unit: str, file: int, number: int, more: int) -> int:
        """Return the leading bytes that ``more`` items after a point of a file depend on."""

    def count(self, unit: str) -> int:
        """Return the number of items in all files."""
        return sum(points.numbers[-1] for points in self._points(unit))

    def source(self, unit: str, fields: Sequence[str] | None) -> Indexed:
        """Return a source of the items.

        Raises:
            OptionError: there is no such field.
        """
        schema = select_fields(self.schema(unit), fields)
        segments: list[tuple[int, int]] = []
        starts = [0]
        for file, points in enumerate(self._points(unit)):
            segments += [(file, number) for number in range(len(points.numbers) - 1)]
            first = starts[-1]
            starts += [first + number for number in points.numbers[1:]]

        def load(number: int) -> dict[str, Column]:
            columns = self._load(unit, *segments[number])
            return {field.name: columns[field.name] for field in schema}

        return Segmented(schema, np.array(starts, np.int64), load)

    def stops(self, unit: str, count: int) -> tuple[int, ...]:
        """Return the leading bytes of each file that the first ``count`` items depend on."""
        stops: list[int] = []
        for file, points in enumerate(self._points(unit)):
            share = min(count, points.numbers[-1])
            number = int(np.searchsorted(points.numbers, share, side="right")) - 1
            stops.append(self._stop(unit, file, number, share - points.numbers[number]))
            count -= share
            if count <= 0:
                break
        return tuple(stops)


class ItemRange(Indexed):
    """Items ``start`` to ``stop`` of a source, renumbered from 0.

    Args:
        inner: the source.
        start: index of the first item.
        stop: index after the last item.

    Raises:
        OptionError: the source has no such range.
    """

    def __init__(self, inner: Indexed, start: int, stop: int) -> None:
        length = inner.length
        if not 0 <= start <= stop or (length is not None and stop > length):
            raise OptionError(
                f"the range {start} to {stop} does not fit a source of {length} items",
                hint="Correct range",
            )
        self._inner = inner
        self._start = start
        self.length = stop - start
        self.schema = self._inner.schema

    def at(self, positions: Indices) -> Block:
        """Read the items at ``positions``, in this order.

        Raises:
            PositionError: a position lies outside of the range.
        """
        return self._inner.at(check_positions(positions, self.length) + self._start)
