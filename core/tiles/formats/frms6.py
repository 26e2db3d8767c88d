"""PNDetector FRMS6 files: frames with folded rows; the first file holds dark frames."""

from __future__ import annotations

import configparser
import re
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Octets
from ...errors import FormatError, ShapeError
from .._kernels.unpack import unfold
from ..packing import Decoder, Shape
from ..recording import BuiltIn, Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .source import Source, only

FILE_HEADER = 1024
FRAME_HEADER = 64
VERSION = 6
SIZES = struct.Struct("<HH")
SIZES_AT = 88
COUNT = struct.Struct("<I")
COUNT_AT = 1020
SECTION = "measurementInfo"
BINNINGS = {1, 2, 4}
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


def _measurement(source: Source, file: int) -> _Measurement:
    parser = configparser.RawConfigParser(strict=False)
    hint = "Copy the .hdr file of the measurement again"
    try:
        parser.read_string(source.text(file))
        values = dict(parser.items(SECTION))
    except configparser.Error as error:
        message = str(error).splitlines()[0]
        raise source.fault(file, f"no [{SECTION}] can be read: {message}", hint=hint) from None
    readout = _READOUT.fullmatch(values.get("readoutmode", "").strip())
    if readout is None or int(readout[1]) not in BINNINGS:
        raise source.fault(file, "readoutmode does not give a binning of 1, 2 or 4", hint=hint)
    scan = _SCAN.fullmatch(values.get("stemimagesize", "").strip())
    if scan is None:
        raise source.fault(file, "stemimagesize does not give a scan", hint=hint)
    frames = values.get("signalframes", "")
    known = frames.isascii() and frames.isdigit() and len(frames) < 10  # noqa: PLR2004 - below 1e9
    return _Measurement(
        int(readout[1]), (int(scan[1]), int(scan[2])), int(frames) if known else None, values
    )


@dataclass(frozen=True, slots=True)
class _Head:
    columns: int
    rows: int
    frames: int

    @property
    def stride(self) -> int:
        return FRAME_HEADER + self.columns * self.rows * 2


def _head(source: Source, file: int, *, growing: bool) -> _Head:
    octets = source.exactly(file, 0, FILE_HEADER, "the file header")
    size, frame_header = SIZES.unpack_from(octets)
    if (size, frame_header, octets[7]) != (FILE_HEADER, FRAME_HEADER, VERSION):
        raise source.fault(
            file, f"headers of {size} and {frame_header} bytes, version {octets[7]}: no FRMS6 file"
        )
    columns, rows = SIZES.unpack_from(octets, SIZES_AT)
    if not rows or not columns or columns % 2:
        raise source.fault(file, f"{rows} rows of {columns} columns", offset=SIZES_AT)
    stride = FRAME_HEADER + columns * rows * 2
    (declared,) = COUNT.unpack_from(octets, COUNT_AT)
    frames = count_frames(
        source, file, FILE_HEADER, stride, growing=growing, declared=declared or None
    )
    return _Head(columns, rows, frames)


class Frms6(Format):
    """Files with the suffixes _000 (dark frames), _001 and so on, and the .hdr file."""

    name = "frms6"
    extensions = ("frms6",)
    description = "hdr"
    series = True
    decoders = tuple(FOLDED.values())

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise sizes and version in the file header, or the section of the .hdr file."""
        if self.is_companion(file.name):
            return f"[{SECTION}]".encode() in head
        if len(head) < FILE_HEADER:
            return False
        return SIZES.unpack_from(head) == (FILE_HEADER, FRAME_HEADER) and head[7] == VERSION

    def find(self, source: Source, hints: Hints) -> Found:
        """Read all headers, and average the dark frames.

        Raises:
            FormatError: a file is missing or truncated, or headers are invalid or differ.
        """
        data, companions = self.split(source)
        companion = only(source, companions, ".hdr file")
        measured = _measurement(source, companion)
        for number, file in enumerate(data):
            match = _NUMBER.search(source.files[file].name)
            if match is None or int(match[1][:9]) != number:
                raise source.fault(
                    file,
                    f"file {number} of a measurement must have the number {number:03}",
                    hint="Add the missing files; number 000 holds the dark frames",
                )
        if len(data) < 2:  # noqa: PLR2004 - dark frames and signal
            raise source.fault(companion, "there is no file with signal frames, number 001")
        heads = [_head(source, file, growing=hints.growing and file == data[-1]) for file in data]
        for file, head in zip(data, heads, strict=True):
            if (head.columns, head.rows) != (heads[0].columns, heads[0].rows):
                raise source.fault(
                    file,
                    f"{head.rows} rows of {head.columns} columns, but {heads[0].rows} of "
                    f"{heads[0].columns} in {source.files[data[0]].name}",
                    offset=SIZES_AT,
                    hint="Register each measurement as a dataset of its own",
                )
        frames = sum(head.frames for head in heads[1:])
        if measured.frames is not None and frames < measured.frames and not hints.growing:
            raise source.fault(
                data[-1],
                f"the files hold {frames} of {measured.frames} signal frames",
                offset=source.files[data[-1]].size,
                hint="If the last file is still being written, declare the dataset growing",
            )
        head = heads[0]
        notes = []
        if measured.frames is not None and frames > measured.frames:
            notes.append(
                f"the .hdr file declares only {measured.frames} of the {frames} signal frames"
            )
        sig_shape = (2 * head.rows * measured.binning, head.columns // 2)
        decoder = FOLDED[measured.binning]
        return Found(
            format=self.name,
            extents=[
                Extent(file, h.frames, FILE_HEADER + FRAME_HEADER, h.stride)
                for file, h in zip(data[1:], heads[1:], strict=True)
            ],
            sig_shape=sig_shape,
            decoder=decoder.name,
            dtype=np.dtype("u2"),
            frame_bytes=head.stride - FRAME_HEADER,
            nav_shape=measured.scan,
            file_header=FILE_HEADER,
            frame_header=FRAME_HEADER,
            metadata={"measurement": measured.values, "binning": measured.binning},
            built_in=BuiltIn(dark=_dark(source, data[0], head, decoder, sig_shape)),
            notes=notes,
        )


def _dark(
    source: Source, file: int, head: _Head, decoder: Decoder, sig_shape: tuple[int, int]
) -> npt.NDArray[np.float32] | None:
    """Return the mean of the dark frames; None if there are none."""
    if not head.frames:
        return None
    if head.frames * head.stride > DARK_LIMIT:
        raise FormatError(
            f"{head.frames} dark frames of {head.stride} bytes; at most {DARK_LIMIT} are averaged",
            source=source.files[file].name,
            offset=COUNT_AT,
        )
    total = np.zeros(sig_shape[0] * sig_shape[1], np.float64)
    batch = max(DARK_BLOCK // head.stride, 1)
    for first in range(0, head.frames, batch):
        count = min(batch, head.frames - first)
        start = FILE_HEADER + first * head.stride + FRAME_HEADER
        octets = source.exactly(file, start, count * head.stride - FRAME_HEADER, "the dark frames")
        pixels = np.empty((count, len(total)), np.uint16)
        raw = np.frombuffer(bytearray(octets), np.uint8)
        decoder.decode(raw, head.stride, pixels, sig_shape)
        total += pixels.sum(axis=0, dtype=np.float64)
    return (total / head.frames).reshape(sig_shape).astype(np.float32)
