"""FEI TIA series: images or spectra, located by a table of offsets."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ..recording import Axis, Extent, Hints
from .format import Format
from .layout import Found
from .source import GROWING_HINT, Source, extension, only

MAGIC = b"II\x97\x01"
VERSIONS = {0x210: "<i4", 0x220: "<i8"}
"""Dtype of the offsets, by version; the second allows files of more than 2 GiB."""

SPECTRA, IMAGES = 0x4120, 0x4122
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
    offsets: str
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

    def find(self, source: Source, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the header and the table of offsets; each element is a frame.

        Raises:
            FormatError: the header is invalid, elements differ in shape or dtype, or the file
                is truncated.
        """
        file = only(source, self.split(source)[0], ".ser file")
        header = _header(source, file)
        notes: list[str] = []
        if header.valid < header.total:
            notes.append(f"{header.valid} of {header.total} elements were written")
        first: _Element | None = None
        extents: list[Extent] = []
        if header.valid:
            prefix = 2 * CALIBRATION.size + 10 if not header.spectra else CALIBRATION.size + 6
            start = int(next(_offsets(source, file, header))[0])
            first = _element(source, file, start, header)
            extents = _extents(source, file, header, prefix, first)
            _examine(source, file, header, extents, prefix, first)
        sizes = tuple(axis.size for axis in reversed(header.axes))
        complete = math.prod(sizes) == header.total and len(sizes) > 0
        return Found(
            format=self.name,
            extents=extents,
            sig_shape=(1,) if first is None else first.shape,
            stored=np.dtype("u1") if first is None else first.dtype,
            nav_shape=sizes if complete and header.total else None,
            axes=_axes(header, first) if complete and first is not None else (),
            metadata={"elements": header.total, "valid_elements": header.valid},
            notes=notes,
        )


def _header(source: Source, file: int) -> _Header:
    octets = source.exactly(file, 0, 26, "the header")
    if not octets.startswith(MAGIC):
        raise source.fault(file, "the file does not begin like a TIA series")
    version, data_type, tag_type, total, valid = struct.unpack_from("<H4i", octets, 4)
    if version not in VERSIONS:
        raise source.fault(file, f"version {version:#x}; 0x210 and 0x220 are supported", offset=4)
    if data_type not in {SPECTRA, IMAGES}:
        raise source.fault(
            file, f"elements of type {data_type:#x}; spectra and images are supported", offset=6
        )
    if tag_type not in {0x4142, 0x4152}:
        raise source.fault(file, f"tags of type {tag_type:#x}", offset=10)
    if not 0 <= valid <= total:
        raise source.fault(file, f"{valid} of {total} elements were written", offset=14)
    offsets = VERSIONS[version]
    width = int(offsets[-1])
    table, count = struct.unpack(
        f"<{'i' if width == 4 else 'q'}i",  # noqa: PLR2004 - bytes of an offset
        source.exactly(file, 22, width + 4, "the header"),
    )
    if not 0 <= count <= MAX_DIMENSIONS:
        raise source.fault(file, f"a scan of {count} dimensions", offset=22 + width)
    offset = 26 + width
    axes = []
    for number in range(count):
        axis, offset = _dimension(source, file, offset, number)
        axes.append(axis)
    if not offset <= table <= source.files[file].size - valid * width:
        raise source.fault(
            file,
            f"{valid} offsets from byte {table}, after a header of {offset} bytes in a file of "
            f"{source.files[file].size}",
            offset=22,
            hint=GROWING_HINT,
        )
    return _Header(data_type == SPECTRA, total, valid, offsets, table, tuple(axes))


def _dimension(source: Source, file: int, offset: int, number: int) -> tuple[Axis, int]:
    """Read an axis of the scan, and return it with the byte after it."""
    label = f"dimension {number}"
    (size,) = struct.unpack("<i", source.exactly(file, offset, 4, label))
    if size < 1:
        raise source.fault(file, f"{label} has {size} positions", offset=offset)
    calibration = CALIBRATION.unpack(source.exactly(file, offset + 4, CALIBRATION.size, label))
    name, end = _text(source, file, offset + 4 + CALIBRATION.size, label)
    unit, end = _text(source, file, end, label)
    return _axis(name or f"scan_{number}", size, unit or None, calibration), end


def _text(source: Source, file: int, offset: int, label: str) -> tuple[str, int]:
    (length,) = struct.unpack("<i", source.exactly(file, offset, 4, label))
    if not 0 <= length <= TEXT_LIMIT:
        raise source.fault(file, f"a text of {length} bytes in {label}", offset=offset)
    octets = source.exactly(file, offset + 4, length, label)
    return octets.decode("latin-1").strip("\0 "), offset + 4 + length


def _axis(name: str, size: int, unit: str | None, calibration: tuple[float, float, int]) -> Axis:
    """Create an axis; without scale if that of the file is invalid."""
    origin, step, pixel = calibration
    begin = origin - pixel * step
    if not (math.isfinite(begin) and math.isfinite(step) and step > 0):
        return Axis(name, size)
    return Axis(name, size, unit, step, begin)


