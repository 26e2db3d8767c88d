"""Merlin (Medipix 3): an ASCII header before every frame, then big-endian or raw pixels.

Raw pixels are as the chips send them: packed, each counter depth in its own way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...arrays import Array, Octets
from .._kernels.unpack import (
    unpack_r1,
    unpack_r1_quad,
    unpack_r6,
    unpack_r6_quad,
    unpack_r12,
    unpack_r12_quad,
    unpack_r24,
    unpack_r24_quad,
)
from ..packing import Decoder, Shape, rows_bytes, square_bytes
from ..recording import Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .source import Source, only

CONTAINER = {1: 1, 6: 8, 12: 16, 24: 32}
"""Stored bits per pixel, by counter depth."""


def _chips(bits: int, dtype: str, single: Any, quad: Any) -> tuple[Decoder, ...]:  # noqa: ANN401 - kernels of different pixels
    container = CONTAINER[bits]
    group = 64 // min(container, 16)
    side = (2 * group, 2 * group)

    def one(raw: Octets, stride: int, out: Array, _: Shape) -> None:
        single(raw, stride, out)

    def four(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        quad(raw, stride, out, sig_shape[1] // 2)

    def one_bytes(sig_shape: Shape) -> int:
        return rows_bytes(sig_shape, group, container)

    def four_bytes(sig_shape: Shape) -> int:
        return square_bytes(sig_shape, group, container)

    pixel = np.dtype(dtype)
    return (
        Decoder(f"mib_r{bits}", pixel, one_bytes, one, (1, 64)),
        Decoder(f"mib_r{bits}_quad", pixel, four_bytes, four, side),
    )


DECODERS = (
    *_chips(1, "u1", unpack_r1, unpack_r1_quad),
    *_chips(6, "u1", unpack_r6, unpack_r6_quad),
    *_chips(12, "u2", unpack_r12, unpack_r12_quad),
    *_chips(24, "u4", unpack_r24, unpack_r24_quad),
)
"""Decoders for one chip and for four, by counter depth."""


MAGIC = b"MQ1,"
HEADER_SIZES = range(64, 1 << 16)
"""Possible sizes of a frame header, which states its own: 384 for one chip, 768 for four."""

BEGINNING = 768
"""Bytes read at first; the rest of longer headers takes a second read."""

NUMBER = re.compile("[0-9]{1,9}")
"""A number in a header."""


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a frame header that describe its layout."""

    sequence: int
    size: int
    chips: int
    width: int
    height: int
    pixels: str
    layout: str
    depth: int
    """Bits of the counter."""

    def same_layout(self, other: Header) -> bool:
        """Whether the headers differ in nothing but the sequence number."""
        return replace(self, sequence=0) == replace(other, sequence=0)


def read_header(source: Source, file: int, offset: int) -> Header:
    """Read the header of the frame at a byte of a file.

    Raises:
        FormatError: there is no header, or its values are invalid.
    """
    size = min(BEGINNING, source.files[file].size - offset)
    start = source.exactly(file, offset, max(size, len(MAGIC)), "a frame header")
    fields = start.decode("ascii", errors="replace").split(",")
    if not start.startswith(MAGIC) or len(fields) < 8:  # noqa: PLR2004 - up to the layout
        raise source.fault(
            file,
            "no frame header where one should begin",
            offset=offset,
            hint="Check that the file is complete and comes from one acquisition",
        )
    numbers = fields[1:6]
    if not all(NUMBER.fullmatch(number) for number in numbers):
        raise source.fault(file, f"numbers {numbers} in a frame header", offset=offset)
    sequence, length, chips, width, height = (int(number) for number in numbers)
    if length not in HEADER_SIZES or not chips or not width or not height:
        raise source.fault(
            file,
            f"a frame header of {length} bytes for {chips} chips of {width} x {height} pixels",
            offset=offset,
        )
    octets = start[:length]
    if length > len(start):
        octets = source.exactly(file, offset, length, "a frame header")
    text = octets.decode("ascii", errors="replace").partition("\0")[0]
    last = text.rstrip(" ,\r\n").rpartition(",")[2].strip()
    depth = int(last) if NUMBER.fullmatch(last) else 0
    pixels, layout = fields[6].strip().upper(), fields[7].strip()
    return Header(sequence, length, chips, width, height, pixels, layout, depth)


