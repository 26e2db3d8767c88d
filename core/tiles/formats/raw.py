"""Headerless files, and sparse ones (raw_csr), recognised so that the refusal gives the reason."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ...arrays import Array
from ...errors import ShapeError
from ..recording import Extent, FileInfo, Hints, RangeReader
from .files import Files, extension
from .format import Format, Found, check_shape

NUMERIC = "biufc"
"""Kinds of dtype allowed for pixels."""

_LOOKED = 4
"""Frames that are looked at, from the first to the last."""
_SAMPLE = 1 << 14
"""Bytes of each."""
_DOUBTFUL = 8
"""How much larger the values of a wrong byte order are at least."""
_NEGATIVE = 0.75
"""Part of the values that are negative with a wrong sign."""


def _doubts(frames: Sequence[bytes], dtype: np.dtype[Any]) -> list[str]:
    """Return a note if integers look as if they were of another byte order, or without a sign."""
    if dtype.kind not in "iu" or not frames:
        return []
    other, said = dtype.newbyteorder("S"), f"as {dtype.str} "
    stated = [np.frombuffer(octets, dtype) for octets in frames]
    most = [_largest(values) for values in stated]
    swapped = [_largest(values.view(other)) for values in stated]
    wrong = [pair for pair in zip(most, swapped, strict=True) if pair[1] * _DOUBTFUL <= pair[0]]
    # Of a frame of zeros, and of one of a single value, either may be right.
    if len(wrong) > sum(a * _DOUBTFUL <= b for a, b in zip(most, swapped, strict=True)):
        high, low = map(max, zip(*wrong, strict=True))
        said += f"values reach {high:,.0f}, as {other.str} at most {low:,.0f}"
        return [f"{said}: is the byte order of dtype right?"]
    share = np.mean([values < 0 for values in stated])
    unsigned = dtype.str.replace("i", "u")
    text = f"{said}{share:.0%} of the values are negative: is it {unsigned}?"
    return [text] if share > _NEGATIVE else []


def _largest(values: Array) -> float:
    return float(np.abs(values.astype(np.float64)).max())


def _samples(reader: RangeReader, extents: Sequence[Extent], size: int) -> Iterator[bytes]:
    """Yield the beginnings of some frames."""
    ends = list(accumulate(extent.frames for extent in extents))
    looked = range(_LOOKED) if ends[-1] else ()
    for number in sorted({k * (ends[-1] - 1) // (_LOOKED - 1) for k in looked}):
        extent = extents[k := bisect_right(ends, number)]
        start = extent.offset + (number - ends[k] + extent.frames) * extent.stride
        yield reader.read(extent.file, start, start + size)


class Raw(Format):
    """Headerless frames, whose shape and dtype the owner declares; several files are concatenated.

    Any bytes could be headerless frames, so the owner must name the format.
    """

    name = "raw"
    extensions = ("raw",)

    def find(self, files: Files, hints: Hints) -> Found:
        """Count the whole frames of each file, with a note on bytes after the last one.

        Raises:
            FormatError: dtype or sig_shape is missing, or a file is shorter than one frame.
            ShapeError: sig_shape or a header size is invalid.
        """
        dtype, sig_shape = hints.dtype, hints.sig_shape
        if dtype is None or sig_shape is None:
            missing = "dtype" if dtype is None else "sig_shape"
            raise files.first.fault(
                f"the file is headerless, and {missing} is not given",
                hint="Give dtype and sig_shape, or name the format",
            )
        if dtype.kind not in NUMERIC:
            raise files.first.fault(
                f"pixels of dtype {dtype}", hint="Give a numeric dtype, such as <u2"
            )
        check_shape(sig_shape, "sig_shape")
        gaps = (hints.file_header or 0, hints.frame_header or 0, hints.frame_footer or 0)
        if min(gaps) < 0:
            raise ShapeError(f"header and footer sizes {gaps} must not be negative")
        file_header, frame_header, frame_footer = gaps
        stride = frame_header + math.prod(sig_shape) * dtype.itemsize + frame_footer
        extents = []
        for file in files.frames:
            frames, rest = divmod(max(file.size - file_header, 0), stride)
            if not frames and not hints.growing:
                raise file.fault(
                    f"the file has {file.size} bytes, less than one frame: a header of "
                    f"{file_header} bytes, then {stride} per frame",
                    file.size,
                    "Check dtype, sig_shape and the header sizes",
                )
            if rest:
                files.notes.append(
                    f"{file.name}: {rest} bytes after the last whole frame are not used"
                )
            extents.append(Extent(file.index, frames, file_header + frame_header, stride))
        size = min(math.prod(sig_shape), _SAMPLE // dtype.itemsize) * dtype.itemsize
        files.notes.extend(_doubts([*_samples(files.first.reader, extents, size)], dtype))
        return Found(
            extents=extents,
            sig_shape=sig_shape,
            stored=dtype,
            file_header=file_header,
            frame_header=frame_header,
            frame_footer=frame_footer,
        )


class RawCsr(Format):
    """A sparse matrix of frames by pixels, in three files and a TOML description.

    The size of a frame depends on its number of hits, and its values are in two files. A
    recording needs contiguous frames of equal size, so sparse frames cannot be one.
    """

    name = "raw_csr"
    extensions = ("toml",)
    description = "toml"
    names_its_files = True
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the format by the file type in the TOML."""
        return extension(file.name) == "toml" and b"raw_csr" in head.lower()

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Refuse the files.

        Raises:
            FormatError: always.
        """
        raise [*files.companions, *files.frames][0].fault(
            "sparse frames (raw_csr) are not supported",
            hint="Write dense frames, for example with scipy.sparse and numpy.save",
        )
