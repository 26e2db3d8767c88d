"""TVIPS (EM-MENU): a series header in the first file, a header before every frame."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..recording import Extent, FileInfo, Hints, RangeReader, Recording
from .format import Format
from .layout import Found, count_frames, settle
from .source import Source

SERIES_HEADER = 256
FIELDS = (
    "size",
    "version",
    "width",
    "height",
    "bits_per_pixel",
    "offset_x",
    "offset_y",
    "binning_x",
    "binning_y",
    "pixel_size_nm",
    "high_tension_kv",
    "magnification",
    "frame_header",
)
"""Little-endian int32 each; then unused bytes."""

FRAME_HEADER_V1 = 12
COUNTER = struct.Struct("<I")
SCAN_TAGS = struct.Struct("<ff")
SCAN_TAGS_AT = 68
"""Byte of a version 2 frame header at which the scan position begins, as x and y."""

SEARCHED = 1 << 14
"""Frames that are searched for the first two rows of the scan."""

_SUFFIX = re.compile(r"_([0-9]{3,})\.tvips$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Series:
    """The series header, checked."""

    values: dict[str, int]
    frame_header: int
    frame_bytes: int
    pixels: np.dtype[np.unsignedinteger]

    @property
    def stride(self) -> int:
        """Bytes from one frame header to the next."""
        return self.frame_header + self.frame_bytes


def _series(source: Source, file: int) -> Series:
    """Read the series header.

    Raises:
        FormatError: a size, version, depth or frame header that is not possible.
    """
    head = source.exactly(file, 0, SERIES_HEADER, "the series header")
    values = dict(zip(FIELDS, struct.unpack_from(f"<{len(FIELDS)}i", head), strict=True))

    def wrong(field: str, known: str) -> Exception:
        return source.fault(
            file,
            f"{field} is {values[field]} in the series header; {known}",
            offset=4 * FIELDS.index(field),
            hint="Check that this is the first file of the series, with number 000",
        )

    if values["size"] != SERIES_HEADER:
        raise wrong("size", "it is always 256")
    if values["version"] not in {1, 2}:
        raise wrong("version", "1 and 2 are known")
    if values["bits_per_pixel"] not in {8, 16}:
        raise wrong("bits_per_pixel", "8 and 16 are known")
    for field in ("width", "height"):
        if values[field] < 1:
            raise wrong(field, "a frame has pixels")
    header = FRAME_HEADER_V1
    if values["version"] > 1:
        header = values["frame_header"]
        if not FRAME_HEADER_V1 <= header < 1 << 20:
            raise wrong("frame_header", "12 bytes to 1 MiB make sense")
    size = values["bits_per_pixel"] // 8
    pixels = values["width"] * values["height"]
    return Series(values, header, pixels * size, np.dtype(f"<u{size}"))


def _number(name: str) -> int | None:
    match = _SUFFIX.search(name)
    return None if match is None else int(match[1])


def _check_numbers(source: Source) -> None:
    """Refuse a series with a file missing."""
    if len(source.files) == 1 and _number(source.files[0].name) is None:
        return
    for index, file in enumerate(source.files):
        if _number(file.name) != index:
            raise source.fault(
                index,
                f"file {index} of a series must have the number {index:03}",
                hint="Add the missing files, and leave out those of other series",
            )


class _Frames:
    """Headers of the frames of all files, by their index in the recording."""

    def __init__(self, source: Source, extents: Sequence[Extent], series: Series) -> None:
        self._source = source
        self._extents = extents
        self._size = series.frame_header
        self.count = sum(extent.frames for extent in extents)

    def header(self, index: int, stop: int) -> bytes:
        """The first bytes of a frame's header."""
        for extent in self._extents:
            if index < extent.frames:
                at = extent.offset - self._size + index * extent.stride
                return self._source.exactly(extent.file, at, stop, "a frame header")
            index -= extent.frames
        raise IndexError(index)

    def position(self, index: int) -> tuple[int, int]:
        """Row and column of the scan at a frame; -1 where the tag is no number of one."""
        header = self.header(index, SCAN_TAGS_AT + SCAN_TAGS.size)
        x, y = SCAN_TAGS.unpack_from(header, SCAN_TAGS_AT)
        row, column = (int(v) if 0 <= v < SEARCHED else -1 for v in (y, x))
        return row, column

    def counter(self, index: int) -> int:
        """The camera's number of a frame."""
        return int(COUNTER.unpack(self.header(index, COUNTER.size))[0])


def find_scan(frames: _Frames) -> tuple[int, int | None] | None:
    """Frame the scan begins at, and its columns if a row ends; None if no scan is found.

    The scan begins where column 0 of row 0 is followed by column 1.
    """
    limit = min(frames.count, SEARCHED)
    start, widest, at_origin = None, 0, False
    for index in range(limit):
        row, column = frames.position(index)
        if start is None:
            if at_origin and (row, column) == (0, 1):
                start, widest = index - 1, column
            at_origin = at_origin or (row, column) == (0, 0)
        elif column < widest:
            return start, widest + 1
        else:
            widest = column
    return None if start is None else (start, None)


class Tvips(Format):
    """Files with the suffixes _000, _001, ... of one series."""

    name = "tvips"
    extensions = ("tvips",)
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """By the series header, which only the first file has."""
        if len(head) < SERIES_HEADER:
            return False
        size, version, width, height, bits = struct.unpack_from("<5i", head)
        return (
            (size, version) in {(SERIES_HEADER, 1), (SERIES_HEADER, 2)}
            and min(width, height) > 0
            and bits in {8, 16}
        )

    def understand(self, files: Sequence[FileInfo], reader: RangeReader, hints: Hints) -> Recording:
        """Read the series header, and look for the scan in the frames' headers.

        Raises:
            FormatError: a cut frame, a header that cannot be, or a file that is missing.
        """
        source = Source(files, reader)
        series = _series(source, 0)
        _check_numbers(source)
        extents = []
        for index in range(len(files)):
            start = 0 if index else SERIES_HEADER
            growing = hints.growing and index == len(files) - 1
            frames = count_frames(source, index, start, series.stride, growing=growing)
            extents.append(Extent(index, frames, start + series.frame_header, series.stride))
        headers = _Frames(source, extents, series)
        notes = _gaps(headers, extents, source)
        scan = None
        if series.frame_header >= SCAN_TAGS_AT + SCAN_TAGS.size and series.values["version"] > 1:
            scan = find_scan(headers)
        nav_shape, sync_offset = None, 0
        if scan is not None:
            sync_offset, columns = scan
            if columns is not None and headers.count - sync_offset >= columns:
                nav_shape = ((headers.count - sync_offset) // columns, columns)
        found = Found(
            format=self.name,
            extents=extents,
            sig_shape=(series.values["height"], series.values["width"]),
            stored=series.pixels,
            nav_shape=nav_shape,
            file_header=SERIES_HEADER,
            frame_header=series.frame_header,
            sync_offset=sync_offset,
            metadata=dict(series.values),
            notes=notes,
        )
        return settle(source, found, hints)


def _gaps(headers: _Frames, extents: Sequence[Extent], source: Source) -> list[str]:
    """Notes on files whose frames do not follow those of the file before.

    Some writers leave all counters at 0.
    """
    notes, first, before = [], 0, None
    for extent in extents:
        if not extent.frames:
            continue
        counter = headers.counter(first)
        if before is not None and counter != before + 1 and (counter or before):
            notes.append(
                f"{source.files[extent.file].name}: its frames are counted from {counter}, "
                f"those of the file before end with {before}"
            )
        first += extent.frames
        before = headers.counter(first - 1)
    return notes
