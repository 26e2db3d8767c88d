"""FEI TIA series: images or spectra, located by a table of offsets."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays import Indices
from ..recording import Axis, Extent, Hints
from .files import WHOLE_HINT, Check, File, Files, extension, offset_of, only, packed
from .format import Format, Found

MAGIC = b"II\x97\x01"
HEADER = packed("""
    magic V4  version <u2  data_type <i4  tag_type <i4  total <i4  valid <i4  table V4
""")
"""The header, up to an offset of 4 or 8 bytes and the number of dimensions."""
VERSIONS = {0x210: "i", 0x220: "q"}
"""Code of the offsets, by version; the second allows files of more than 2 GiB."""

SPECTRA, IMAGES = 0x4120, 0x4122
CHECKS = (
    Check("magic", lambda v: v["magic"] == MAGIC, "the file does not begin like a TIA series"),
    Check(
        "version",
        lambda v: v["version"] in VERSIONS,
        "version {version:#x}; 0x210 and 0x220 are supported",
    ),
    Check(
        "data_type",
        lambda v: v["data_type"] in {SPECTRA, IMAGES},
        "elements of type {data_type:#x}; spectra and images are supported",
    ),
    Check("tag_type", lambda v: v["tag_type"] in {0x4142, 0x4152}, "tags of type {tag_type:#x}"),
    Check(
        "total",
        lambda v: 0 <= v["valid"] <= v["total"],
        "{valid} of {total} elements were written",
    ),
)
TYPES = {1: "u1", 2: "u2", 3: "u4", 4: "i1", 5: "i2", 6: "i4", 7: "f4", 8: "f8", 9: "c8", 10: "c16"}
CALIBRATION = struct.Struct("<ddi")
"""Coordinate of a reference pixel, units per pixel, and index of the reference pixel."""

TEXT_LIMIT = 1 << 12
MAX_DIMENSIONS = 8
BLOCK = 1 << 16
"""Number of offsets read at a time."""
EXAMINED = 1000
"""Maximum number of elements whose headers are checked, evenly spread over the series."""


@dataclass(frozen=True, slots=True)
class _Header:
    spectra: bool
    total: int
    valid: int
    offsets: np.dtype[Any]
    table: int
    axes: tuple[Axis, ...]
    """Axes of the scan, the fastest first."""


@dataclass(frozen=True, slots=True)
class _Element:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    calibrations: tuple[tuple[float, float, int], ...]
    """Calibrations of the columns, then of the rows."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Ser(Format):
    """One .ser file; an accompanying .emi file is accepted but not read.

    Rows are in stored order; TIA shows the first one at the bottom.
    """

    name = "ser"
    magic = MAGIC
    extensions = ("ser",)

    def is_companion(self, name: str) -> bool:
        """Whether the file is an .emi file, with display settings of TIA."""
        return extension(name) == "emi"

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the header and the table of offsets; each element is a frame.

        Raises:
            FormatError: the header is invalid, elements differ in shape or dtype, or the file
                is truncated.
        """
        file = only(files.frames, ".ser file")
        header = _header(file)
        if header.valid < header.total:
            files.notes.append(f"{header.valid} of {header.total} elements were written")
        first: _Element | None = None
        extents: list[Extent] = []
        if header.valid:
            prefix = 2 * CALIBRATION.size + 10 if not header.spectra else CALIBRATION.size + 6
            start = int(next(_offsets(file, header))[0])
            first = _element(file, start, header)
            extents = _extents(file, header, prefix, first)
            _examine(file, header, extents, prefix, first)
        sizes = tuple(axis.size for axis in reversed(header.axes))
        complete = math.prod(sizes) == header.total and len(sizes) > 0
        return Found(
            extents=extents,
            sig_shape=(1,) if first is None else first.shape,
            stored=np.dtype("u1") if first is None else first.dtype,
            nav_shape=sizes if complete and header.total else None,
            axes=_axes(header, first) if complete and first is not None else (),
            metadata={"elements": header.total, "valid_elements": header.valid},
        )


def _header(file: File) -> _Header:
    values = file.record(HEADER, 0, "the header", CHECKS)
    code, valid = VERSIONS[values["version"]], values["valid"]
    offsets = np.dtype(f"<{code}")
    width, at = offsets.itemsize, offset_of(HEADER, "table")
    table, count = struct.unpack(f"<{code}i", file.exactly(at, width + 4, "the header"))
    if not 0 <= count <= MAX_DIMENSIONS:
        raise file.fault(f"a scan of {count} dimensions", offset=at + width)
    offset = at + width + 4
    axes: list[Axis] = []
    for number in range(count):
        axis, offset = _dimension(file, offset, number)
        twice = axis.name in {other.name for other in axes}
        axes.append(replace(axis, name=f"scan_{number}") if twice else axis)
    if not offset <= table <= file.size - valid * width:
        raise file.fault(
            f"{valid} offsets from byte {table}, after a header of {offset} bytes in a file of "
            f"{file.size}",
            offset=at,
            hint=WHOLE_HINT,
        )
    return _Header(
        values["data_type"] == SPECTRA, values["total"], valid, offsets, table, tuple(axes)
    )


def _dimension(file: File, offset: int, number: int) -> tuple[Axis, int]:
    """Read an axis of the scan, and return it with the byte after it."""
    label = f"dimension {number}"
    (size,) = struct.unpack("<i", file.exactly(offset, 4, label))
    if size < 1:
        raise file.fault(f"{label} has {size} positions", offset=offset)
    calibration = CALIBRATION.unpack(file.exactly(offset + 4, CALIBRATION.size, label))
    name, end = _text(file, offset + 4 + CALIBRATION.size, label)
    unit, end = _text(file, end, label)
    return _axis(name or f"scan_{number}", size, unit or None, calibration), end


def _text(file: File, offset: int, label: str) -> tuple[str, int]:
    (length,) = struct.unpack("<i", file.exactly(offset, 4, label))
    if not 0 <= length <= TEXT_LIMIT:
        raise file.fault(f"a text of {length} bytes in {label}", offset=offset)
    octets = file.exactly(offset + 4, length, label)
    return octets.decode("latin-1").strip("\0 "), offset + 4 + length


def _axis(name: str, size: int, unit: str | None, calibration: tuple[float, float, int]) -> Axis:
    """Create an axis; without scale if that of the file is invalid."""
    origin, step, pixel = calibration
    begin = origin - pixel * step
    if not (math.isfinite(begin) and math.isfinite(step) and step > 0):
        return Axis(name, size)
    return Axis(name, size, unit, step, begin)


def _offsets(file: File, header: _Header) -> Iterator[Indices]:
    """Yield the bytes at which the elements begin, in blocks."""
    width = header.offsets.itemsize
    for at in range(0, header.valid, BLOCK):
        count = min(BLOCK, header.valid - at)
        octets = file.exactly(header.table + at * width, count * width, "the table of offsets")
        yield np.frombuffer(octets, header.offsets).astype(np.int64)


def _element(file: File, offset: int, header: _Header) -> _Element:
    """Read the header of an element."""
    dims = 1 if header.spectra else 2
    size = dims * CALIBRATION.size + 2 + 4 * dims
    if not 0 < offset <= file.size - size:
        raise file.fault(f"an element at byte {offset}, where no element fits", offset=header.table)
    octets = file.exactly(offset, size, "an element's header")
    type_offset = dims * CALIBRATION.size
    code, *lengths = struct.unpack_from(f"<h{dims}i", octets, type_offset)
    if code not in TYPES:
        raise file.fault(
            f"pixels of type {code}; 1 to 10 are supported", offset=offset + type_offset
        )
    if min(lengths) < 1:
        raise file.fault(f"an element of {lengths} pixels", offset=offset + type_offset + 2)
    calibrations = tuple(CALIBRATION.unpack_from(octets, k * CALIBRATION.size) for k in range(dims))
    return _Element(np.dtype(f"<{TYPES[code]}"), tuple(reversed(lengths)), calibrations)


def _extents(file: File, header: _Header, prefix: int, first: _Element) -> list[Extent]:
    """Group equally spaced elements, which must be in order and inside the file."""
    size = prefix + first.nbytes
    room = file.size - size
    extents: list[Extent] = []
    count, last = 0, -size
    for block in _offsets(file, header):
        outside = (block < 1) | (block > room)
        wrong = np.flatnonzero(outside | (np.diff(block, prepend=last) < size))
        if len(wrong):
            index = int(wrong[0])
            problem = f"less than {size} bytes after the previous one"
            if outside[index]:
                problem = f"but the file does not contain the {size} bytes from there"
            raise file.fault(
                f"element {count + index} begins at byte {int(block[index])}, {problem}",
                header.table + (count + index) * header.offsets.itemsize,
                WHOLE_HINT,
            )
        _append(extents, file.index, block + prefix, size)
        count, last = count + len(block), int(block[-1])
    return extents


def _append(extents: list[Extent], file: int, starts: Indices, size: int) -> None:
    """Append elements to the extents, extending the last one if its spacing continues."""
    index = 0
    while index < len(starts):
        begin = int(starts[index])
        last = extents[-1] if extents else None
        if last and (last.frames == 1 or begin == last.offset + last.frames * last.stride):
            extents.pop()
            stride = begin - last.offset if last.frames == 1 else last.stride
            count, offset = last.frames, last.offset
        else:
            stride = int(starts[index + 1]) - begin if index + 1 < len(starts) else size
            count, offset = 0, begin
        run = np.diff(starts[index:]) == stride
        length = len(starts) - index if run.all() else int(np.argmin(run)) + 1
        extents.append(Extent(file, count + length, offset, stride))
        index += length


def _examine(
    file: File,
    header: _Header,
    extents: Sequence[Extent],
    prefix: int,
    first: _Element,
) -> None:
    """Check that a sample of the elements is like the first."""
    ends = np.cumsum([extent.frames for extent in extents])
    picked = np.unique(np.linspace(0, header.valid - 1, min(EXAMINED, header.valid)).astype(int))
    for index in picked.tolist():
        number = int(np.searchsorted(ends, index, side="right"))
        extent = extents[number]
        position = index - (int(ends[number]) - extent.frames)
        start = extent.offset + position * extent.stride - prefix
        element = _element(file, start, header)
        if (element.dtype, element.shape) != (first.dtype, first.shape):
            raise file.fault(
                f"element {index} is {element.dtype.str} {element.shape}, the first one "
                f"{first.dtype.str} {first.shape}",
                offset=start,
                hint="Save a series in which all elements have one shape and type",
            )


def _axes(header: _Header, first: _Element) -> tuple[Axis, ...]:
    scan, names = reversed(header.axes), ("x",) if header.spectra else ("y", "x")
    calibrations = reversed(first.calibrations)
    frame = [
        _axis(name, size, None, calibration)
        for name, size, calibration in zip(names, first.shape, calibrations, strict=True)
    ]
    used = {axis.name for axis in header.axes}
    return (*scan, *(replace(a, name=f"k{a.name}") if a.name in used else a for a in frame))
