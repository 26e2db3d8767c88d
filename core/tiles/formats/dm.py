"""Digital Micrograph, DM3 and DM4: the one image in the file that is not its preview."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..recording import Axis, Extent, FileInfo, Hints, RangeReader, Recording
from .dm_tags import Place, Tags, Value
from .format import Format
from .layout import Found, count_frames, settle
from .source import Source, only

TYPES = {
    1: "i2",
    2: "f4",
    3: "c8",
    6: "u1",
    7: "i4",
    9: "i1",
    10: "u2",
    11: "u4",
    12: "f8",
    13: "c16",
    14: "b1",
    39: "i8",
    40: "u8",
}
PREVIEWS = {8, 23}
"""Types of coloured pictures, such as the preview that most files begin with."""
REFUSED = {5: "half of a Fourier transform, packed"}

MOST_DIMENSIONS = 5
MOST_IMAGES = 1 << 10
_IMAGE = "ImageList"
_SWAPPED = ("ImageTags", "Meta Data", "Data Order Swapped")
_TOLD = {"Meta Data", "Microscope Info"}
"""Groups whose values are passed on."""
_MOST_TOLD = 100


@dataclass(slots=True)
class _Image:
    """What the tags say about one image."""

    at: int
    """Byte of the first of them."""
    type: int | None = None
    pixel_bytes: int | None = None
    data: Place | None = None
    dimensions: dict[int, int] = field(default_factory=dict)
    """Sizes by number, the fastest first."""
    calibrations: dict[tuple[int, str], Value] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    swapped: bool = False


class Dm(Format):
    """One .dm3 or .dm4 file."""

    name = "dm"
    extensions = ("dm3", "dm4")

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """By version, length, byte order and the beginning of the first group."""
        version = int.from_bytes(head[:4], "big")
        if version not in {3, 4}:
            return False
        wide = 4 if version == 3 else 8  # noqa: PLR2004 - the elder version
        length = int.from_bytes(head[4 : 4 + wide], "big")
        rest = head[4 + wide : 10 + wide]
        return (
            len(rest) == 6  # noqa: PLR2004 - byte order, and two flags
            and rest[:3] == b"\0\0\0"
            and max(rest[3:]) <= 1
            and 0 < length <= 2 * file.size
        )

    def understand(self, files: Sequence[FileInfo], reader: RangeReader, hints: Hints) -> Recording:
        """Read the tags; the two fastest dimensions of the image are a frame.

        Raises:
            FormatError: tags that cannot be, no image or several, or a file that was cut.
        """
        source = Source(files, reader)
        file = only(source, range(len(files)), "file of Digital Micrograph")
        tags = Tags(source, file)
        image = _pick(source, file, _images(source, file, tags))
        stored, shape, place = _layout(source, file, image, tags.order)
        nav, sig = shape[:-2], shape[-2:]
        stride = math.prod(sig) * stored.itemsize
        frames = count_frames(
            source,
            file,
            place.offset,
            stride,
            growing=hints.growing,
            declared=math.prod(nav),
        )
        notes = []
        if len(nav) > 1 and not image.swapped:
            notes.append(
                "the file does not say that frames lie in one piece: the axes may be those of "
                "the scan where frames are expected"
            )
        found = Found(
            format=self.name,
            extents=[Extent(file, frames, place.offset, stride)],
            sig_shape=sig,
            stored=stored,
            nav_shape=nav or (1,),
            axes=_axes(image, shape) if nav else (),
            metadata={"version": tags.version, **image.metadata},
            notes=notes,
        )
        return settle(source, found, hints)


def _images(source: Source, file: int, tags: Tags) -> list[_Image]:
    found: dict[str, _Image] = {}
    for path, at, value in tags:
        if len(path) < 3 or path[0] != _IMAGE:  # noqa: PLR2004 - the list, an image, a tag
            continue
        if path[1] not in found and len(found) >= MOST_IMAGES:
            raise source.fault(file, f"more than {MOST_IMAGES} images", offset=at)
        image = found.setdefault(path[1], _Image(at))
        _note(image, path[2:], value)
    return list(found.values())


def _note(image: _Image, path: tuple[str, ...], value: Value) -> None:
    """Remember what matters of a tag of an image."""
    whole = int(value) if isinstance(value, int) else None
    match path:
        case ("ImageData", "Data") if isinstance(value, Place):
            image.data = value
        case ("ImageData", "DataType") if whole is not None:
            image.type = whole
        case ("ImageData", "PixelDepth") if whole is not None:
            image.pixel_bytes = whole
        case ("ImageData", "Dimensions", number) if whole is not None and number.isdecimal():
            image.dimensions[int(number[:9])] = whole
        case ("ImageData", "Calibrations", "Dimension", number, what) if number.isdecimal():
            image.calibrations[int(number[:9]), what] = value
        case ("ImageTags", group, *names) if group in _TOLD:
            image.swapped |= path == _SWAPPED and bool(value)
            told = value.text if isinstance(value, Place) else value
            finite = isinstance(told, str) or (told is not None and math.isfinite(told))
            if finite and len(image.metadata) < _MOST_TOLD:
                image.metadata[" / ".join((group, *names))] = told
        case _:
            pass


def _pick(source: Source, file: int, images: Sequence[_Image]) -> _Image:
    """The image that is data."""
    pictures = [image for image in images if image.type not in PREVIEWS and image.dimensions]
    if not pictures:
        raise source.fault(file, "there is no image in the file, except for its preview")
    if len(pictures) > 1:
        shapes = ", ".join(str(tuple(image.dimensions.values())) for image in pictures[:4])
        raise source.fault(
            file,
            f"there are {len(pictures)} images in the file: {shapes}",
            offset=pictures[1].at,
            hint="Save them one by one",
        )
    return pictures[0]


def _layout(
    source: Source, file: int, image: _Image, order: str
) -> tuple[np.dtype[Any], tuple[int, ...], Place]:
    """Type, shape and place of an image, which must agree."""
    if image.type not in TYPES:
        what = REFUSED.get(image.type or 0, f"pixels of type {image.type}")
        known = ", ".join(map(str, TYPES))
        raise source.fault(file, what, offset=image.at, hint=f"Known types are {known}")
    stored = np.dtype(order + TYPES[image.type])
    count = len(image.dimensions)
    sizes = [image.dimensions.get(k, 0) for k in range(count)]
    if count < 2 or count > MOST_DIMENSIONS or min(sizes) < 1:  # noqa: PLR2004 - of a frame
        raise source.fault(
            file,
            f"an image of {tuple(reversed(image.dimensions.values()))}",
            offset=image.at,
            hint=f"Images of 2 to {MOST_DIMENSIONS} dimensions can be read",
        )
    place = image.data
    pixels = math.prod(sizes)
    if place is None:
        raise source.fault(file, "an image without data", offset=image.at)
    if place.count * place.itemsize != pixels * stored.itemsize or image.pixel_bytes not in {
        None,
        stored.itemsize,
    }:
        raise source.fault(
            file,
            f"{place.count} values of {place.itemsize} bytes for {pixels} pixels of "
            f"{stored.itemsize}",
            offset=place.offset,
            hint="Check that the file is not damaged",
        )
    return stored, tuple(reversed(sizes)), place


def _axes(image: _Image, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """Calibrated as the file says; its origin is a pixel."""
    dims = len(shape)
    nav = {1: ["z"], 2: ["y", "x"]}.get(dims - 2, [f"nav_{k}" for k in range(dims - 2)])
    names = [*nav, *(["y", "x"] if dims == 3 else ["ky", "kx"])]  # noqa: PLR2004 - a stack
    made = []
    for name, size, number in zip(names, shape, reversed(range(dims)), strict=True):
        scale = image.calibrations.get((number, "Scale"))
        origin = image.calibrations.get((number, "Origin"))
        unit = image.calibrations.get((number, "Units"))
        if not isinstance(scale, float) or not math.isfinite(scale) or scale <= 0:
            made.append(Axis(name, size))
            continue
        pixel = origin if isinstance(origin, float) and math.isfinite(origin) else 0.0
        text = unit.text if isinstance(unit, Place) else None
        made.append(Axis(name, size, text or None, scale, -pixel * scale))
    return tuple(made)