FIXED = {"U08": ">u1", "U8": ">u1", "U16": ">u2", "U32": ">u4", "U64": ">u8"}
"""Dtypes of pixels that Merlin has already decoded."""

RAW = {
    1: ("mib_r1", "u1", 1),
    6: ("mib_r6", "u1", 8),
    12: ("mib_r12", "u2", 16),
    24: ("mib_r24", "u4", 32),
}
"""Decoder, dtype and stored bits per pixel, by counter depth."""

WORD = 64
"""Bits per word of the chip."""

_SCAN = ("ScanY", "ScanX")
_FRAMES = "Frames in Acquisition (Number)"
_PER_TRIGGER = "Frames per Trigger (Number)"


@dataclass(frozen=True, slots=True)
class _Pixels:
    sig_shape: tuple[int, int]
    frame_bytes: int
    stored: np.dtype[Any] | None
    decoder: str | None
    dtype: np.dtype[Any]


def _pixels(source: Source, file: int, header: Header) -> _Pixels:
    """Derive the layout of a frame from its header."""
    shape = header.height, header.width
    if header.pixels in FIXED:
        stored = np.dtype(FIXED[header.pixels])
        size = shape[0] * shape[1] * stored.itemsize
        return _Pixels(shape, size, stored, None, stored.newbyteorder("="))
    if header.pixels != "R64" or header.depth not in RAW:
        raise source.fault(
            file,
            f"pixels of type {header.pixels[:20]!r} with {header.depth} bits",
            hint="Supported are U08, U16, U32, U64, and R64 with 1, 6, 12 or 24 bits",
        )
    decoder, dtype, bits = RAW[header.depth]
    height, width = shape
    if header.depth == 24:  # noqa: PLR2004 - the header counts two images of 12 bits
        width, remainder = divmod(width, 2)
        if remainder:
            raise source.fault(file, f"24 bits in {header.width} columns, which is odd")
    size = height * width * bits // 8
    if header.chips == 4 and header.layout.startswith("2x2"):  # noqa: PLR2004 - the quad
        if width != 4 * height:
            raise source.fault(file, f"four chips side by side in {height} rows of {width} columns")
        decoder, height, width = f"{decoder}_quad", 2 * height, 2 * height
        run = width // 2
    elif header.chips == 1:
        run = width
    else:
        raise source.fault(
            file,
            f"raw data of {header.chips} chips in layout {header.layout[:20]!r}",
            hint="Save decoded frames (U08, U16, U32), or raw data of one chip or four in 2x2",
        )
    if run * min(bits, 16) % WORD:
        raise source.fault(file, f"rows of {run} pixels are not whole words of {WORD} bits")
    return _Pixels((height, width), size, None, decoder, np.dtype(dtype))


