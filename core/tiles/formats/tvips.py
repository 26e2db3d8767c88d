"""TVIPS (EM-MENU): a series header in the first file, a header before every frame."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from ..recording import Extent, FileInfo, Hints
from .files import Check, Files, Values, fields_of, packed
from .format import Format, Found

HEADER = packed("""
    size <i4  version <i4  width <i4  height <i4  bits_per_pixel <i4  offset_x <i4  offset_y <i4
    binning_x <i4  binning_y <i4  pixel_size_nm <i4  high_tension_kv <i4  magnification <i4
    frame_header <i4  unused V204
""")
"""The series header."""
FRAME_HEADER_V1 = 12
COUNTER = struct.Struct("<I")
SCAN_TAGS = struct.Struct("<ff")
SCAN_TAGS_AT = 68
"""Byte of a version 2 frame header at which the scan position (x, y) begins."""

SEARCHED = 1 << 14
"""Maximum number of frames searched for the first two rows of the scan."""

_SUFFIX = re.compile(r"_([0-9]{3,})\.tvips$", re.IGNORECASE)


def _check(field: str, holds: Callable[[Values], bool], known: str) -> Check:
    return Check(
        field,
        holds,
        f"{field} is {{{field}}} in the series header; {known}",
        "Check that this is the first file of the series, with number 000",
    )


CHECKS = (
    _check("size", lambda v: v["size"] == HEADER.itemsize, "it is always 256"),
    _check("version", lambda v: v["version"] in {1, 2}, "1 and 2 are supported"),
    _check("bits_per_pixel", lambda v: v["bits_per_pixel"] in {8, 16}, "8 and 16 are supported"),
    _check("width", lambda v: v["width"] > 0, "it must be at least 1"),
    _check("height", lambda v: v["height"] > 0, "it must be at least 1"),
    _check(
        "frame_header",
        lambda v: v["version"] == 1 or FRAME_HEADER_V1 <= v["frame_header"] < 1 << 20,
        "it must be from 12 bytes to 1 MiB",
    ),
)


def _number(name: str) -> int | None:
    match = _SUFFIX.search(name)
    return None if match is None else int(match[1])


def _check_numbers(files: Files) -> None:
    """Refuse a series with missing files."""
    if len(files.frames) == 1 and _number(files.first.name) is None:
        return
    for index, file in enumerate(files.frames):
        if _number(file.name) != index:
            raise file.fault(
                f"file {index} of a series must have the number {index:03}",
                hint="Add the missing files, and leave out those of other series",
            )


class _Frames:
    """Frame headers, by the index of the frame in the recording."""

    def __init__(self, files: Files, extents: Sequence[Extent], size: int) -> None:
        self._files = files
        self._extents = extents
        self._size = size
        self.count = sum(extent.frames for extent in extents)

    def header(self, index: int, stop: int) -> bytes:
        """Return the first ``stop`` bytes of a frame header."""
        for file, extent in zip(self._files.frames, self._extents, strict=True):
            if index < extent.frames:
                offset = extent.offset - self._size + index * extent.stride
                return file.exactly(offset, stop, "a frame header")
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
    numbered = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the series header, which only the first file has."""
        return len(head) >= HEADER.itemsize and all(
            check.holds(fields_of(head, HEADER)) for check in CHECKS[:5]
        )

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the series header, and search the frame headers for the scan.

        Raises:
            FormatError: a frame is truncated, a header is invalid, or a file is missing.
        """
        values = files.first.record(HEADER, 0, "the series header", CHECKS)
        del values["unused"]
        _check_numbers(files)
        tagged = values["version"] > 1
        header = values["frame_header"] if tagged else FRAME_HEADER_V1
        stored = np.dtype(f"<u{values['bits_per_pixel'] // 8}")
        stride = header + values["width"] * values["height"] * stored.itemsize
        extents = [
            file.extent(0 if index else HEADER.itemsize, stride, header=header)
            for index, file in enumerate(files.frames)
        ]
        headers = _Frames(files, extents, header)
        _note_gaps(headers, extents, files)
        tagged = tagged and header >= SCAN_TAGS_AT + SCAN_TAGS.size
        scan = find_scan(headers) if tagged else None
        nav_shape, sync_offset = None, 0
        if scan is not None:
            sync_offset, columns = scan
            if columns is not None and headers.count - sync_offset >= columns:
                nav_shape = ((headers.count - sync_offset) // columns, columns)
        return Found(
            extents=extents,
            sig_shape=(values["height"], values["width"]),
            stored=stored,
            nav_shape=nav_shape,
            file_header=HEADER.itemsize,
            frame_header=header,
            sync_offset=sync_offset,
            metadata=values,
        )


def _note_gaps(headers: _Frames, extents: Sequence[Extent], files: Files) -> None:
    """Note files whose frames do not continue those of the previous file.

    Counters that are all 0 are accepted: some writers do not set them.
    """
    first, previous = 0, None
    for file, extent in zip(files.frames, extents, strict=True):
        if not extent.frames:
            continue
        counter = headers.counter(first)
        if previous is not None and counter != previous + 1 and (counter or previous):
            files.notes.append(
                f"{file.name}: its frames are counted from {counter}, "
                f"those of the previous file end with {previous}"
            )
        first += extent.frames
        previous = headers.counter(first - 1)
