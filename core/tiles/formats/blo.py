"""NanoMegas block files: a virtual bright-field image, then square frames with a header each."""

from __future__ import annotations

import math
import re

import numpy as np

from ..recording import Axis, FileInfo, Hints
from .files import Check, File, Files, Order, Values, only, packed
from .format import Format, Found

ID = b"IMGBLO"
MAGICS = {258, 259}
"""Magic numbers after the identifier; 259 was introduced for 16-bit frames."""
HEADER = packed("""
    magic u2  offset_1 u4  offset_2 u4  flags u4  frame_size u2  frame_rotation u2  columns u2
    rows u2  scan_rotation u2  step_x f8  step_y f8  beam_energy u4  pixels_per_100_cm u2
    camera_length u4  time f8
""")
"""The header after the identifier, of either byte order."""
CHECKS = (
    Check(
        "frame_size",
        lambda v: v["frame_size"] and v["rows"] and v["columns"],
        "a scan of ({rows}, {columns}) with frames of {frame_size} pixels a side",
    ),
    Check(
        "offset_1",
        lambda v: len(ID) + HEADER.itemsize <= v["offset_1"] <= v["offset_2"],
        "frames from byte {offset_2}, after an image from byte {offset_1}",
    ),
)
TEXT_AT = 240
TEXT_LIMIT = 1 << 16
FRAME_HEADER = 6
FRAME_MAGICS = {b"\x55\xaa", b"\xaa\x55"}
"""How frames begin, in either byte order."""
LOOKED = 4
"""Frames of which this is checked, from the first to the last."""

_BIT_DEPTH = re.compile(rb"blo bit depth\s*:\s*(\d{1,3}) bits", re.IGNORECASE)


def _byte_order(magic: bytes) -> Order | None:
    if int.from_bytes(magic, "little") in MAGICS:
        return "<"
    return ">" if int.from_bytes(magic, "big") in MAGICS else None


class Blo(Format):
    """One .blo file, of either byte order."""

    name = "blo"
    extensions = ("blo",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the identifier and the magic number."""
        return head.startswith(ID) and _byte_order(head[6:8]) is not None

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the header, and the bit depth from the text after it.

        Raises:
            FormatError: the header is invalid, or there are fewer frames than it declares.
        """
        file = only(files.frames, ".blo file")
        order = _byte_order(file.exactly(len(ID), 2, "the header"))
        if order is None:
            raise file.fault("there is no magic number of a block file, 258 or 259", len(ID))
        values = file.record(HEADER.newbyteorder(order), len(ID), "the header", CHECKS)
        size, scan = values["frame_size"], (values["rows"], values["columns"])
        stored = np.dtype(f"{order}u{_depth(file, values['offset_1']) // 8}")
        extent = file.extent(
            values["offset_2"],
            FRAME_HEADER + size * size * stored.itemsize,
            header=FRAME_HEADER,
            declared=math.prod(scan),
        )
        for frame in sorted({k * (extent.frames - 1) // (LOOKED - 1) for k in range(LOOKED)}):
            start = values["offset_2"] + frame * extent.stride
            if extent.frames and file.exactly(start, 2, "a frame header") not in FRAME_MAGICS:
                files.notes.append(f"{file.name}: frame {frame} does not begin like one (55 AA)")
        return Found(
            extents=[extent],
            sig_shape=(size, size),
            stored=stored,
            nav_shape=scan,
            file_header=values["offset_2"],
            frame_header=FRAME_HEADER,
            axes=_axes(values),
            metadata={k: v for k, v in values.items() if math.isfinite(v)},
        )


def _depth(file: File, stop: int) -> int:
    """Return the bits per pixel; 8 if the text does not give them."""
    size = min(stop, file.size) - TEXT_AT
    text = file.exactly(TEXT_AT, min(size, TEXT_LIMIT), "the text") if size > 0 else b""
    match = _BIT_DEPTH.search(text)
    depth = 8 if match is None else int(match[1])
    if depth not in {8, 16}:
        raise file.fault(f"pixels of {depth} bits; 8 and 16 are supported", TEXT_AT)
    return depth


def _axes(values: Values) -> tuple[Axis, ...]:
    steps = {"y": ("rows", "step_y"), "x": ("columns", "step_x")}
    if not all(math.isfinite(values[step]) and values[step] > 0 for _, step in steps.values()):
        return ()
    density = values["pixels_per_100_cm"]
    unit, pixel = ("cm", 100.0 / density) if density else (None, 1.0)
    return (
        *(Axis(name, values[size], "nm", values[step]) for name, (size, step) in steps.items()),
        *(Axis(name, values["frame_size"], unit, pixel) for name in ("ky", "kx")),
    )
