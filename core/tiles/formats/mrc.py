"""MRC2014 and its older variants: a stack of images after a header."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..recording import Axis, FileInfo, Hints
from .files import Files, Order, Values, fields_of, only
from .format import Format, Found

HEADER = np.dtype(
    {
        "names": ["columns", "rows", "sections", "mode", "grid", "cell", "extended", "imod"],
        "formats": ["i4", "i4", "i4", "i4", "3i4", "3f4", "i4", "2i4"],
        "offsets": [0, 4, 8, 12, 28, 40, 92, 152],
        "itemsize": 1024,
    }
)
"""The header, of either byte order."""
MODES = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}
REFUSED = {3: "complex integers", 101: "pixels of four bits"}
MAP_AT = 208
STAMPS: Mapping[bytes, Order] = {b"\x44\x44": "<", b"\x44\x41": "<", b"\x11\x11": ">"}
"""Byte order, by the first bytes of the machine stamp."""

IMOD_STAMP = 1146047817
EXTENDED_LIMIT = 1 << 31


def _parse(head: bytes, order: Order) -> Values:
    return {**fields_of(head, HEADER.newbyteorder(order)), "order": order}


def _makes_sense(header: Values) -> bool:
    return (
        min(header["columns"], header["rows"], header["sections"]) > 0
        and header["mode"] in {*MODES, *REFUSED}
        and 0 <= header["extended"] < EXTENDED_LIMIT
    )


def _pixels(header: Values) -> np.dtype[Any]:
    code = MODES[header["mode"]]
    stamp, flags = header["imod"]
    if header["mode"] == 0 and stamp == IMOD_STAMP and not flags & 1:
        code = "u1"  # IMOD's bytes are unsigned unless a flag says otherwise
    return np.dtype(f"{header['order']}{code}")


def _size(header: Values) -> int:
    """Return the size in bytes of a file with this header, whose mode must be supported."""
    pixels = int(header["columns"] * header["rows"] * header["sections"])
    return HEADER.itemsize + int(header["extended"]) + pixels * _pixels(header).itemsize


def _header(head: bytes, size: int) -> tuple[Values, bool]:
    """Return the header, by the machine stamp or in old files as it makes sense, and if it does."""
    if head[MAP_AT : MAP_AT + 4] == b"MAP ":
        stamped = STAMPS.get(head[MAP_AT + 4 : MAP_AT + 6])
        if stamped is not None:
            header = _parse(head, stamped)
            return header, _makes_sense(header)
    both = [_parse(head, "<"), _parse(head, ">")]
    headers = [header for header in both if _makes_sense(header)]
    fitting = [h for h in headers if h["mode"] in MODES and _size(h) == size]
    # Dimensions are small numbers, which become large ones in the wrong byte order.
    best = min(
        fitting or headers or both[:1], key=lambda h: h["columns"] * h["rows"] * h["sections"]
    )
    return best, bool(headers)


class Mrc(Format):
    """One .mrc file of either byte order, with any extended header."""

    name = "mrc"
    extensions = ("mrc",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the word MAP, or in old files dimensions that match the file size."""
        if len(head) < HEADER.itemsize:
            return False
        header, valid = _header(head, file.size)
        marked = head[MAP_AT : MAP_AT + 4] == b"MAP "
        return valid and (marked or (header["mode"] in MODES and file.size == _size(header)))

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the header; each section is a frame.

        Raises:
            FormatError: the header is invalid, its mode is unsupported, or the file is
                truncated.
        """
        file = only(files.frames, ".mrc file")
        header, valid = _header(file.exactly(0, HEADER.itemsize, "the header"), file.size)
        mode, extended = header["mode"], header["extended"]
        if mode in REFUSED:
            raise file.fault(
                f"mode {mode}, {REFUSED[mode]}, is not supported",
                12,
                "Save it as mode 1, 2, 4, 6 or 12",
            )
        if not valid:
            raise file.fault(
                "{sections} sections of {columns} x {rows} pixels of mode {mode} after an extended "
                "header of {extended} bytes".format_map(header),
                hint="Check that it is an MRC file and not damaged",
            )
        stored, sig_shape = _pixels(header), (header["rows"], header["columns"])
        start = HEADER.itemsize + extended
        extent = file.extent(
            start, math.prod(sig_shape) * stored.itemsize, declared=header["sections"]
        )
        return Found(
            extents=[extent],
            sig_shape=sig_shape,
            stored=stored,
            nav_shape=(extent.frames,) if extent.frames else None,
            file_header=start,
            axes=_axes(header, (extent.frames, *sig_shape)),
            metadata={"mode": mode, "extended_header": extended},
        )


def _axes(header: Values, sizes: tuple[int, ...]) -> tuple[Axis, ...]:
    """Return axes in angstrom; empty if the cell gives no valid size."""
    cell, grid = header["cell"].tolist()[::-1], header["grid"].tolist()[::-1]
    if min(grid) < 1 or not all(math.isfinite(length) and length > 0 for length in cell):
        return ()
    scales = (length / steps for length, steps in zip(cell, grid, strict=True))
    return tuple(
        Axis(name, size, "angstrom", scale)
        for name, size, scale in zip("zyx", sizes, scales, strict=True)
    )
