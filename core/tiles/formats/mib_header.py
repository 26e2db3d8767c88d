"""The ASCII header Merlin writes before every frame."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .source import Source

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
