"""TVIPS (EM-MENU): a series header in the first file, a header before every frame."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..recording import Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
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
"""Fields of the series header, little-endian int32; the rest of it is unused."""

FRAME_HEADER_V1 = 12
COUNTER = struct.Struct("<I")
SCAN_TAGS = struct.Struct("<ff")
SCAN_TAGS_AT = 68
"""Byte of a version 2 frame header at which the scan position (x, y) begins."""

SEARCHED = 1 << 14
"""Maximum number of frames searched for the first two rows of the scan."""

_SUFFIX = re.compile(r"_([0-9]{3,})\.tvips$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Series:
    """A valid series header."""

    values: dict[str, int]
    frame_header: int
    frame_bytes: int
    pixels: np.dtype[np.unsignedinteger]

    @property
    def stride(self) -> int:
        """Bytes between the beginnings of two frame headers."""
        return self.frame_header + self.frame_bytes


def _series(source: Source, file: int) -> Series:
    """Read the series header.

    Raises:
        FormatError: a size, version, bit depth or frame header is invalid.
    """
    head = source.exactly(file, 0, SERIES_HEADER, "the series header")
    values = dict(zip(FIELDS, struct.unpack_from(f"<{len(FIELDS)}i", head), strict=True))

    def invalid(field: str, known: str) -> Exception:
        return source.fault(
            file,
            f"{field} is {values[field]} in the series header; {known}",
            offset=4 * FIELDS.index(field),
            hint="Check that this is the first file of the series, with number 000",
        )

    if values["size"] != SERIES_HEADER:
        raise invalid("size", "it is always 256")
    if values["version"] not in {1, 2}:
        raise invalid("version", "1 and 2 are supported")
    if values["bits_per_pixel"] not in {8, 16}:
        raise invalid("bits_per_pixel", "8 and 16 are supported")
    for field in ("width", "height"):
        if values[field] < 1:
            raise invalid(field, "it must be at least 1")
    header = FRAME_HEADER_V1
    if values["version"] > 1:
        header = values["frame_header"]
        if not FRAME_HEADER_V1 <= header < 1 << 20:
            raise invalid("frame_header", "it must be from 12 bytes to 1 MiB")
    size = values["bits_per_pixel"] // 8
    pixels = values["width"] * values["height"]
    return Series(values, header, pixels * size, np.dtype(f"<u{size}"))


def _number(name: str) -> int | None:
    match = _SUFFIX.search(name)
    return None if match is None else int(match[1])


def _check_numbers(source: Source) -> None:
    """Refuse a series with missing files."""
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
    """Frame headers, by the index of the frame in the recording."""

    def __init__(self, source: Source, extents: Sequence[Extent], series: Series) -> None:
        self._source = source
        self._extents = extents
        self._size = series.frame_header
        self.count = sum(extent.frames for extent in extents)

    def header(self, index: int, stop: int) -> bytes:
        """Return the first ``stop`` bytes of a frame header."""
        for extent in self._extents:
            if index < extent.frames:
                offset = extent.offset - self._size + index * extent.stride
                return self._source.exactly(extent.file, offset, stop, "a frame header")
            index -= extent.frames
        raise IndexError(index)

    def position(self, index: int) -> tuple[int, int]:
        """Row and column of the scan at a frame; -1 where the tag is no number of one."""
        header = self.header(index, SCAN_TAGS_AT + SCAN_TAGS.size)
        x, y = SCAN_TAGS.unpack_from(header, SCAN_TAGS_AT)
        row, column = (int(v) if 0 <= v < SEARCHED else -1 for v in (y, x))
        return row, column

    def counter(self, index: int) -> int:
        """Return the number the camera gave to a frame."""
        return int(COUNTER.unpack(self.header(index, COUNTER.size))[0])


def find_scan(frames: _Frames) -> tuple[int, int | None] | None:
    """Find the beginning of the scan: where column 1 of row 0 follows column 0.

    Returns:
        The frame at which the scan begins, and its number of columns (None if no row ends
        among the frames searched); None if there is no scan.
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
    """The files of one series, with suffixes _000, _001 and so on."""

    name = "tvips"
    extensions = ("tvips",)
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the series header, which only the first file has."""
        if len(head) < SERIES_HEADER:
            return False
        size, version, width, height, bits = struct.unpack_from("<5i", head)
        return (
            (size, version) in {(SERIES_HEADER, 1), (SERIES_HEADER, 2)}
            and min(width, height) > 0
            and bits in {8, 16}
        )

    def find(self, source: Source, hints: Hints) -> Found:
        """Read the series header, and search the frame headers for the scan.

        Raises:
            FormatError: a frame is truncated, a header is invalid, or a file is missing.
        """
        series = _series(source, 0)
        _check_numbers(source)
        extents = []
        for index in range(len(source.files)):
            start = 0 if index else SERIES_HEADER
            growing = hints.growing and index == len(source.files) - 1
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
        return Found(
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


def _gaps(headers: _Frames, extents: Sequence[Extent], source: Source) -> list[str]:
    """Return notes on files whose frames do not continue those of the previous file.

    Counters that are all 0 are accepted: some writers do not set them.
    """
    notes, first, previous = [], 0, None
    for extent in extents:
        if not extent.frames:
            continue
        counter = headers.counter(first)
        if previous is not None and counter != previous + 1 and (counter or previous):
            notes.append(
                f"{source.files[extent.file].name}: its frames are counted from {counter}, "
                f"those of the previous file end with {previous}"
            )
        first += extent.frames
        previous = headers.counter(first - 1)
    return notes
