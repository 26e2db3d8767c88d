"""Norpix StreamPix sequences: a header, then frames, each followed by a timestamp.

Companion files hold corrections: dark and gain images, and the map of bad pixels.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np

from ...arrays import Floats, Indices
from ...budget import current
from ..recording import BuiltIn, FileInfo, Hints
from .files import Check, File, Files, Values, offset_of, only, packed, read_xml
from .format import Format, Found
from .mrc import Mrc

MAGIC = 0xFEED
MONOCHROME = 100
HEADER = packed("""
    magic <u4  name V24  version <i4  header_size <i4  description V512  width <u4  height <u4
    bit_depth <u4  bit_depth_real <u4  image_size <u4  image_format <u4  allocated_frames <u4
    origin <u4  true_image_size <u4  frame_rate <f8  description_format <i4  reference_frame <u4
    fixed_size <u4  flags <u4  bayer_pattern <i4  time_offset_us <i4  extended_header_size <i4
    compression_format <u4  reference_time_s <i4  reference_time_ms <u2  reference_time_us <u2
""")


def _check(field: str, holds: Callable[[Values], bool], hint: str) -> Check:
    return Check(field, holds, f"{field} is {{{field}}} in the header", hint)


_DAMAGED = "Check that the file is not damaged"
CHECKS = (
    _check("magic", lambda v: v["magic"] == MAGIC, f"A sequence begins with {MAGIC:#x}"),
    _check("bit_depth", lambda v: v["bit_depth"] in {8, 16, 32}, "Supported are 8, 16 and 32"),
    _check("width", lambda v: v["width"] > 0, _DAMAGED),
    _check("height", lambda v: v["height"] > 0, _DAMAGED),
    _check(
        "image_format",
        lambda v: v["image_format"] == MONOCHROME,
        "Only monochrome frames, format 100, are supported",
    ),
    _check(
        "compression_format",
        lambda v: v["compression_format"] == 0,
        "Export the sequence without compression",
    ),
)
FIRST_FRAME = {False: 1024, True: 8192}
"""Byte at which the first frame begins, by whether the version is 5 or later."""

VERSION_OF_LONG_HEADERS = 5

KINDS = {
    "dark": ".dark.mrc",
    "gain": ".gain.mrc",
    "bad_pixels": ".config.metadata.xml",
    "camera": ".metadata",
}
"""Endings of the names of companion files."""

CAMERA = struct.Struct("<7i")
CAMERA_AT = 282
"""Byte at which the camera settings begin: size, version, columns, rows, column, row, binning."""

MAX_IMAGE = 1 << 28
"""Maximum size of a correction image in bytes; the largest sensors need an eighth of it."""

_FLOAT_BYTES = 8
_MAP_BYTES = 32
"""Memory of a bad pixel in a list: its coordinates, and what they are made of."""
_RANGE = re.compile("([0-9]{1,6})(?:-([0-9]{1,6}))?")


class Seq(Format):
    """One .seq file, with optional companions: dark and gain images and bad pixels."""

    name = "seq"
    extensions = ("seq",)

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - see Format
        """Recognise the magic number and the name after it."""
        return head.startswith(MAGIC.to_bytes(4, "little")) and head[4:24:2] == b"Norpix seq"

    def is_companion(self, name: str) -> bool:
        """Whether the file holds corrections or settings of the camera."""
        return _kind_of(name) is not None

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the header, and the corrections if their files are present.

        Raises:
            FormatError: the frames are compressed or coloured, the file is truncated, or the
                header is invalid.
        """
        file = only(files.frames, ".seq file")
        values = file.record(HEADER, 0, "the header", CHECKS)
        stored = np.dtype(f"<u{values['bit_depth'] // 8}")
        sig_shape = values["height"], values["width"]
        frame_bytes, stride = math.prod(sig_shape) * stored.itemsize, values["true_image_size"]
        if stride < frame_bytes:
            raise file.fault(
                f"true_image_size is {stride} in the header",
                offset_of(HEADER, "true_image_size"),
                f"It must be at least {frame_bytes}, the size of a frame",
            )
        start = FIRST_FRAME[values["version"] >= VERSION_OF_LONG_HEADERS]
        extent = file.extent(start, stride, declared=values["allocated_frames"] or None)
        companions: dict[str, File] = {}
        for companion in files.companions:
            companions.setdefault(str(_kind_of(companion.name)), companion)
        rate, text = values["frame_rate"], values["description"]
        return Found(
            extents=[extent],
            sig_shape=sig_shape,
            stored=stored,
            file_header=start,
            frame_footer=stride - frame_bytes,
            metadata={
                **{k: v for k, v in values.items() if isinstance(v, int)},
                "frame_rate": rate if math.isfinite(rate) else None,
                "description": text.decode("utf-16-le", errors="replace").partition("\0")[0],
            },
            built_in=_built_in(companions, sig_shape, files.notes),
        )


