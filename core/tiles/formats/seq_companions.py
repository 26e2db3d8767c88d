"""Companion files of a sequence: dark and gain images, and the map of bad pixels."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from xml.etree import ElementTree as ET

import numpy as np

from ...arrays import Floats, Indices
from ...budget import current
from ..recording import BuiltIn, Hints
from .markup import read_xml
from .mrc import Mrc
from .source import Source

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


def kind_of(name: str) -> str | None:
    """Return the kind of a companion file by its name; None for the sequence itself."""
    lower = name.lower()
    return next((kind for kind, end in KINDS.items() if lower.endswith(end)), None)


def _image(source: Source, file: int, sig_shape: tuple[int, int]) -> Floats:
    """Read a correction image, which must have the shape of the frames."""

    class _One:
        def read(self, _: int, start: int, stop: int) -> bytes:
            return source.reader.read(file, start, stop)

    image = Mrc().understand([source.files[file]], _One(), Hints())
    if image.stored is None or image.sig_shape != sig_shape or image.frames != 1:
        raise source.fault(
            file,
            f"{image.frames} images of {image.sig_shape}; the frames are {sig_shape}",
            hint="Leave the file out",
        )
    if image.frame_bytes > MAX_IMAGE or image.dtype.kind == "c":
        raise source.fault(
            file, f"a correction of {image.frame_bytes} bytes of {image.dtype}", offset=12
        )
    current().hold("corrections", image.frame_bytes + _FLOAT_BYTES * math.prod(sig_shape))
    octets = source.exactly(file, image.extents[0].offset, image.frame_bytes, "the image")
    return np.frombuffer(octets, image.stored).reshape(sig_shape).astype(np.float64)


def built_in(
    source: Source,
    companions: Mapping[str, int],
    sig_shape: tuple[int, int],
    notes: list[str],
) -> BuiltIn:
    """Read the corrections whose files are present.

    Raises:
        FormatError: an image does not fit the frames, or the map of bad pixels is damaged.
    """
    images = {
        kind: _image(source, companions[kind], sig_shape)
        for kind in ("dark", "gain")
        if kind in companions
    }
    excluded = None
    if "bad_pixels" in companions:
        excluded = _bad_pixels(source, companions, sig_shape, notes)
    return BuiltIn(dark=images.get("dark"), gain=images.get("gain"), excluded=excluded)


def _bad_pixels(
    source: Source, companions: Mapping[str, int], sig_shape: tuple[int, int], notes: list[str]
) -> Indices | None:
    """Return the bad pixels of a frame: the map of the sensor, cropped to the part read out.

    Frames binned by the camera use a map for binned frames of exactly their size.

    Returns:
        Coordinates, shape (k, 2); None, with a note, if no map fits.
    """
    name = source.files[companions["bad_pixels"]].name
    if "camera" not in companions:
        notes.append(f"{name} is not used: the .metadata file, which gives the binning, is missing")
        return None
    octets = source.exactly(companions["camera"], CAMERA_AT, CAMERA.size, "the camera's settings")
    _, _, columns, rows, left, top, binning = CAMERA.unpack(octets)
    binned = binning > 1
    sensor_part = sig_shape if binned else (rows, columns)
    origin = (0, 0) if binned else (top, left)
    if sensor_part != sig_shape or min(origin) < 0:
        notes.append(f"{name} is not used: the camera read out {rows} x {columns} pixels")
        return None
    for candidate in read_xml(source, companions["bad_pixels"]).iter("BadPixelMap"):
        size = tuple(_range(candidate.get(key, ""))[0] for key in ("Rows", "Columns"))
        of_binning = (_range(candidate.get("Binning", "1"))[0] > 1) == binned
        fits = (
            size == sig_shape
            if binned
            else all(o + s <= n for o, s, n in zip(origin, sig_shape, size, strict=True))
        )
        if of_binning and fits:
            if math.prod(sig_shape) > MAX_IMAGE:
                raise source.fault(
                    companions["bad_pixels"],
                    f"a map of {sig_shape} pixels; at most {MAX_IMAGE} are read",
                    hint="Leave the file out",
                )
            return _coordinates(candidate, origin, sig_shape)
    notes.append(f"{name} is not used: it has no map of {sig_shape[0]} x {sig_shape[1]} pixels")
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
