"""PNDetector FRMS6 files: frames with folded rows; the first file holds dark frames."""

from __future__ import annotations

import configparser
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Octets
from ...errors import ShapeError
from .._kernels.unpack import unfold
from ..packing import Decoder, Shape
from ..recording import BuiltIn, Extent, FileInfo, Hints
from .files import Check, File, Files, fields_of, offset_of, only
from .format import Format, Found

FRAME_HEADER = 64
HEADER = np.dtype(
    {
        "names": ["size", "frame_header", "version", "columns", "rows", "frames"],
        "formats": ["<u2", "<u2", "u1", "<u2", "<u2", "<u4"],
        "offsets": [0, 2, 7, 88, 90, 1020],
        "itemsize": 1024,
    }
)
CHECKS = (
    Check(
        "size",
        lambda v: (v["size"], v["frame_header"], v["version"]) == (1024, FRAME_HEADER, 6),
        "headers of {size} and {frame_header} bytes, version {version}: not an FRMS6 file",
    ),
    Check(
        "columns",
        lambda v: v["rows"] and v["columns"] and v["columns"] % 2 == 0,
        "{rows} rows of {columns} columns",
    ),
)
SECTION = "measurementInfo"
DARK_LIMIT = 1 << 32
"""Maximum bytes of dark frames, which are averaged when a dataset is opened."""

DARK_BLOCK = 1 << 23

_READOUT = re.compile(r'"?bin:\s*([0-9]{1,3}),\s*windowing:\s*[0-9]+\s*x\s*[0-9]+\s*"?')
_SCAN = re.compile(r"([0-9]{1,9})\s*x\s*([0-9]{1,9})")
_NUMBER = re.compile(r"_([0-9]+)\.frms6$", re.IGNORECASE)


