"""Ranges of files: sorting, joining and grouping them, and copying them out of a buffer.

A tile needs many small ranges of bytes, often thousands of rows from one file. One system call
per range would cost far more than the data. Ranges are therefore prepared in steps, mostly
array operations on the four columns of :class:`Ranges`:

1. :func:`arrange` sorts them by file and position and joins those that are adjacent in both the
   file and the output.
2. :meth:`Ranges.groups` puts neighbours with small gaps together: reading a gap is cheaper than
   another call.
3. :meth:`Ranges.loads` covers each group with *hulls* of whole pages, as direct I/O requires,
   and fills a buffer with as many hulls as fit.
4. :func:`gather` copies the ranges from the buffer to the output, with a single strided copy
   where the ranges are regular::

    file      |    ####   ###       |            #####      |
              |<---- hull 0 ---->|        |<-- hull 1 -->|
    buffer    |    ####   ###    |            #####      |
    output    |#######|#####|
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Indices, Mask, Octets
from ._kernels.correct import are_delivered, copy, farthest

_FEW = 4
"""Minimum number of ranges for which looking for a pattern pays off."""
_SHORT = 1024
"""Length in bytes up to which fancy indexing beats a loop over ranges."""


class Hull(NamedTuple):
    """A stretch of whole pages in a file that contains some ranges."""

    begin: int
    """Offset in the file."""
    length: int
    """Bytes from ``begin`` to the end of the last range."""
    at: int
    """Offset in the buffer."""
    size: int
    """Length rounded up to whole pages."""
    first: int
    """Index of the first range."""
    last: int
    """Index after the last range."""


class Piece(NamedTuple):
    """A stretch of a file that contains some ranges."""

    file: int
    start: int
    stop: int
    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Hulls that fill a buffer, and the ranges they contain."""

    hulls: list[Hull]
    ranges: Ranges

    @property
    def positions(self) -> Indices:
        """Offset of each range in the buffer."""
        shifts = np.array([hull.at - hull.begin for hull in self.hulls], np.int64)
        positions: Indices = np.repeat(shifts, [hull.last - hull.first for hull in self.hulls])
        return positions + self.ranges.starts


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Non-empty ranges ``starts`` to ``stops`` of ``files``, bound for ``offsets`` of an output.

    All columns are int64 of shape (k,), sorted by file, then by start.
    """

    files: Indices
    starts: Indices
    stops: Indices
    offsets: Indices

    @property
    def end(self) -> int:
        """Largest byte offset at which a range ends."""
        return int(self.stops[0] if len(self.stops) == 1 else self.stops.max())

    def part(self, first: int, last: int) -> Ranges:
        """Return ranges ``first`` up to, but not including, ``last``."""
        part = slice(first, last)
        return Ranges(self.files[part], self.starts[part], self.stops[part], self.offsets[part])

    def by_file(self) -> list[tuple[int, Ranges]]:
        """Group the ranges by file."""
        if len(self.files) and self.files[0] == self.files[-1]:
            return [(int(self.files[0]), self)]
        ends = _ends(self.files[1:] != self.files[:-1], len(self.files))
        return [(int(self.files[a]), self.part(a, b)) for a, b in ends]

    def groups(self, gap: int) -> list[tuple[int, int]]:
        """Group neighbours of one file at most ``gap`` bytes apart.

        Returns:
            Index of the first range of each group, and the index after its last one.
        """
        if len(self.files) == 1:
            return [(0, 1)]
        between = self.starts[1:] - self.stops[:-1]
        breaks = (between > gap) | (between < 0) | (self.files[1:] != self.files[:-1])
        return _ends(breaks, len(self.files))

    def loads(self, gap: int, capacity: int, page: int) -> Iterator[Load]:
        """Cover the ranges with hulls of whole pages; yield as many as fit into the buffer.

        Args:
            gap: maximum gap in bytes between two ranges of a hull.
            capacity: size of the buffer in bytes.
            page: size of a page in bytes.
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

    def pieces(self, gap: int, size: int) -> Iterator[Piece]:
        """Cover the ranges with stretches of files, to be read whole, each by a request.

        Args:
            gap: maximum gap in bytes between two ranges of a stretch.
            size: maximum length of a stretch in bytes.
        """
        ranges = self.cut(size)
        files, starts, stops = (a.tolist() for a in (ranges.files, ranges.starts, ranges.stops))
        for group, end in ranges.groups(gap):
            first = group
            while first < end:
                last = bisect_right(stops, starts[first] + size, first, end)
                part = ranges.part(first, last)
                yield Piece(files[first], starts[first], stops[last - 1], part)
                first = last

    def cut(self, size: int) -> Ranges:
        """Split ranges longer than ``size`` bytes into pieces of at most that length."""
        lengths = self.stops - self.starts
        if not len(lengths) or lengths.max() <= size:
            return self
        counts = -(-lengths // size)
        index = np.repeat(np.arange(len(lengths)), counts)
        skip = size * (np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts))
        starts = self.starts[index] + skip
        stops = np.minimum(starts + size, self.stops[index])
        return Ranges(self.files[index], starts, stops, self.offsets[index] + skip)


