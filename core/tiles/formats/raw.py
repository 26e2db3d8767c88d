"""Headerless files: frames whose shape and dtype the owner declares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import FormatError, ShapeError
from ..recording import Extent, FileInfo, Hints
from .format import Format
from .layout import NUMERIC, Found, check_shape
from .source import Source

_SAMPLE = 1 << 16
"""Bytes of the first frame that are looked at."""
_DOUBTFUL = 8
"""How much larger the values of a wrong byte order are at least."""


def _doubts(octets: bytes, dtype: np.dtype[Any]) -> list[str]:
    """Return a note if integers are much smaller in the other byte order than in the stated one."""
    count = len(octets) // dtype.itemsize
    if dtype.kind not in "iu" or not count:
        return []
    other = dtype.newbyteorder("S")
    most, swapped = (
        float(np.abs(np.frombuffer(octets, each, count).astype(np.float64)).max())
        for each in (dtype, other)
    )
    if swapped * _DOUBTFUL > most or not most:
        return []
    values = f"as {dtype.str} values of the first frame reach {most:,.0f}"
    return [f"{values}, as {other.str} at most {swapped:,.0f}: is the byte order of dtype right?"]


class Raw(Format):
    """Headerless frames; several files are concatenated."""

    name = "raw"
    extensions = ("raw",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Return False: any bytes could be headerless frames, so the owner must name the format."""
        return False

    def find(self, source: Source, hints: Hints) -> Found:
        """Count the whole frames of each file, with a note on bytes after the last one.

        Raises:
            FormatError: dtype or sig_shape is missing, or a file is shorter than one frame.
            ShapeError: sig_shape or a header size is invalid.
        """
        dtype, sig_shape = hints.dtype, hints.sig_shape
        if dtype is None or sig_shape is None:
            missing = "dtype" if dtype is None else "sig_shape"
            raise source.fault(
                0,
                f"the file is headerless, and {missing} is not given",
                hint="Give dtype and sig_shape, or name the format",
            )
        if dtype.kind not in NUMERIC:
            raise source.fault(
                0, f"pixels of dtype {dtype}", hint="Give a numeric dtype, such as <u2"
            )
        check_shape(sig_shape, "sig_shape")
        gaps = (hints.file_header or 0, hints.frame_header or 0, hints.frame_footer or 0)
        if min(gaps) < 0:
            raise ShapeError(f"header and footer sizes {gaps} must not be negative")
        file_header, frame_header, frame_footer = gaps
        frame_bytes = math.prod(sig_shape) * dtype.itemsize
        stride = frame_header + frame_bytes + frame_footer
        extents, notes = [], []
        for index, file in enumerate(source.files):
            frames, rest = divmod(max(file.size - file_header, 0), stride)
            if not frames and not hints.growing:
                raise FormatError(
                    f"the file has {file.size} bytes, less than one frame: a header of "
                    f"{file_header} bytes, then {stride} per frame",
                    source=file.name,
                    offset=file.size,
                    hint="Check dtype, sig_shape and the header sizes",
                )
            if rest:
                notes.append(f"{file.name}: {rest} bytes after the last whole frame are not used")
            if not index:
                start = file_header + frame_header
                octets = source.reader.read(0, start, start + min(frame_bytes, _SAMPLE))
                notes += _doubts(octets, dtype)
            extents.append(Extent(index, frames, file_header + frame_header, stride))
        return Found(
            format=self.name,
            extents=extents,
            sig_shape=sig_shape,
            stored=dtype,
            file_header=file_header,
            frame_header=frame_header,
            frame_footer=frame_footer,
            notes=notes,
        )
