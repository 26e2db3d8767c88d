"""Many ranges of files: put in order, joined, grouped, and gathered from a buffer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .buffers import Octets

Indices = npt.NDArray[np.int64]

_FEW = 4
"""Pieces that are not worth a look for a pattern."""
_SHORT = 1024
"""Bytes of a piece up to which an index of them beats a loop over them."""


class Hull(NamedTuple):
    """Whole pages of a file with some ranges on them."""

    begin: int
    """Byte of the file."""
    wanted: int
    """Bytes up to the end of the last range."""
    at: int
    """Where in the buffer it goes."""
    size: int
    """Bytes of the whole pages."""
    first: int
    """Index of the first range."""
    last: int
    """Index behind the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What fits a buffer at a time."""

    hulls: list[Hull]
    ranges: Ranges

    @property
    def positions(self) -> Indices:
        """Where in the buffer each range lies."""
        shifts = np.array([hull.at - hull.begin for hull in self.hulls], np.int64)
        positions: Indices = np.repeat(shifts, [hull.last - hull.first for hull in self.hulls])
        return positions + self.ranges.starts


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Bytes ``starts`` to ``stops`` of ``files``, for ``offsets`` of an output; none empty.

    In the order of files, then starts.
    """

    files: Indices
    starts: Indices
    stops: Indices
    offsets: Indices

    @property
    def end(self) -> int:
        """Byte behind the last that is wanted."""
        return int(self.stops[0] if len(self.stops) == 1 else self.stops.max())

    def part(self, first: int, last: int) -> Ranges:
        """Some of them."""
        some = slice(first, last)
        return Ranges(self.files[some], self.starts[some], self.stops[some], self.offsets[some])

    def by_file(self) -> list[tuple[int, Ranges]]:
        """Those of each file."""
        if len(self.files) and self.files[0] == self.files[-1]:
            return [(int(self.files[0]), self)]
        ends = _ends(self.files[1:] != self.files[:-1], len(self.files))
        return [(int(self.files[a]), self.part(a, b)) for a, b in ends]

    def groups(self, gap: int) -> list[tuple[int, int]]:
        """First and last of neighbours in one file with no more than a gap between them."""
        if len(self.files) == 1:
            return [(0, 1)]
        between = self.starts[1:] - self.stops[:-1]
        apart = (between > gap) | (between < 0) | (self.files[1:] != self.files[:-1])
        return _ends(apart, len(self.files))

    def portions(self, size: int) -> list[tuple[int, int]]:
        """First and last of successive ranges with about this many bytes in all."""
        total = np.cumsum(self.stops - self.starts)
        number = (total - 1) // size
        return _ends(number[1:] != number[:-1], len(total))

    def loads(self, gap: int, capacity: int, page: int) -> Iterator[Load]:
        """Whole pages with all ranges on them, as many at a time as a buffer holds.

        Args:
            gap: bytes between two ranges that are loaded rather than skipped.
            capacity: bytes of the buffer.
            page: bytes of a page.
        """
        ranges = self.cut(capacity - 2 * page)
        starts, stops = ranges.starts.tolist(), ranges.stops.tolist()
        hulls: list[Hull] = []
        used = 0
        for group, end in ranges.groups(gap):
            first = group
            while first < end:
                begin = starts[first] // page * page
                last = end
                if stops[end - 1] - begin > capacity:
                    last = bisect_right(stops, begin + capacity, first, end)
                size = -(-(stops[last - 1] - begin) // page) * page
                if used + size > capacity:
                    yield Load(hulls, ranges.part(hulls[0].first, hulls[-1].last))
                    hulls, used = [], 0
                hulls.append(Hull(begin, stops[last - 1] - begin, used, size, first, last))
                used += size
                first = last
        if hulls:
            yield Load(hulls, ranges.part(hulls[0].first, hulls[-1].last))

    def cut(self, size: int) -> Ranges:
        """The same in pieces that are not longer than a size."""
        lengths = self.stops - self.starts
        if not len(lengths) or lengths.max() <= size:
            return self
        counts = -(-lengths // size)
        index = np.repeat(np.arange(len(lengths)), counts)
        skip = size * (np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts))
        starts = self.starts[index] + skip
        stops = np.minimum(starts + size, self.stops[index])
        return Ranges(self.files[index], starts, stops, self.offsets[index] + skip)


def _ends(apart: npt.NDArray[np.bool_], count: int) -> list[tuple[int, int]]:
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), count]
    return list(pairwise(cuts)) if count else []