def _folded(binning: int, sample_shape: Shape) -> Decoder:
    def size(sig_shape: Shape) -> int:
        if len(sig_shape) != 2 or sig_shape[0] < 1 or sig_shape[0] % (2 * binning):  # noqa: PLR2004
            raise ShapeError(f"frames of {sig_shape} are not two halves of rows binned {binning}")
        return sig_shape[0] // binning * sig_shape[1] * 2

    def decode(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        unfold(raw, stride, out, sig_shape[0] // (2 * binning), sig_shape[1], binning)

    return Decoder(f"frms6_bin{binning}", np.dtype("u2"), size, decode, sample_shape)


FOLDED = {1: _folded(1, (4, 2)), 2: _folded(2, (4, 2)), 4: _folded(4, (8, 2))}
"""Decoders by binning; a stored row holds one row of each half of the frame."""


@dataclass(frozen=True, slots=True)
class _Measurement:
    binning: int
    scan: tuple[int, int]
    frames: int | None
    values: dict[str, str]


def _measurement(file: File) -> _Measurement:
    parser = configparser.RawConfigParser(strict=False)
    hint = "Copy the .hdr file of the measurement again"
    try:
        parser.read_string(file.text())
        values = dict(parser.items(SECTION))
    except configparser.Error as error:
        message = str(error).splitlines()[0]
        raise file.fault(f"no [{SECTION}] can be read: {message}", hint=hint) from None
    readout = _READOUT.fullmatch(values.get("readoutmode", "").strip())
    if readout is None or int(readout[1]) not in FOLDED:
        raise file.fault("readoutmode does not give a binning of 1, 2 or 4", hint=hint)
    scan = _SCAN.fullmatch(values.get("stemimagesize", "").strip())
    if scan is None:
        raise file.fault("stemimagesize does not give a scan", hint=hint)
    frames = values.get("signalframes", "")
    known = frames.isascii() and frames.isdigit() and len(frames) < 10  # noqa: PLR2004 - below 1e9
    return _Measurement(
        int(readout[1]), (int(scan[1]), int(scan[2])), int(frames) if known else None, values
    )


class Frms6(Format):
    """Files with the suffixes _000 (dark frames), _001 and so on, and the .hdr file."""

    name = "frms6"
    extensions = ("frms6",)
    description = "hdr"
    series = True
    numbered = True
    decoders = tuple(FOLDED.values())

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise sizes and version in the file header, or the section of the .hdr file."""
        if self.is_companion(file.name):
            return f"[{SECTION}]".encode() in head
        return len(head) >= HEADER.itemsize and CHECKS[0].holds(fields_of(head, HEADER))

    def find(self, files: Files, hints: Hints) -> Found:
        """Read all headers, and average the dark frames.

        Raises:
            FormatError: a file is missing or truncated, or headers are invalid or differ.
        """
        companion = only(files.companions, ".hdr file")
        measured = _measurement(companion)
        for number, file in enumerate(files.frames):
            match = _NUMBER.search(file.name)
            if match is None or int(match[1][:9]) != number:
                raise file.fault(
                    f"file {number} of a measurement must have the number {number:03}",
                    hint="Add the missing files; number 000 holds the dark frames",
                )
        if len(files.frames) < 2:  # noqa: PLR2004 - dark frames and signal
            raise companion.fault("there is no file with signal frames, number 001")
        (rows, columns), (darks, *extents) = _headers(files.frames)
        frames, last = sum(extent.frames for extent in extents), files.frames[-1]
        if measured.frames is not None and frames < measured.frames and not hints.growing:
            raise last.fault(
                f"the files hold {frames} of {measured.frames} signal frames",
                last.size,
                "If the last file is still being written, declare the dataset growing",
            )
        if measured.frames is not None and frames > measured.frames:
            files.notes.append(
                f"the .hdr file declares only {measured.frames} of the {frames} signal frames"
            )
        sig_shape = (2 * rows * measured.binning, columns // 2)
        decoder = FOLDED[measured.binning]
        return Found(
            extents=extents,
            sig_shape=sig_shape,
            stored=decoder.dtype,
            decoder=decoder,
            nav_shape=measured.scan,
            file_header=HEADER.itemsize,
            frame_header=FRAME_HEADER,
            metadata={"measurement": measured.values, "binning": measured.binning},
            built_in=BuiltIn(dark=_dark(files.frames[0], darks, decoder, sig_shape)),
        )


def _headers(files: Sequence[File]) -> tuple[tuple[int, int], list[Extent]]:
    """Return rows and columns of the stored frames, and the frames of each file."""
    heads = [file.record(HEADER, 0, "the file header", CHECKS) for file in files]
    extents = [
        file.extent(
            HEADER.itemsize,
            FRAME_HEADER + head["columns"] * head["rows"] * 2,
            header=FRAME_HEADER,
            declared=head["frames"] or None,
            noted=False,
        )
        for file, head in zip(files, heads, strict=True)
    ]
    rows, columns = heads[0]["rows"], heads[0]["columns"]
    for file, head in zip(files, heads, strict=True):
        if (head["rows"], head["columns"]) != (rows, columns):
            raise file.fault(
                f"{head['rows']} rows of {head['columns']} columns, but {rows} of {columns} in "
                f"{files[0].name}",
                offset_of(HEADER, "columns"),
                "Register each measurement as a dataset of its own",
            )
    return (rows, columns), extents


def _dark(
    file: File, extent: Extent, decoder: Decoder, sig_shape: tuple[int, int]
) -> npt.NDArray[np.float32] | None:
    """Return the mean of the dark frames; None if there are none."""
    frames, stride = extent.frames, extent.stride
    if not frames:
        return None
    if frames * stride > DARK_LIMIT:
        raise file.fault(
            f"{frames} dark frames of {stride} bytes; at most {DARK_LIMIT} are averaged",
            offset_of(HEADER, "frames"),
        )
    total = np.zeros(sig_shape[0] * sig_shape[1], np.float64)
    batch = max(DARK_BLOCK // stride, 1)
    for first in range(0, frames, batch):
        count = min(batch, frames - first)
        start = extent.offset + first * stride
        octets = file.exactly(start, count * stride - FRAME_HEADER, "the dark frames")
        pixels = np.empty((count, len(total)), np.uint16)
        decoder.decode(np.frombuffer(bytearray(octets), np.uint8), stride, pixels, sig_shape)
        total += pixels.sum(axis=0, dtype=np.float64)
    return (total / frames).reshape(sig_shape).astype(np.float32)
