"""Headerless files, and sparse ones (raw_csr), recognised so that the refusal gives the reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..recording import Extent, FileInfo, Hints
from .files import Files, extension
from .format import Format, Found, check_shape

NUMERIC = "biufc"
"""Kinds of dtype allowed for pixels."""

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
            if not file.index:
                start, size = file_header + frame_header, stride - frame_header - frame_footer
                octets = file.reader.read(0, start, start + min(size, _SAMPLE))
                files.notes.extend(_doubts(octets, dtype))
            extents.append(Extent(file.index, frames, file_header + frame_header, stride))
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