def arrange(
    files: Indices, starts: Indices, stops: Indices, offsets: Indices, size: int | None
) -> Ranges:
    """Ranges in order, those joined that lie one behind the other on both sides.

    Args:
        files: of which file.
        starts: first byte of each.
        stops: byte behind each.
        offsets: where each goes.
        size: bytes of the output; None if there is none.

    Raises:
        ValueError: a range that runs backwards, or out of its output.
    """
    arrays = [np.asarray(a, np.int64) for a in (files, starts, stops, offsets)]
    files, starts, stops, offsets = arrays
    if not len(files) == len(starts) == len(stops) == len(offsets):
        raise ValueError("files, starts, stops and offsets of different lengths")
    if not len(files):
        return Ranges(files, starts, stops, offsets)
    lengths = stops - starts
    if lengths.min() < 0 or starts.min() < 0 or offsets.min() < 0:
        raise ValueError("a range that begins before 0 or behind its end")
    if size is not None and (offsets + lengths).max() > size:
        raise ValueError("a range that does not fit its output")
    if not lengths.min():
        arrays = [a[lengths > 0] for a in arrays]
        files, starts, stops, offsets = arrays
    if len(files) == 1:
        return Ranges(files, starts, stops, offsets)
    same = files[1:] == files[:-1]
    if not np.all((files[1:] > files[:-1]) | (same & (starts[1:] >= starts[:-1]))):
        order = np.lexsort((starts, files))
        files, starts, stops, offsets = (a[order] for a in arrays)
        same = files[1:] == files[:-1]
    behind = (starts[1:] == stops[:-1]) & (offsets[1:] - offsets[:-1] == (stops - starts)[:-1])
    if not (joined := same & behind).any():
        return Ranges(files, starts, stops, offsets)
    first = np.concatenate(([True], ~joined))
    last = np.concatenate((~joined, [True]))
    return Ranges(files[first], starts[first], stops[last], offsets[first])


def gather(source: Octets, positions: Indices, ranges: Ranges, out: Octets) -> None:
    """Copy ranges that lie at these positions of a buffer to where they are wanted."""
    offsets = ranges.offsets
    lengths = ranges.stops - ranges.starts
    count = len(positions)
    length = int(lengths[0]) if count else 0
    if count >= _FEW and (lengths == length).all():
        step, pitch = _step(positions), _step(offsets)
        if step is not None and pitch is not None and pitch >= length:
            rows = _rows(source, int(positions[0]), count, step, length)
            _rows(out, int(offsets[0]), count, pitch, length)[...] = rows
            return
        if length <= _SHORT:
            windows = _rows(source, 0, len(source) - length + 1, 1, length)
            _rows(out, 0, len(out) - length + 1, 1, length)[offsets] = windows[positions]
            return
    for position, size, offset in zip(
        positions.tolist(), lengths.tolist(), offsets.tolist(), strict=True
    ):
        out[offset : offset + size] = source[position : position + size]


def _step(places: Indices) -> int | None:
    """The constant distance of places, or None."""
    steps = np.diff(places)
    return int(steps[0]) if (steps == steps[0]).all() else None


def _rows(octets: Octets, first: int, count: int, step: int, length: int) -> Octets:
    """Rows at a constant distance, which may overlap."""
    return np.ndarray((count, length), np.uint8, octets.data, first, (step, 1))
