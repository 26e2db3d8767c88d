"""Merlin (Medipix 3): an ASCII header before every frame, then big-endian or raw pixels.

Raw pixels are as the chips send them: packed, each counter depth in its own way.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...arrays import Array, Octets
from ...errors import ShapeError
from .._kernels.unpack import unpack_chips
from ..packing import Decoder, Shape
from ..recording import Extent, FileInfo, Hints
from .files import File, Files, only
from .format import Format, Found

WORD = 64
"""Bits per word of the chip."""

PACKED = {1: ("u1", 1), 6: ("u1", 8), 12: ("u2", 16), 24: ("u4", 32)}
"""Dtype of raw pixels and the bits they are stored in, by counter depth."""


def _decoder(depth: int, chips: int) -> Decoder:
    dtype, bits = PACKED[depth]
    group = WORD // min(bits, 16)

    def size(shape: Shape) -> int:
        if chips > 1 and (len(shape) != 2 or shape[0] != shape[1]):  # noqa: PLR2004 - rows, columns
            raise ShapeError(f"frames of {shape} are not a square of four square chips")
        if chips > 1 and shape[1] % 2:
            raise ShapeError(f"frames of {shape} are not two chips wide")
        rows = (shape[0] * 2, shape[1] // 2) if chips > 1 else shape
        if not rows or min(rows) < 1 or rows[-1] % group:
            raise ShapeError(f"rows of frames of {rows} are not whole groups of {group} pixels")
        return math.prod(shape) * bits // 8

    def decode(raw: Octets, stride: int, out: Array, shape: Shape) -> None:
        unpack_chips(raw, stride, out, depth, shape[1] // 2 if chips > 1 else 0)

    name, sample = f"mib_r{depth}", (1, WORD)
    if chips > 1:
        name, sample = f"{name}_quad", (2 * group, 2 * group)
    return Decoder(name, np.dtype(dtype), size, decode, sample)


DECODERS = {(depth, chips): _decoder(depth, chips) for depth in PACKED for chips in (1, 4)}
"""Decoders by counter depth, for one chip and for four."""

MAGIC = b"MQ1,"
HEADER_SIZES = range(64, 1 << 16)
"""Possible sizes of a frame header, which states its own: 384 for one chip, 768 for four."""

BEGINNING = 768
"""Bytes read at first; the rest of longer headers takes a second read."""

EXAMINED = 16
"""Frames whose headers are read besides the first and the last, evenly spread over the files: one
may lie anywhere on a slow disk."""
RESTARTS = "each file counts its frames from the same number: in the order given"
"""Note on files that may be recordings of their own."""
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


def read_header(file: File, offset: int) -> Header:
    """Read the header of the frame at a byte of a file.

    Raises:
        FormatError: there is no header, or its values are invalid.
    """
    size = min(BEGINNING, file.size - offset)
    start = file.exactly(offset, max(size, len(MAGIC)), "a frame header")
    fields = start.decode("ascii", errors="replace").split(",")
    if not start.startswith(MAGIC) or len(fields) < 8:  # noqa: PLR2004 - up to the layout
        raise file.fault(
            "no frame header where one should begin",
            offset=offset,
            hint="Check that the file is complete and comes from one acquisition",
        )
    numbers = fields[1:6]
    if not all(NUMBER.fullmatch(number) for number in numbers):
        raise file.fault(f"numbers {numbers} in a frame header", offset=offset)
    sequence, length, chips, width, height = (int(number) for number in numbers)
    if length not in HEADER_SIZES or not chips or not width or not height:
        raise file.fault(
            f"a frame header of {length} bytes for {chips} chips of {width} x {height} pixels",
            offset=offset,
        )
    octets = start[:length]
    if length > len(start):
        octets = file.exactly(offset, length, "a frame header")
    text = octets.decode("ascii", errors="replace").partition("\0")[0]
    last = text.rstrip(" ,\r\n").rpartition(",")[2].strip()
    depth = int(last) if NUMBER.fullmatch(last) else 0
    pixels, layout = fields[6].strip().upper(), fields[7].strip()
    return Header(sequence, length, chips, width, height, pixels, layout, depth)


FIXED = {"U08": ">u1", "U8": ">u1", "U16": ">u2", "U32": ">u4", "U64": ">u8"}
"""Dtypes of pixels that Merlin has already decoded."""

_SCAN = ("ScanY", "ScanX")
_FRAMES = "Frames in Acquisition (Number)"
_PER_TRIGGER = "Frames per Trigger (Number)"


def _pixels(file: File, header: Header) -> tuple[Shape, np.dtype[Any], Decoder | None]:
    """Derive the shape of a frame, its dtype, and the decoder of raw pixels from its header."""
    height, width = header.height, header.width
    if header.pixels in FIXED:
        return (height, width), np.dtype(FIXED[header.pixels]), None
    if header.pixels != "R64" or header.depth not in PACKED:
        raise file.fault(
            f"pixels of type {header.pixels[:20]!r} with {header.depth} bits",
            hint="Supported are U08, U16, U32, U64, and R64 with 1, 6, 12 or 24 bits",
        )
    if header.depth == 24:  # noqa: PLR2004 - the header counts two images of 12 bits
        width, remainder = divmod(width, 2)
        if remainder:
            raise file.fault(f"24 bits in {header.width} columns, which is odd")
    run = width
    if header.chips == 4 and header.layout.startswith("2x2"):  # noqa: PLR2004 - the quad
        if width != 4 * height:
            raise file.fault(f"four chips side by side in {height} rows of {width} columns")
        run, height, width = height, 2 * height, 2 * height
    elif header.chips != 1:
        raise file.fault(
            f"raw data of {header.chips} chips in layout {header.layout[:20]!r}",
            hint="Save decoded frames (U08, U16, U32), or raw data of one chip or four in 2x2",
        )
    decoder = DECODERS[header.depth, header.chips]
    if run * min(PACKED[header.depth][1], 16) % WORD:
        raise file.fault(f"rows of {run} pixels are not whole words of {WORD} bits")
    return (height, width), decoder.dtype, decoder


def _scan(file: File) -> tuple[dict[str, str], tuple[int, ...] | None]:
    """Read the .hdr file: its values, and the scan shape if it gives one."""
    values = {}
    lines = file.text().splitlines()
    if not lines or not lines[0].startswith("HDR"):
        raise file.fault(
            "the file does not begin with HDR", hint="Leave the file out, and give nav_shape"
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
    decoders = tuple(DECODERS.values())

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the header of the first frame, or the first line of the .hdr file."""
        return head.startswith(MAGIC) or (self.is_companion(file.name) and head.startswith(b"HDR"))

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the first and last frame header of each file and some between, of one layout.

        Raises:
            FormatError: a frame is truncated, frames differ in layout, or a file is missing
                from the sequence.
        """
        if not files.frames:
            raise files.first.fault("there is no .mib file", hint="Add the .mib files")
        header = read_header(files.first, 0)
        sig_shape, stored, decoder = _pixels(files.first, header)
        size = decoder.frame_bytes(sig_shape) if decoder else math.prod(sig_shape) * stored.itemsize
        runs, examined = [], -(-EXAMINED // len(files.frames))
        for file in files.frames:
            extent = file.extent(0, header.size + size, header=header.size)
            if extent.frames:
                runs.append(_run(file, extent, header, examined))
        values: dict[str, str] = {}
        nav_shape = None
        if files.companions:
            values, nav_shape = _scan(only(files.companions, ".hdr file"))
        return Found(
            extents=_in_sequence(files, runs),
            sig_shape=sig_shape,
            stored=stored,
            decoder=decoder,
            nav_shape=nav_shape,
            frame_header=header.size,
            metadata={
                "chips": header.chips,
                "layout": header.layout,
                "pixel_type": header.pixels,
                "counter_bits": header.depth,
                "acquisition": values,
            },
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """The frames of a file, with the numbers of the first and the last."""

    first: int
    last: int
    file: File
    extent: Extent


def _run(file: File, extent: Extent, header: Header, examined: int) -> _Run:
    numbers: dict[int, int] = {}
    for index in np.linspace(0, extent.frames - 1, examined + 2).astype(int).tolist():
        other = read_header(file, index * extent.stride)
        if not other.same_layout(header):
            raise file.fault(
                "the frame is of another layout than the first",
                index * extent.stride,
                "Register each acquisition as a dataset of its own",
            )
        numbers[index] = other.sequence
    first, last = numbers[0], numbers[extent.frames - 1]
    odd = [(index, number) for index, number in numbers.items() if number != first + index]
    if last != first + extent.frames - 1:
        note = f"{file.name}: {extent.frames} frames are numbered {first} to {last}"
        if (lost := last - first + 1 - extent.frames) > 0:
            note += f": {lost} are missing between them, and later frames have taken their places"
        file.notes.append(note)
    elif odd:
        index, number = odd[0]
        note = f"frame {index} of the file is numbered {number}, not {first + index}"
        file.notes.append(f"{file.name}: {note}: frames may be damaged, or in another order")
    return _Run(first, last, file, extent)


def _in_sequence(files: Files, runs: list[_Run]) -> list[Extent]:
    """Order extents by the numbers in their frames, if these continue from file to file."""
    starts = {run.first for run in runs}
    if len(starts) < len(runs):
        if len(starts) > 1:
            raise runs[1].file.fault(
                "some files have frames of the same numbers, others do not",
                hint="Register each acquisition as a dataset of its own",
            )
        if len(runs) > 1:
            files.notes.append(RESTARTS)
        return [run.extent for run in runs]
    ordered = sorted(runs, key=lambda run: run.first)
    if ordered != runs:
        files.notes.append("ordered by the numbers in the frames, which is not the order given")
    for before, run in pairwise(ordered):
        if run.first != before.last + 1:
            raise run.file.fault(
                f"its frames are numbered from {run.first}, those of {before.file.name} end with "
                f"{before.last}",
                hint="Add the file between them, or register each file as a dataset of its own",
            )
    return [run.extent for run in ordered]
