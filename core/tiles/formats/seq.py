"""Norpix StreamPix sequences: a header, then frames, each followed by a timestamp."""

from __future__ import annotations

import math
import struct

import numpy as np

from ..recording import Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .seq_companions import KINDS, built_in, kind_of
from .source import Source, only

MAGIC = 0xFEED
HEADER = struct.Struct("<I24sii512sIIIIIIIIIdiIIIiiiIiHH")
FIELDS = (
    "magic",
    "name",
    "version",
    "header_size",
    "description",
    "width",
    "height",
    "bit_depth",
    "bit_depth_real",
    "image_size",
    "image_format",
    "allocated_frames",
    "origin",
    "true_image_size",
    "frame_rate",
    "description_format",
    "reference_frame",
    "fixed_size",
    "flags",
    "bayer_pattern",
    "time_offset_us",
    "extended_header_size",
    "compression_format",
    "reference_time_s",
    "reference_time_ms",
    "reference_time_us",
)
MONOCHROME = 100
FIRST_FRAME = {False: 1024, True: 8192}
"""Byte at which the first frame begins, by whether the version is 5 or later."""

VERSION_OF_LONG_HEADERS = 5
BIT_DEPTHS = {8, 16, 32}


def _offset_of(field: str) -> int:
    formats = HEADER.format.removeprefix("<")
    sizes: list[int] = []
    digits = ""
    for letter in formats:
        if letter.isdigit():
            digits += letter
        else:
            sizes.append(struct.calcsize(f"<{digits}{letter}"))
            digits = ""
    return sum(sizes[: FIELDS.index(field)])


class Seq(Format):
    """One .seq file, with optional companions: dark and gain images and bad pixels."""

    name = "seq"
    extensions = ("seq",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the magic number and the name after it."""
        return head.startswith(MAGIC.to_bytes(4, "little")) and head[4:24:2] == b"Norpix seq"

    def is_companion(self, name: str) -> bool:
        """Whether the file holds corrections or settings of the camera."""
        return kind_of(name) is not None

    def find(self, source: Source, hints: Hints) -> Found:
        """Read the header, and the corrections if their files are present.

        Raises:
            FormatError: the frames are compressed or coloured, the file is truncated, or the
                header is invalid.
        """
        kinds = [kind_of(file.name) for file in source.files]
        data = only(source, [i for i, kind in enumerate(kinds) if kind is None], ".seq file")
        values = dict(
            zip(
                FIELDS,
                HEADER.unpack(source.exactly(data, 0, HEADER.size, "the header")),
                strict=True,
            )
        )

        def check(field: str, known: bool, hint: str) -> None:
            if not known:
                raise source.fault(
                    data,
                    f"{field} is {values[field]} in the header",
                    offset=_offset_of(field),
                    hint=hint,
                )

        check("magic", values["magic"] == MAGIC, f"A sequence begins with {MAGIC:#x}")
        check("bit_depth", values["bit_depth"] in BIT_DEPTHS, "Supported are 8, 16 and 32")
        check("width", values["width"] > 0, "Check that the file is not damaged")
        check("height", values["height"] > 0, "Check that the file is not damaged")
        check(
            "image_format",
            values["image_format"] == MONOCHROME,
            "Only monochrome frames, format 100, are supported",
        )
        check(
            "compression_format",
            values["compression_format"] == 0,
            "Export the sequence without compression",
        )
        stored = np.dtype(f"<u{values['bit_depth'] // 8}")
        frame_bytes = values["width"] * values["height"] * stored.itemsize
        stride = values["true_image_size"]
        check(
            "true_image_size",
            stride >= frame_bytes,
            f"It must be at least {frame_bytes}, the size of a frame",
        )
        start = FIRST_FRAME[values["version"] >= VERSION_OF_LONG_HEADERS]
        notes: list[str] = []
        frames = count_frames(
            source,
            data,
            start,
            stride,
            growing=hints.growing,
            declared=values["allocated_frames"] or None,
            notes=notes,
        )
        sig_shape = (values["height"], values["width"])
        companions = {kind: kinds.index(kind) for kind in KINDS if kind in kinds}
        return Found(
            format=self.name,
            extents=[Extent(data, frames, start, stride)],
            sig_shape=sig_shape,
            stored=stored,
            file_header=start,
            frame_footer=stride - frame_bytes,
            metadata={
                **{k: v for k, v in values.items() if isinstance(v, int)},
                "frame_rate": values["frame_rate"] if math.isfinite(values["frame_rate"]) else None,
                "description": _decode_text(values["description"]),
            },
            built_in=built_in(source, companions, sig_shape, notes),
            notes=notes,
        )


def _decode_text(octets: bytes) -> str:
    """Decode UTF-16 text up to its null terminator."""
    return octets.decode("utf-16-le", errors="replace").partition("\0")[0]
