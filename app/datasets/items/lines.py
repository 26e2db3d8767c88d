"""Lines of text files as items, without their terminators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.arrays import Indices
from core.budget import check_room
from core.errors import FormatError, LimitError
from core.iterate.base import Column, Field, Ragged, Schema
from core.iterate.columns import offsets_of
from core.losses.indexing import Points

from ..files.file_set import FileSet
from ..files.seekable import Cursors, Plain, Seekable, open_seekable
from .segments import Pointed

MAX_LINE = 64 << 20
"""Maximum length of a line in bytes."""
MAX_POINTS = 1 << 18
"""Maximum number of index points per file; a longer file has them further apart."""
_SPACING = {"plain": 16 << 10, "gzip": 256 << 10, "zstd": 256 << 10}
_NEWLINE, _RETURN = 10, 13
_INDEXED = 64 << 10
"""Bytes of a file whose lines are indexed at once."""
_COPIES = 4
"""Arrays as large as a segment that splitting it into lines takes."""


class LineItems(Pointed):
    """Lines of one or more text files, in the order of the files.

    A line ends with a line feed, optionally after a carriage return. The last line of a
    file may lack it, but not in a growing file, where such a line may be incomplete.

    Args:
        files: plain, gzip or zstd files, detected by content; a growing one must be plain.
        cursors: keep where readers of compressed files stopped.

    Raises:
        FormatError: a file is damaged, or compressed and growing.
        LimitError: a line is longer than ``MAX_LINE``.
    """

    units = ("line",)

    def __init__(self, files: FileSet, cursors: Cursors | None = None) -> None:
        self._files = files
        last = len(files) - 1
        self._texts: list[Seekable] = []
        self._lines: list[Points] = []
        for file in range(len(files)):
            text = open_seekable(files, file, cursors)
            growing = files.growing and file == last
            if growing and not isinstance(text, Plain):
                raise FormatError(
                    f"a growing file cannot be compressed with {text.coding}",
                    hint="Register it once it is complete",
                    source=files.name(file),
                )
            points = _Points(files.name(file), _SPACING[text.coding])
            for piece in _cut(text.scan()):
                points.add(piece)
            self._texts.append(text)
            self._lines.append(points.finish(growing=growing))

    def schema(self, unit: str) -> Schema:
        """Return the single field ``text``: the bytes of a line, uint8, ragged."""
        assert unit in self.units  # noqa: S101 - there is no other
        return (Field("text", np.dtype(np.uint8), ragged=True),)

    def _points(self, unit: str) -> Sequence[Points]:
        assert unit in self.units  # noqa: S101 - there is no other
        return self._lines

    def _load(self, unit: str, file: int, number: int) -> Mapping[str, Column]:
        start, stop = self._points(unit)[file].offsets[number : number + 2]
        check_room("lines", _COPIES * (stop - start))
        return {"text": lines_of(self._texts[file].read(start, stop))}

    def _stop(self, unit: str, file: int, number: int, more: int) -> int:
        points, text = self._points(unit)[file], self._texts[file]
        if not isinstance(text, Plain):
            return self._files.size(file)
        start = points.offsets[number]
        if not more:
            return start
        ends = _newlines(text.read(start, points.offsets[number + 1]))
        return start + int(ends[more - 1]) + 1

    def describe(self) -> Mapping[str, Any]:
        """Return the number of lines, the codings and the cost of a seek."""
        return {
            "lines": self.count("line"),
            "codings": [text.coding for text in self._texts],
            # Maximum number of decoded bytes read to reach a line.
            "seek_bytes": max(
                max(np.diff(points.offsets).tolist(), default=0)
                if isinstance(text, Plain)
                else -(-text.size // text.checkpoints)
                for text, points in zip(self._texts, self._lines, strict=True)
            ),
        }


class _Points:
    """The sparse index of the lines of one file.

    Attributes:
        offsets: byte at which each segment begins, then the end of the last line.
        numbers: index of the first line of each segment, then the number of lines.
    """

    def __init__(self, source: str, spacing: int) -> None:
        self.offsets = [0]
        self.numbers = [0]
        self._source = source
        self._spacing = spacing
        self._at = 0
        self._count = 0
        self._begin = 0
        """Offset of the current, incomplete line."""

    def add(self, piece: bytes) -> None:
        """Index the next bytes of the file."""
        begins = _newlines(piece) + (self._at + 1)
        if len(begins):
            previous = np.r_[self._begin, begins[:-1]]
            longest = int(np.argmax(begins - previous))
            self._check_length(int(previous[longest]), int(begins[longest]), longest)
            due = (begins // self._spacing) > (previous // self._spacing)
            for index in np.flatnonzero(due).tolist():
                self.offsets.append(int(begins[index]))
                self.numbers.append(self._count + index + 1)
            self._count += len(begins)
            self._begin = int(begins[-1])
        self._at += len(piece)
        self._check_length(self._begin, self._at, 0)
        while len(self.offsets) > MAX_POINTS:
            del self.offsets[1::2], self.numbers[1::2]
            self._spacing *= 2

    def _check_length(self, start: int, stop: int, number: int) -> None:
        """Check the length of line ``number`` after those counted so far."""
        if stop - start > MAX_LINE:
            raise LimitError(
                f"line {self._count + number + 1} is longer than {MAX_LINE} bytes",
                limit="line",
                allowed=MAX_LINE,
                offset=start,
                hint="Check that the file is text",
                source=self._source,
            )

    def finish(self, *, growing: bool) -> Points:
        """Return the index, complete at the end of the file."""
        end = self._begin
        if self._at > self._begin and not growing:
            end = self._at
            self._count += 1
        if self.numbers[-1] == self._count:
            self.offsets[-1] = end
        else:
            self.offsets.append(end)
            self.numbers.append(self._count)
        return Points(self.offsets, self.numbers)


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut pieces up: of short lines, what is known of them takes forty times as much."""
    for piece in pieces:
        for start in range(0, len(piece), _INDEXED):
            yield piece[start : start + _INDEXED]


def _newlines(octets: bytes) -> Indices:
    return np.flatnonzero(np.frombuffer(octets, np.uint8) == _NEWLINE)


def lines_of(octets: bytes) -> Ragged:
    """Split bytes that begin with a line into lines without terminators."""
    values = np.frombuffer(octets, np.uint8)
    ends = np.flatnonzero(values == _NEWLINE)
    if len(values) and values[-1] != _NEWLINE:
        ends = np.r_[ends, len(values)]
    starts = np.r_[0, ends[:-1] + 1] if len(ends) else ends
    keep = np.ones(len(values), np.bool_)
    keep[ends[ends < len(values)]] = False
    returned = ends[(ends > starts) & (ends < len(values))]
    returned = returned[values[returned - 1] == _RETURN]
    keep[returned - 1] = False
    lengths = ends - starts
    lengths[np.isin(ends, returned, assume_unique=True)] -= 1
    return Ragged(values[keep], offsets_of(lengths))
