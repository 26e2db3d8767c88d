"""numpy array files (.npy), versions 1 to 3, in C order."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..recording import Extent, Hints
from .format import Format
from .layout import Found, check_shape, count_frames
from .source import Source

MAGIC = b"\x93NUMPY"
HEADER_LIMIT = 1 << 16
"""Maximum size of a header, that of version 1; only records of many fields need more."""


_ENTRIES = {
    "descr": re.compile(r"""['"]descr['"]\s*:\s*('[^']*'|"[^"]*"|\[|\()"""),
    "fortran_order": re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b"""),
    "shape": re.compile(r"""['"]shape['"]\s*:\s*\(([^()]*)\)"""),
}
"""Entries of the header, a Python dictionary; matching it avoids evaluating it."""

_PLAIN = re.compile(r"""(['"])(?:[<>=|]?[iu][1248]|[<>=|]?f[248]|[<>=|]?c(?:8|16)|\|?b1)\1""")
_DIMENSIONS = 2
"""Dimensions of a frame, unless the owner says otherwise."""
_DIGITS = 20
"""Sizes must have fewer digits: 2**64 has twenty."""


def _header(source: Source, file: int) -> tuple[dict[str, str], int]:
    """Return the entries of a header, and the byte at which the values begin."""
    prefix = source.exactly(file, 0, 8, "the magic string")
    if prefix[:6] != MAGIC:
        raise source.fault(file, "the file does not begin with numpy's magic string")
    version = prefix[6]
    if version not in {1, 2, 3} or prefix[7]:
        raise source.fault(
            file, f"version {prefix[6]}.{prefix[7]} of the format; 1.0 to 3.0 are known", offset=6
        )
    width = 2 if version == 1 else 4
    length = int.from_bytes(source.exactly(file, 8, width, "the header length"), "little")
    if length > HEADER_LIMIT:
        raise source.fault(file, f"a header of {length} bytes", offset=8)
    text = source.exactly(file, 8 + width, length, "the header").decode("latin-1")
    values = {key: pattern.findall(text) for key, pattern in _ENTRIES.items()}
    if any(len(value) != 1 for value in values.values()):
        raise source.fault(file, "the header is not numpy's dictionary", offset=8 + width)
    return {key: value[0] for key, value in values.items()}, 8 + width + length


def _dtype(source: Source, file: int, descr: str) -> np.dtype[Any]:
    dtype = np.dtype(descr[1:-1]) if _PLAIN.fullmatch(descr) else None
    if dtype is None:
        raise source.fault(
            file,
            f"pixels of type {descr[:60]}",
            offset=10,
            hint="Save an array of plain integers or floats of at most 8 bytes",
        )
    return dtype


def _array(source: Source, file: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    header, start = _header(source, file)
    dtype = _dtype(source, file, header["descr"])
    sizes = [size.strip().rstrip("L") for size in header["shape"].split(",")]
    if not all(size.isdigit() and len(size) < _DIGITS for size in sizes if size):
        raise source.fault(file, f"the shape ({header['shape'][:60]}) is not one", offset=10)
    shape = tuple(int(size) for size in sizes if size)
    if header["fortran_order"] == "True" and len(shape) > 1:
        raise source.fault(
            file,
            "the array is in Fortran order, in which frames are not contiguous",
            offset=10,
            hint="Save it again with numpy.save(file, numpy.ascontiguousarray(array))",
        )
    if not math.prod(shape):
        raise source.fault(file, f"the array of shape {shape} is empty", offset=10)
    return dtype, shape, start


def _split(shape: tuple[int, ...], hints: Hints) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the shape of an array into navigation and signal shape."""
    sig, nav = hints.sig_shape, hints.nav_shape
    if sig is None and nav is not None and len(nav) < len(shape) and shape[: len(nav)] == nav:
        return nav, shape[len(nav) :]
    if sig is None:
        if len(shape) < _DIMENSIONS:
            raise ShapeError(
                f"an array of shape {shape} needs sig_shape to have frames",
                hint='Give "sig_shape": [1] if each value is a frame, or the label of one',
            )
        return shape[:-2], shape[-2:]
    check_shape(sig, "sig_shape")
    if len(sig) <= len(shape) and shape[len(shape) - len(sig) :] == sig:
        return shape[: len(shape) - len(sig)], sig
    pixels = math.prod(sig)
    scan = shape[:-_DIMENSIONS] if nav is None or shape[: len(nav)] != nav else nav
    if scan and math.prod(shape[len(scan) :]) == pixels:
        return scan, sig
    # Of a list of values or of rows nobody knows where frames begin.
    total, is_list = math.prod(shape), len(shape) <= _DIMENSIONS
    if total % pixels or not is_list:
        raise ShapeError(
            f"an array of shape {shape} does not consist of frames of sig_shape {sig}",
            hint="Omit sig_shape, or set it to the last dimensions",
        )
    return (total // pixels,), sig


@dataclass(frozen=True, slots=True)
class _Array:
    dtype: np.dtype[Any]
    nav: tuple[int, ...]
    sig: tuple[int, ...]
    start: int


def _frames(source: Source, file: int, hints: Hints) -> _Array:
    """Read the header of an array and divide it into frames according to the hints."""
    dtype, shape, start = _array(source, file)
    try:
        nav, sig = _split(shape, hints)
    except ShapeError as error:
        name = source.files[file].name
        raise ShapeError(error.message, source=name, offset=10, hint=error.hint) from None
    return _Array(dtype, nav, sig, start)


class Npy(Format):
    """Arrays saved with numpy; several files are concatenated."""

    name = "npy"
    magic = MAGIC
    extensions = ("npy",)

    def find(self, source: Source, hints: Hints) -> Found:
        """Read each header; without hints, the last two dimensions are a frame.

        Raises:
            FormatError: an array holds records or objects, is in Fortran order or truncated,
                or differs from the first in dtype or frame shape.
            ShapeError: the hints do not fit an array.
        """
        extents: list[Extent] = []
        notes: list[str] = []
        arrays = [_frames(source, index, hints) for index in range(len(source.files))]
        first = arrays[0]
        for index, array in enumerate(arrays):
            if (array.dtype, array.sig) != (first.dtype, first.sig):
                raise source.fault(
                    index,
                    f"frames of {array.dtype.str} {array.sig}, but {first.dtype.str} {first.sig} "
                    f"in {source.files[0].name}",
                    offset=10,
                    hint="Register each file as a dataset of its own",
                )
            stride = math.prod(array.sig) * array.dtype.itemsize
            frames = count_frames(
                source,
                index,
                array.start,
                stride,
                growing=hints.growing and index == len(source.files) - 1,
                declared=math.prod(array.nav),
                notes=notes,
            )
            extents.append(Extent(index, frames, array.start, stride))
        return Found(
            format=self.name,
            extents=extents,
            sig_shape=first.sig,
            stored=first.dtype,
            nav_shape=_joined([array.nav for array in arrays]),
            file_header=extents[0].offset,
            notes=notes,
        )


def _joined(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the scan shape of concatenated arrays; flat if their rows differ."""
    if len(shapes) == 1:
        return shapes[0] or (1,)
    rest = shapes[0][1:]
    if all(len(shape) > 0 and shape[1:] == rest for shape in shapes):
        return (sum(shape[0] for shape in shapes), *rest)
    return (sum(math.prod(shape) for shape in shapes),)
