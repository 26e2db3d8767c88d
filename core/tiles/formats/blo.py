"""NanoMegas block files: a virtual bright-field image, then square frames with a header each."""

from __future__ import annotations

import math
import re
import struct

import numpy as np

from ..recording import Axis, Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .source import Source, only

ID = b"IMGBLO"
FIELDS = (
    "magic",
    "offset_1",
    "offset_2",
    "flags",
    "frame_size",
    "frame_rotation",
    "columns",
    "rows",
    "scan_rotation",
    "step_x",
    "step_y",
    "beam_energy",
    "pixels_per_100_cm",
    "camera_length",
    "time",
)
LAYOUT = "HIIIHHHHHddIHId"
MAGICS = {258, 259}
"""Magic numbers; 259 was introduced for 16-bit frames."""

TEXT_AT = 240
TEXT_LIMIT = 1 << 16
FRAME_HEADER = 6

_BIT_DEPTH = re.compile(rb"blo bit depth\s*:\s*(\d{1,3}) bits", re.IGNORECASE)


def _byte_order(magic: bytes) -> str | None:
    for order in "<>":
        if len(magic) == 2 and struct.unpack(f"{order}H", magic)[0] in MAGICS:  # noqa: PLR2004
            return order
    return None


class Blo(Format):
    """One .blo file, of either byte order."""

    name = "blo"
    extensions = ("blo",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the identifier and the magic number."""
        return head.startswith(ID) and _byte_order(head[6:8]) is not None

    def find(self, source: Source, hints: Hints) -> Found:
        """Read the header, and the bit depth from the text after it.

        Raises:
            FormatError: the header is invalid, or there are fewer frames than it declares.
        """
        file = only(source, range(len(source.files)), ".blo file")
        order = _byte_order(source.exactly(file, 6, 2, "the header"))
        if order is None:
            raise source.fault(
                file, "there is no magic number of a block file, 258 or 259", offset=6
            )
        layout = struct.Struct(order + LAYOUT)
        octets = source.exactly(file, 6, layout.size, "the header")
        values = dict(zip(FIELDS, layout.unpack(octets), strict=True))
        size, scan = values["frame_size"], (values["rows"], values["columns"])
        start = values["offset_2"]
        if not size or not all(scan):
            raise source.fault(
                file, f"a scan of {scan} with frames of {size} pixels a side", offset=20
            )
        if not 6 + layout.size <= values["offset_1"] <= start:
            raise source.fault(
                file,
                f"frames from byte {start}, after an image from byte {values['offset_1']}",
                offset=8,
            )
        stored = np.dtype(f"{order}u{_depth(source, file, values['offset_1']) // 8}")
        stride = FRAME_HEADER + size * size * stored.itemsize
        notes: list[str] = []
        frames = count_frames(
            source,
            file,
            start,
            stride,
            growing=hints.growing,
            declared=math.prod(scan),
            notes=notes,
        )
        return Found(
            format=self.name,
            extents=[Extent(file, frames, start + FRAME_HEADER, stride)],
            sig_shape=(size, size),
            stored=stored,
            nav_shape=scan,
            file_header=start,
            frame_header=FRAME_HEADER,
            axes=_axes(values, scan, size),
            metadata={k: v for k, v in values.items() if math.isfinite(v)},
            notes=notes,
        )


def _depth(source: Source, file: int, stop: int) -> int:
    """Return the bits per pixel; 8 if the text does not give them."""
    size = min(stop, source.files[file].size) - TEXT_AT
    text = source.exactly(file, TEXT_AT, min(size, TEXT_LIMIT), "the text") if size > 0 else b""
    match = _BIT_DEPTH.search(text)
    depth = 8 if match is None else int(match[1])
    if depth not in {8, 16}:
        raise source.fault(file, f"pixels of {depth} bits; 8 and 16 are supported", offset=TEXT_AT)
    return depth


def _axes(values: dict[str, float], scan: tuple[int, int], size: int) -> tuple[Axis, ...]:
    steps = (values["step_y"], values["step_x"])
    density = values["pixels_per_100_cm"]
    if not all(math.isfinite(step) and step > 0 for step in steps):
        return ()
    unit, pixel = ("cm", 100.0 / density) if density else (None, 1.0)
    return (
        *(Axis(n, s, "nm", step) for n, s, step in zip("yx", scan, steps, strict=True)),
        *(Axis(n, size, unit, pixel) for n in ("ky", "kx")),
    )