def _kind_of(name: str) -> str | None:
    """Return the kind of a companion file by its name; None for the sequence itself."""
    lower = name.lower()
    return next((kind for kind, end in KINDS.items() if lower.endswith(end)), None)


def _image(file: File, sig_shape: tuple[int, int]) -> Floats:
    """Read a correction image, which must have the shape of the frames."""
    image = Mrc().find(Files([replace(file, notes=[])], [], []), Hints())
    extent = image.extents[0]
    if image.sig_shape != sig_shape or extent.frames != 1:
        raise file.fault(
            f"{extent.frames} images of {image.sig_shape}; the frames are {sig_shape}",
            hint="Leave the file out",
        )
    dtype = image.stored.newbyteorder("=")
    if extent.stride > MAX_IMAGE or dtype.kind == "c":
        raise file.fault(f"a correction of {extent.stride} bytes of {dtype}", 12)
    current().hold("corrections", extent.stride + _FLOAT_BYTES * math.prod(sig_shape))
    octets = file.exactly(extent.offset, extent.stride, "the image")
    return np.frombuffer(octets, image.stored).reshape(sig_shape).astype(np.float64)


def _built_in(
    companions: Mapping[str, File], sig_shape: tuple[int, int], notes: list[str]
) -> BuiltIn:
    """Read the corrections whose files are present.

    Raises:
        FormatError: an image does not fit the frames, or the map of bad pixels is damaged.
    """
    dark, gain = (
        _image(companions[kind], sig_shape) if kind in companions else None
        for kind in ("dark", "gain")
    )
    excluded = None
    if "bad_pixels" in companions:
        excluded = _bad_pixels(companions["bad_pixels"], companions.get("camera"), sig_shape, notes)
    return BuiltIn(dark=dark, gain=gain, excluded=excluded)


def _bad_pixels(
    file: File, camera: File | None, sig_shape: tuple[int, int], notes: list[str]
) -> Indices | None:
    """Return the bad pixels of a frame: the map of the sensor, cropped to the part read out.

    Frames binned by the camera use a map for binned frames of exactly their size.

    Returns:
        Coordinates, shape (k, 2); None, with a note, if no map fits.
    """
    unused = f"{file.name} is not used:"
    if camera is None:
        notes.append(f"{unused} the .metadata file, which gives the binning, is missing")
        return None
    octets = camera.exactly(CAMERA_AT, CAMERA.size, "the camera's settings")
    _, _, columns, rows, left, top, binning = CAMERA.unpack(octets)
    binned = binning > 1
    sensor_part = sig_shape if binned else (rows, columns)
    origin = (0, 0) if binned else (top, left)
    if sensor_part != sig_shape or min(origin) < 0:
        notes.append(f"{unused} the camera read out {rows} x {columns} pixels")
        return None
    for candidate in read_xml(file).iter("BadPixelMap"):
        size = tuple(_range(candidate.get(key, ""))[0] for key in ("Rows", "Columns"))
        of_binning = (_range(candidate.get("Binning", "1"))[0] > 1) == binned
        fits = (
            size == sig_shape
            if binned
            else all(o + s <= n for o, s, n in zip(origin, sig_shape, size, strict=True))
        )
        if of_binning and fits:
            if math.prod(sig_shape) > MAX_IMAGE:
                raise file.fault(
                    f"a map of {sig_shape} pixels; at most {MAX_IMAGE} are read",
                    hint="Leave the file out",
                )
            return _coordinates(candidate, origin, sig_shape)
    notes.append(f"{unused} it has no map of {sig_shape[0]} x {sig_shape[1]} pixels")
    return None


def _range(text: str) -> tuple[int, int]:
    """Parse ``n`` or ``a-b`` to first and last; an empty range for anything else."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return (0, -1)
    return int(match[1]), int(match[2] or match[1])


def _coordinates(
    bad_pixel_map: ET.Element, origin: tuple[int, int], sig_shape: tuple[int, int]
) -> Indices:
    current().hold("corrections", math.prod(sig_shape))
    bad = np.zeros(sig_shape, np.bool_)
    for defect in bad_pixel_map.iter("Defect"):
        current().check("corrections")
        window = []
        for keys, first, size in zip(
            (("Rows", "Row"), ("Columns", "Column")), origin, sig_shape, strict=True
        ):
            text = defect.get(keys[0]) or defect.get(keys[1])
            start, last = (first, first + size - 1) if text is None else _range(text)
            window.append(slice(max(start - first, 0), max(last - first + 1, 0)))
        if defect.attrib:
            bad[tuple(window)] = True
    current().hold("corrections", _MAP_BYTES * int(np.count_nonzero(bad)))
    return np.argwhere(bad).astype(np.int64)
