"""MRC2014 and its older variants: a stack of images after a header."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from ..recording import Axis, Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .source import Source, only

HEADER = 1024
MODES = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}
REFUSED = {3: "complex integers", 101: "pixels of four bits"}
MAP_AT = 208
STAMPS = {b"\x44\x44": "<", b"\x44\x41": "<", b"\x11\x11": ">"}
"""Byte order, by the first bytes of the machine stamp."""

IMOD_STAMP = 1146047817
EXTENDED_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class _Header:
    order: str
    columns: int
    rows: int
    sections: int
    mode: int
    grid: tuple[int, int, int]
    cell: tuple[float, float, float]
    extended: int
    imod: tuple[int, int]


def _parse(head: bytes, order: str) -> _Header:
    columns, rows, sections, mode = struct.unpack_from(f"{order}4i", head)
    grid = struct.unpack_from(f"{order}3i", head, 28)
    cell = struct.unpack_from(f"{order}3f", head, 40)
    (extended,) = struct.unpack_from(f"{order}i", head, 92)
    imod = struct.unpack_from(f"{order}2i", head, 152)
    return _Header(order, columns, rows, sections, mode, grid, cell, extended, imod)


def _makes_sense(header: _Header) -> bool:
    return (
        min(header.columns, header.rows, header.sections) > 0
        and header.mode in {*MODES, *REFUSED}
        and 0 <= header.extended < EXTENDED_LIMIT
    )


def _pixels(header: _Header) -> np.dtype[np.generic]:
    code = MODES[header.mode]
    stamp, flags = header.imod
    if header.mode == 0 and stamp == IMOD_STAMP and not flags & 1:
        code = "u1"  # IMOD's bytes are unsigned unless a flag says otherwise
    return np.dtype(header.order + code)


def _size(header: _Header) -> int:
    """Return the size in bytes of a file with this header, whose mode must be supported."""
    pixels = header.columns * header.rows * header.sections
    return HEADER + header.extended + pixels * _pixels(header).itemsize


def _byte_order(head: bytes, size: int) -> str | None:
    """Return the byte order: by the machine stamp, or in old files by which one makes sense."""
    if head[MAP_AT : MAP_AT + 4] == b"MAP ":
        stamped = STAMPS.get(head[MAP_AT + 4 : MAP_AT + 6])
        if stamped is not None:
            return stamped
    headers = [header for header in (_parse(head, o) for o in "<>") if _makes_sense(header)]
    fitting = [h for h in headers if h.mode in MODES and _size(h) == size]
    # Dimensions are small numbers, which become large ones in the wrong byte order.
    best = min(fitting or headers, key=lambda h: h.columns * h.rows * h.sections, default=None)
    return None if best is None else best.order


class Mrc(Format):
    """One .mrc file of either byte order, with any extended header."""

    name = "mrc"
    extensions = ("mrc",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the word MAP, or in old files dimensions that match the file size."""
        if len(head) < HEADER:
            return False
        order = _byte_order(head, file.size)
        if order is None:
            return False
        header = _parse(head, order)
        if not _makes_sense(header):
            return False
        if head[MAP_AT : MAP_AT + 4] == b"MAP ":
            return True
        return header.mode in MODES and file.size == _size(header)

    def find(self, source: Source, hints: Hints) -> Found:
        """Read the header; each section is a frame.

        Raises:
            FormatError: the header is invalid, its mode is unsupported, or the file is
                truncated.
        """
        file = only(source, range(len(source.files)), ".mrc file")
        head = source.exactly(file, 0, HEADER, "the header")
        order = _byte_order(head, source.files[file].size)
        header = _parse(head, order or "<")
        if header.mode in REFUSED:
            raise source.fault(
                file,
                f"mode {header.mode}, {REFUSED[header.mode]}, is not supported",
                offset=12,
                hint="Save it as mode 1, 2, 4, 6 or 12",
            )
        if order is None or not _makes_sense(header):
            raise source.fault(
                file,
                f"{header.sections} sections of {header.columns} x {header.rows} pixels of mode "
                f"{header.mode} after an extended header of {header.extended} bytes",
                hint="Check that it is an MRC file and not damaged",
            )
        stored = _pixels(header)
        start = HEADER + header.extended
        stride = header.columns * header.rows * stored.itemsize
        notes: list[str] = []
        frames = count_frames(
            source,
            file,
            start,
            stride,
            growing=hints.growing,
            declared=header.sections,
            notes=notes,
        )
        nav_shape = (frames,)
        return Found(
            format=self.name,
            extents=[Extent(file, frames, start, stride)],
            sig_shape=(header.rows, header.columns),
            stored=stored,
            nav_shape=nav_shape if frames else None,
            file_header=start,
            axes=_axes(header, frames),
            metadata={"mode": header.mode, "extended_header": header.extended},
            notes=notes,
        )


def _axes(header: _Header, frames: int) -> tuple[Axis, ...]:
    """Return axes in angstrom; empty if the cell gives no valid size."""
    sizes = (frames, header.rows, header.columns)
    scales = []
    for length, steps in zip(reversed(header.cell), reversed(header.grid), strict=True):
        if steps < 1 or not (math.isfinite(length) and length > 0):
            return ()
        scales.append(length / steps)
    return tuple(
        Axis(name, size, "angstrom", scale)
        for name, size, scale in zip("zyx", sizes, scales, strict=True)
    )
