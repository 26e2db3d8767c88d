"""numpy array files (.npy), versions 1 to 3, in C order."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..recording import Hints
from .arrays import concatenated
from .files import File, Files
from .format import Format, Found, check_shape

MAGIC = b"\x93NUMPY"
HEADER_LIMIT = 1 << 16
"""Maximum size of a header, that of version 1; only records of many fields need more."""


_ENTRIES = {
    "descr": re.compile(r"""['"]descr['"]\s*:\s*('[^']*'|"[^"]*"|\[[^\]]*\]?|\([^)]*\)?)"""),
    "fortran_order": re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b"""),
    "shape": re.compile(r"""['"]shape['"]\s*:\s*\(([^()]*)\)"""),
}
"""Entries of the header, a Python dictionary; matching it avoids evaluating it."""

_PLAIN = re.compile(r"""(['"])(?:[<>=|]?[iu][1248]|[<>=|]?f[248]|[<>=|]?c(?:8|16)|\|?b1)\1""")
_DIMENSIONS = 2
"""Dimensions of a frame, unless the owner says otherwise."""
_COLOURS = frozenset({3, 4})
_DIGITS = 20
"""Sizes must have fewer digits: 2**64 has twenty."""


def _header(file: File) -> tuple[dict[str, str], int]:
    """Return the entries of a header, and the byte at which the values begin."""
    prefix = file.exactly(0, 8, "the magic string")
    if prefix[:6] != MAGIC:
        raise file.fault("the file does not begin with numpy's magic string")
    version = prefix[6]
    if version not in {1, 2, 3} or prefix[7]:
        raise file.fault(
            f"version {prefix[6]}.{prefix[7]} of the format; 1.0 to 3.0 are known", offset=6
        )
    width = 2 if version == 1 else 4
    length = int.from_bytes(file.exactly(8, width, "the header length"), "little")
    if length > HEADER_LIMIT:
        raise file.fault(f"a header of {length} bytes", offset=8)
    text = file.exactly(8 + width, length, "the header").decode("latin-1")
    values = {key: pattern.findall(text) for key, pattern in _ENTRIES.items()}
    if any(len(value) != 1 for value in values.values()):
        raise file.fault("the header is not numpy's dictionary", offset=8 + width)
    return {key: value[0] for key, value in values.items()}, 8 + width + length


def _dtype(file: File, descr: str) -> np.dtype[Any]:
    dtype = np.dtype(descr[1:-1]) if _PLAIN.fullmatch(descr) else None
    if dtype is None:
        raise file.fault(
            f"pixels of type {descr[:60]}",
            offset=10,
            hint="Save an array of plain integers or floats of at most 8 bytes",
        )
    return dtype


def _array(file: File) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    header, start = _header(file)
    dtype = _dtype(file, header["descr"])
    sizes = [size.strip().rstrip("L") for size in header["shape"].split(",")]
    if not all(size.isdigit() and len(size) < _DIGITS for size in sizes if size):
        raise file.fault(f"the shape ({header['shape'][:60]}) is not one", offset=10)
    shape = tuple(int(size) for size in sizes if size)
    if header["fortran_order"] == "True" and len(shape) > 1:
        raise file.fault(
            "the array is in Fortran order, in which frames are not contiguous",
            offset=10,
            hint="Save it again with numpy.save(file, numpy.ascontiguousarray(array))",
        )
    if not math.prod(shape):
        raise file.fault(f"the array of shape {shape} is empty", offset=10)
    return dtype, shape, start


def _split(shape: tuple[int, ...], hints: Hints) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the shape of an array into navigation and signal shape."""
    sig, nav = hints.sig_shape, hints.nav_shape
    if sig is None and nav is not None and len(nav) < len(shape) and shape[: len(nav)] == nav:
        return nav, shape[len(nav) :]
    if sig is None:
        # Each value of a list is a frame, or the label of one.
        return (shape[:-2], shape[-2:]) if len(shape) >= _DIMENSIONS else (shape, (1,))
    check_shape(sig, "sig_shape")
    if len(sig) <= len(shape) and shape[len(shape) - len(sig) :] == sig:
        return shape[: len(shape) - len(sig)], sig
    pixels, total = math.prod(sig), math.prod(shape)
    scan = shape[:-_DIMENSIONS] if nav is None or shape[: len(nav)] != nav else nav
    frame = [n for n in shape[len(scan) :] if n > 1]
    fits = len(frame) < _DIMENSIONS or frame == [n for n in sig if n > 1]
    if scan and fits and math.prod(frame) == pixels:
        return scan, sig
    # Of a list of values or of rows nobody knows where frames begin; but rows stay rows.
    rows = len(shape) == _DIMENSIONS and (sig[-1] == shape[-1] or not shape[-1] % pixels)
    if total % pixels or not (rows or len(shape) < _DIMENSIONS):
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


def _frames(file: File, hints: Hints) -> _Array:
    """Read the header of an array and divide it into frames according to the hints."""
    dtype, shape, start = _array(file)
    try:
        nav, sig = _split(shape, hints)
    except ShapeError as error:
        raise ShapeError(error.message, source=file.name, offset=10, hint=error.hint) from None
    return _Array(dtype, nav, sig, start)


class Npy(Format):
    """Arrays saved with numpy; several files are concatenated."""

    name = "npy"
    magic = MAGIC
    extensions = ("npy",)

    def find(self, files: Files, hints: Hints) -> Found:
        """Read each header; without hints, the last two axes are a frame, or a value of a list.

        Raises:
            FormatError: an array holds records or objects, is in Fortran order or truncated,
                or differs from the first in dtype or frame shape.
            ShapeError: the hints do not fit an array.
        """
        arrays = [_frames(file, hints) for file in files.frames]
        first, extents = arrays[0], []
        unsaid = hints.sig_shape is None and hints.nav_shape is None
        if unsaid and len(first.nav) > 1 and first.sig[-1] in _COLOURS:
            files.notes.append(
                f"frames are {list(first.sig)}, the last two axes: if they are pictures of"
                f" {first.sig[-1]} colours, register sig_shape {[first.nav[-1], *first.sig]}"
            )
        for file, array in zip(files.frames, arrays, strict=True):
            if (array.dtype, array.sig) != (first.dtype, first.sig):
                raise file.fault(
                    f"frames of {array.dtype.str} {array.sig}, but {first.dtype.str} {first.sig} "
                    f"in {files.first.name}",
                    10,
                    "Register each file as a dataset of its own",
                )
            stride = math.prod(array.sig) * array.dtype.itemsize
            extents.append(file.extent(array.start, stride, declared=math.prod(array.nav)))
        return Found(
            extents=extents,
            sig_shape=first.sig,
            stored=first.dtype,
            nav_shape=concatenated([array.nav for array in arrays]) or (1,),
            file_header=first.start,
        )