def _offsets(source: Source, file: int, header: _Header) -> Iterator[Indices]:
    """Yield the bytes at which the elements begin, in blocks."""
    width = np.dtype(header.offsets).itemsize
    for at in range(0, header.valid, BLOCK):
        count = min(BLOCK, header.valid - at)
        octets = source.exactly(
            file, header.table + at * width, count * width, "the table of offsets"
        )
        yield np.frombuffer(octets, header.offsets).astype(np.int64)


def _element(source: Source, file: int, offset: int, header: _Header) -> _Element:
    """Read the header of an element."""
    dims = 1 if header.spectra else 2
    size = dims * CALIBRATION.size + 2 + 4 * dims
    if not 0 < offset <= source.files[file].size - size:
        raise source.fault(
            file, f"an element at byte {offset}, where no element fits", offset=header.table
        )
    octets = source.exactly(file, offset, size, "an element's header")
    type_offset = dims * CALIBRATION.size
    code, *lengths = struct.unpack_from(f"<h{dims}i", octets, type_offset)
    if code not in TYPES:
        raise source.fault(
            file, f"pixels of type {code}; 1 to 10 are supported", offset=offset + type_offset
        )
    if min(lengths) < 1:
        raise source.fault(file, f"an element of {lengths} pixels", offset=offset + type_offset + 2)
    calibrations = tuple(CALIBRATION.unpack_from(octets, k * CALIBRATION.size) for k in range(dims))
    return _Element(np.dtype(f"<{TYPES[code]}"), tuple(reversed(lengths)), calibrations)


def _extents(
    source: Source, file: int, header: _Header, prefix: int, first: _Element
) -> list[Extent]:
    """Group equally spaced elements, which must be in order and inside the file."""
    size = prefix + first.nbytes
    room = source.files[file].size - size
    extents: list[Extent] = []
    done, last = 0, None
    for block in _offsets(source, file, header):
        known = block if last is None else np.concatenate([[last], block])
        outside = np.flatnonzero((block < 1) | (block > room))
        overlapping = np.flatnonzero(np.diff(known) < size)
        if len(outside) or len(overlapping):
            _refuse(source, file, header, done, block, outside, overlapping + (last is None), size)
        _append(extents, file, block + prefix, size)
        done, last = done + len(block), int(block[-1])
    return extents


def _refuse(  # noqa: PLR0913, PLR0917 - problems and their position
    source: Source,
    file: int,
    header: _Header,
    done: int,
    block: Indices,
    wrong: npt.NDArray[np.intp],
    close: npt.NDArray[np.intp],
    size: int,
) -> None:
    """Raise an error for the first invalid offset."""
    outside = len(wrong) > 0 and (not len(close) or wrong[0] <= close[0])
    index = int(wrong[0] if outside else close[0])
    width = np.dtype(header.offsets).itemsize
    problem = (
        f"but the file does not contain the {size} bytes from there"
        if outside
        else f"less than {size} bytes after the previous one"
    )
    raise source.fault(
        file,
        f"element {done + index} begins at byte {int(block[index])}, {problem}",
        offset=header.table + (done + index) * width,
        hint=GROWING_HINT,
    )


def _append(extents: list[Extent], file: int, starts: Indices, size: int) -> None:
    """Append elements to the extents, extending the last one if its spacing continues."""
    index = 0
    while index < len(starts):
        begin = int(starts[index])
        if extents and _continues(extents[-1], begin):
            last = extents.pop()
            stride = begin - last.offset if last.frames == 1 else last.stride
            count, offset = last.frames, last.offset
        else:
            stride = int(starts[index + 1]) - begin if index + 1 < len(starts) else size
            count, offset = 0, begin
        run = np.diff(starts[index:]) == stride
        length = len(starts) - index if run.all() else int(np.argmin(run)) + 1
        extents.append(Extent(file, count + length, offset, stride))
        index += length


def _continues(extent: Extent, begin: int) -> bool:
    return extent.frames == 1 or begin == extent.offset + extent.frames * extent.stride


def _examine(  # noqa: PLR0913, PLR0917 - actual and expected elements
    source: Source,
    file: int,
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
        element = _element(source, file, start, header)
        if (element.dtype, element.shape) != (first.dtype, first.shape):
            raise source.fault(
                file,
                f"element {index} is {element.dtype.str} {element.shape}, the first one "
                f"{first.dtype.str} {first.shape}",
                offset=start,
                hint="Save a series in which all elements have one shape and type",
            )


def _axes(header: _Header, first: _Element) -> tuple[Axis, ...]:
    names = ("x",) if header.spectra else ("y", "x")
    calibrations = reversed(first.calibrations)
    return (
        *reversed(header.axes),
        *(
            _axis(name, size, None, calibration)
            for name, size, calibration in zip(names, first.shape, calibrations, strict=True)
        ),
    )