def _ends(breaks: Mask, count: int) -> list[tuple[int, int]]:
    cuts = [0, *(np.flatnonzero(breaks) + 1).tolist(), count]
    return list(pairwise(cuts)) if count else []


def arrange(
    files: Indices, starts: Indices, stops: Indices, offsets: Indices, size: int | None
) -> Ranges:
    """Sort ranges, drop empty ones, and join those adjacent in both file and output.

    Args:
        files: index of the file of each range, shape (k,); likewise the others.
        starts: offset of the first byte of each range.
        stops: offset after the last byte of each range.
        offsets: offset of each range in the output.
        size: size of the output in bytes; None for no limit.

    Raises:
        ValueError: a range is negative or does not fit the output, or the arrays differ in
            length.
    """
    arrays = [np.asarray(a, np.int64) for a in (files, starts, stops, offsets)]
    files, starts, stops, offsets = arrays
    if not len(files) == len(starts) == len(stops) == len(offsets):
        raise ValueError("files, starts, stops and offsets have different lengths")
    if not len(files):
        return Ranges(files, starts, stops, offsets)
    lengths = stops - starts
    if lengths.min() < 0 or starts.min() < 0 or offsets.min() < 0:
        raise ValueError("a range begins before 0 or after its end")
    if size is not None and (offsets + lengths).max() > size:
        raise ValueError("a range does not fit its output")
    if not lengths.min():
        arrays = [a[lengths > 0] for a in arrays]
        files, starts, stops, offsets = arrays
    if len(files) == 1:
        return Ranges(files, starts, stops, offsets)
    same_file = files[1:] == files[:-1]
    if not np.all((files[1:] > files[:-1]) | (same_file & (starts[1:] >= starts[:-1]))):
        order = np.lexsort((starts, files))
        files, starts, stops, offsets = (a[order] for a in arrays)
        same_file = files[1:] == files[:-1]
    adjacent = (starts[1:] == stops[:-1]) & (offsets[1:] - offsets[:-1] == (stops - starts)[:-1])
    if not (joined := same_file & adjacent).any():
        return Ranges(files, starts, stops, offsets)
    first = np.concatenate(([True], ~joined))
    last = np.concatenate((~joined, [True]))
    return Ranges(files[first], starts[first], stops[last], offsets[first])


def last_start(starts: Indices) -> int:
    """Return the largest start, or -1 if one is negative.

    Args:
        starts: offset of the first byte of each range, contiguous, shape (k,).
    """
    return farthest(starts)


def are_present(present: Array, starts: Indices, page_bits: int, size: int) -> bool:
    """Whether the pages of ranges are all present.

    Args:
        present: how many pages are present from each one on, int32, one axis.
        starts: offset of the first byte of each range, none beyond the pages, contiguous.
        page_bits: binary logarithm of the size of a page in bytes.
        size: bytes of each range, at least 1.
    """
    return are_delivered(present, starts, page_bits, size)


def copy_rows(source: Octets, positions: Indices, out: Octets) -> None:
    """Copy ranges of one length from a read-only buffer to rows.

    Args:
        source: the buffer, read-only.
        positions: offset of each range in the buffer, shape (k,).
        out: shape (k, length), contiguous.
    """
    copy(source, positions, out.shape[1], out[:, None, :])


def gather(source: Octets, positions: Indices, ranges: Ranges, out: Octets) -> None:
    """Copy ranges from a buffer to the output.

    Args:
        source: the buffer.
        positions: offset of each range in the buffer.
        ranges: the ranges.
        out: the output.
    """
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


def _step(offsets: Indices) -> int | None:
    """Return the constant distance between offsets, or None."""
    steps = np.diff(offsets)
    return int(steps[0]) if (steps == steps[0]).all() else None


def _rows(octets: Octets, first: int, count: int, step: int, length: int) -> Octets:
    """View ``count`` rows of ``length`` bytes, ``step`` apart; they may overlap."""
    return np.ndarray((count, length), np.uint8, octets.data, first, (step, 1))