def _scan(source: Source, file: int) -> tuple[dict[str, str], tuple[int, ...] | None]:
    """Read the .hdr file: its values, and the scan shape if it gives one."""
    values = {}
    lines = source.text(file).splitlines()
    if not lines or not lines[0].startswith("HDR"):
        raise source.fault(
            file, "the file does not begin with HDR", hint="Leave the file out, and give nav_shape"
        )
    for line in lines[1:]:
        key, tab, value = line.partition("\t")
        if tab and not line.startswith("End"):
            values[key.rstrip(":").strip()] = value.strip()

    def number(key: str) -> int:
        text = values.get(key, "")
        return int(text) if NUMBER.fullmatch(text) else 0

    scan = tuple(number(key) for key in _SCAN)
    if all(scan):
        return values, scan
    total, row = number(_FRAMES), number(_PER_TRIGGER)
    if row > 1 and total >= row:
        return values, (total // row, row)
    return values, None


class Mib(Format):
    """.mib files in the order of their sequence numbers, and an optional .hdr file."""

    name = "mib"
    extensions = ("mib",)
    description = "hdr"
    series = True
    decoders = DECODERS

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the header of the first frame, or the first line of the .hdr file."""
        return head.startswith(MAGIC) or (self.is_companion(file.name) and head.startswith(b"HDR"))

    def find(self, source: Source, hints: Hints) -> Found:
        """Read the first and last frame header of each file, which must have one layout.

        Raises:
            FormatError: a frame is truncated, frames differ in layout, or a file is missing
                from the sequence.
        """
        data, described = self.split(source)
        if not data:
            raise source.fault(0, "there is no .mib file", hint="Add the .mib files")
        header = read_header(source, data[0], 0)
        pixels = _pixels(source, data[0], header)
        stride = header.size + pixels.frame_bytes
        notes: list[str] = []
        runs = []
        for file in data:
            growing = hints.growing and file == data[-1]
            frames = count_frames(source, file, 0, stride, growing=growing)
            if frames:
                first = _same_header(source, file, 0, header)
                last = (
                    _same_header(source, file, (frames - 1) * stride, header)
                    if frames > 1
                    else first
                )
                if last.sequence != first.sequence + frames - 1:
                    notes.append(
                        f"{source.files[file].name}: {frames} frames are numbered {first.sequence} "
                        f"to {last.sequence}"
                    )
                runs.append(
                    (first.sequence, last.sequence, Extent(file, frames, header.size, stride))
                )
        values: dict[str, str] = {}
        nav_shape = None
        if described:
            values, nav_shape = _scan(source, only(source, described, ".hdr file"))
        return Found(
            format=self.name,
            extents=_in_sequence(source, runs, notes),
            sig_shape=pixels.sig_shape,
            stored=pixels.stored,
            decoder=pixels.decoder,
            dtype=pixels.dtype,
            frame_bytes=pixels.frame_bytes,
            nav_shape=nav_shape,
            frame_header=header.size,
            metadata={
                "chips": header.chips,
                "layout": header.layout,
                "pixel_type": header.pixels,
                "counter_bits": header.depth,
                "acquisition": values,
            },
            notes=notes,
        )


def _same_header(source: Source, file: int, offset: int, header: Header) -> Header:
    other = read_header(source, file, offset)
    if not other.same_layout(header):
        raise source.fault(
            file,
            "the frame is of another layout than the first",
            offset=offset,
            hint="Register each acquisition as a dataset of its own",
        )
    return other


def _in_sequence(
    source: Source, runs: list[tuple[int, int, Extent]], notes: list[str]
) -> list[Extent]:
    """Order extents by the numbers in their frames, if these continue from file to file."""
    starts = {first for first, _, _ in runs}
    if len(starts) < len(runs):
        if len(starts) > 1:
            file = runs[1][2].file
            raise source.fault(
                file,
                "some files have frames of the same numbers, others do not",
                hint="Register each acquisition as a dataset of its own",
            )
        if len(runs) > 1:
            notes.append("each file counts its frames from the same number: ordered by name")
        return [extent for _, _, extent in runs]
    ordered = sorted(runs, key=lambda run: run[0])
    if ordered != runs:
        notes.append("ordered by the numbers in the frames, which is not the order of the names")
    for (_, last, before), (first, _, extent) in pairwise(ordered):
        if first != last + 1:
            raise source.fault(
                extent.file,
                f"its frames are numbered from {first}, those of "
                f"{source.files[before.file].name} end with {last}",
                hint="Add the file between them, or register each file as a dataset of its own",
            )
    return [extent for _, _, extent in ordered]
