"""Gatan Digital Micrograph, DM3 and DM4: the only image in the file besides its preview.

The structure of the tree of tags is big endian; values are in the byte order given by the file.
Arrays are not read: only their position is returned.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..recording import Axis, FileInfo, Hints
from .files import WHOLE_HINT, File, Files, only
from .format import Format, Found

GROUP, VALUE = 20, 21
STRUCT, STRING, ARRAY = 15, 18, 20
SIMPLE = {2: "h", 3: "i", 4: "H", 5: "I", 6: "f", 7: "d", 8: "?", 9: "b", 10: "b", 11: "q", 12: "Q"}
"""Codes of the ``struct`` module, by type of a single number."""

MAX_DEPTH = 64
MAX_TAGS = 1 << 20
MAX_NAME_BYTES = 1 << 12
MAX_TYPE_NUMBERS = 1 << 12
"""Maximum count of numbers that describe the type of a value."""
MAX_TEXT_BYTES = 1 << 12
"""Maximum size in bytes of an array that is read as text."""
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """Position and size of an array in the file."""

    offset: int
    count: int
    itemsize: int
    """Bytes per value."""
    text: str | None = None
    """The values as text, if they can be characters and there are few."""


Value = float | bool | ArrayRef
Path = tuple[str, ...]


class Tags:
    """Iterates over the tags of a file.

    Args:
        file: the file.

    Raises:
        FormatError: the file does not begin like a Digital Micrograph file.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0
        self._block = b""
        self._block_start = 0
        self._tags = 0
        self.version = self._number(4)
        if self.version not in {3, 4}:
            self._fault(0, f"version {self.version} of the format; 3 and 4 are supported")
        self._width = 4 if self.version == 3 else 8  # noqa: PLR2004 - see above
        self._number(self._width)
        order = self._number(4)
        if order not in {0, 1}:
            self._fault(self._position - 4, f"byte order {order}; 0 and 1 are supported")
        self.order = "<" if order else ">"

    def __iter__(self) -> Iterator[tuple[Path, int, Value]]:
        """Yield (path, byte of the tag, value) for every value that is not a structure.

        Tags without a name are named by their number in the group.

        Raises:
            FormatError: a length or type is invalid, or the file is truncated.
        """
        return self._group(())

    def _group(self, path: Path) -> Iterator[tuple[Path, int, Value]]:
        if len(path) > MAX_DEPTH:
            self._fault(self._position, f"more than {MAX_DEPTH} groups of tags inside each other")
        begin = self._position
        self._take(2)
        count = self._number(self._width)
        if count > MAX_TAGS:
            self._fault(begin, f"a group of {count} tags")
        for number in range(count):
            yield from self._tag(path, number)

    def _tag(self, path: Path, number: int) -> Iterator[tuple[Path, int, Value]]:
        begin = self._position
        self._tags += 1
        if self._tags > MAX_TAGS:
            self._fault(begin, f"more than {MAX_TAGS} tags")
        kind = self._number(1)
        if kind not in {GROUP, VALUE}:
            self._fault(begin, f"a tag of kind {kind}; 20 and 21 are supported", WHOLE_HINT)
        length = self._number(2)
        if length > MAX_NAME_BYTES:
            self._fault(begin, f"a tag with a name of {length} bytes")
        name = self._take(length).decode("latin-1") or str(number)
        size = self._number(8) if self._width == 8 else None  # noqa: PLR2004 - version 4
        body = self._position
        inner = (*path, name)
        if kind == GROUP:
            yield from self._group(inner)
        else:
            value = self._value()
            if value is not None:
                yield inner, begin, value
        if size is not None and self._position != body + size:
            self._fault(begin, f"a tag of {size} bytes has {self._position - body}")

    def _value(self) -> Value | None:
        begin = self._position
        if self._take(4) != b"%%%%":
            self._fault(begin, "a value does not begin with its marker, %%%%")
        length = self._number(self._width)
        if not 1 <= length <= MAX_TYPE_NUMBERS:
            self._fault(begin, f"a type described by {length} numbers")
        octets = self._take(length * self._width)
        kinds = struct.unpack(f">{length}{'I' if self._width == 4 else 'Q'}", octets)  # noqa: PLR2004
        if kinds[0] in SIMPLE and length == 1:
            layout = self.order + SIMPLE[kinds[0]]
            value: float | bool = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
            return value
        if kinds[0] == ARRAY:
            return self._array(begin, kinds)
        size, used = self._size(begin, kinds)
        if used != length:
            self._fault(begin, f"a type described by {length} numbers, not {used}")
        self._skip(begin, size)
        return None

    def _array(self, begin: int, kinds: tuple[int, ...]) -> Value:
        itemsize, used = self._size(begin, kinds[1:-1])
        if len(kinds) != used + 2:
            self._fault(begin, f"an array described by {len(kinds)} numbers, not {used + 2}")
        count, offset, text = kinds[-1], self._position, None
        if kinds[1:-1] == (4,) and count * 2 <= MAX_TEXT_BYTES:
            encoding = "utf-16-le" if self.order == "<" else "utf-16-be"
            text = self._take(count * 2).decode(encoding, errors="replace").rstrip("\0")
        else:
            self._skip(begin, count * itemsize)
        return ArrayRef(offset, count, itemsize, text)

    def _size(self, begin: int, kinds: tuple[int, ...]) -> tuple[int, int]:
        """Return the size of a value in bytes, and the count of numbers describing its type."""
        kind = kinds[0] if kinds else -1
        if kind in SIMPLE:
            return struct.calcsize(f"={SIMPLE[kind]}"), 1
        if kind == STRING and len(kinds) > 1:
            return kinds[1], 2
        if kind == STRUCT and len(kinds) > 2:  # noqa: PLR2004 - length of a name, fields
            used, size = 3 + 2 * kinds[2], 0
            fields = kinds[4:used:2]
            if len(fields) == kinds[2] and all(field in SIMPLE for field in fields):
                size = sum(struct.calcsize(f"={SIMPLE[field]}") for field in fields)
                return size, used
        return self._fault(begin, f"a value of type {kinds[:3]}")

    # -- bytes ----------------------------------------------------------------------

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        first = self._position - self._block_start
        if not 0 <= first <= first + size <= len(self._block):
            self._block_start, first = self._position, 0
            room = self._file.size - self._position
            length = max(size, min(BLOCK, room))
            self._block = self._file.exactly(self._position, length, "the tags")
        self._position += size
        return self._block[first : first + size]

    def _skip(self, begin: int, size: int) -> None:
        """Skip values, which must be in the file."""
        if size > self._file.size - self._position:
            self._fault(begin, f"a value of {size} bytes, which are not in the file", WHOLE_HINT)
        self._position += size

    def _fault(self, offset: int, message: str, hint: str | None = None) -> NoReturn:
        raise self._file.fault(message, offset, hint or "Check that the file is not damaged")


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
"""Types of colour images, such as the preview at the beginning of most files."""
REFUSED = {5: "half of a Fourier transform, packed"}

MAX_DIMENSIONS = 5
MAX_IMAGES = 1 << 10
_IMAGE = "ImageList"
_SWAPPED = ("ImageTags", "Meta Data", "Data Order Swapped")
_METADATA_GROUPS = {"Meta Data", "Microscope Info"}
"""Groups of tags that become metadata."""
_MAX_METADATA = 100
_MAX_NAME = 1 << 10
"""Longest name of metadata, with those of the groups around it."""
_CALIBRATED = {"Scale", "Origin", "Units"}


@dataclass(slots=True)
class _Image:
    """The tags of one image."""

    at: int
    """Byte of the first tag."""
    type: int | None = None
    pixel_bytes: int | None = None
    data: ArrayRef | None = None
    dimensions: dict[int, int] = field(default_factory=dict)
    """Sizes by number of the dimension, the fastest first."""
    calibrations: dict[tuple[int, str], Value] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    swapped: bool = False


class Dm(Format):
    """One .dm3 or .dm4 file."""

    name = "dm"
    extensions = ("dm3", "dm4")

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise version, length, byte order and the beginning of the first group."""
        version = int.from_bytes(head[:4], "big")
        if version not in {3, 4}:
            return False
        wide = 4 if version == 3 else 8  # noqa: PLR2004 - DM3 has 32-bit lengths
        length = int.from_bytes(head[4 : 4 + wide], "big")
        rest = head[4 + wide : 10 + wide]
        return (
            len(rest) == 6  # noqa: PLR2004 - byte order, and two flags
            and rest[:3] == b"\0\0\0"
            and max(rest[3:]) <= 1
            and 0 < length <= 2 * file.size
        )

    def find(self, files: Files, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Read the tags; the two fastest dimensions of the image are a frame.

        Raises:
            FormatError: a tag is invalid, there is no image or more than one, or the file is
                truncated.
        """
        file = only(files.frames, "file of Digital Micrograph")
        tags = Tags(file)
        image = _pick(file, _images(file, tags))
        stored, shape, data = _layout(file, image, tags.order)
        nav, sig = shape[:-2], shape[-2:]
        stride = math.prod(sig) * stored.itemsize
        extent = file.extent(data.offset, stride, declared=math.prod(nav), noted=False)
        if len(nav) > 1 and not image.swapped:
            files.notes.append(
                "the file does not say that frames are contiguous: the last two axes may be those "
                "of the scan"
            )
        return Found(
            extents=[extent],
            sig_shape=sig,
            stored=stored,
            nav_shape=nav or (1,),
            axes=_axes(image, shape) if nav else (),
            metadata={"version": tags.version, **image.metadata},
        )


def _images(file: File, tags: Tags) -> list[_Image]:
    images: dict[str, _Image] = {}
    for path, at, value in tags:
        if len(path) < 3 or path[0] != _IMAGE:  # noqa: PLR2004 - the list, an image, a tag
            continue
        if path[1] not in images and len(images) >= MAX_IMAGES:
            raise file.fault(f"more than {MAX_IMAGES} images", offset=at)
        image = images.setdefault(path[1], _Image(at))
        _note(image, path[2:], value)
    return list(images.values())


def _note(image: _Image, path: tuple[str, ...], value: Value) -> None:
    """Store a tag of an image if it is needed."""
    integer = int(value) if isinstance(value, int) else None
    match path:
        case ("ImageData", "Data") if isinstance(value, ArrayRef):
            image.data = value
        case ("ImageData", "DataType") if integer is not None:
            image.type = integer
        case ("ImageData", "PixelDepth") if integer is not None:
            image.pixel_bytes = integer
        case ("ImageData", "Dimensions", number) if integer is not None and number.isdecimal():
            # One more than may be is enough to refuse them.
            if len(image.dimensions) <= MAX_DIMENSIONS:
                image.dimensions[int(number[:9])] = integer
        case ("ImageData", "Calibrations", "Dimension", number, name) if (
            name in _CALIBRATED and number.isdecimal() and int(number[:9]) < MAX_DIMENSIONS
        ):
            image.calibrations[int(number[:9]), name] = value
        case ("ImageTags", group, *names) if group in _METADATA_GROUPS:
            image.swapped |= path == _SWAPPED and bool(value)
            content = value.text if isinstance(value, ArrayRef) else value
            name = " / ".join((group, *names))
            finite = isinstance(content, str) or (content is not None and math.isfinite(content))
            if finite and len(image.metadata) < _MAX_METADATA and len(name) <= _MAX_NAME:
                image.metadata[name] = content
        case _:
            pass


def _pick(file: File, images: Sequence[_Image]) -> _Image:
    """Return the only image that is not a preview."""
    candidates = [image for image in images if image.type not in PREVIEWS and image.dimensions]
    if not candidates:
        raise file.fault("there is no image in the file, except for its preview")
    if len(candidates) > 1:
        shapes = ", ".join(str(tuple(image.dimensions.values())) for image in candidates[:4])
        raise file.fault(
            f"there are {len(candidates)} images in the file: {shapes}",
            offset=candidates[1].at,
            hint="Save each image to a file of its own",
        )
    return candidates[0]


def _layout(
    file: File, image: _Image, order: str
) -> tuple[np.dtype[Any], tuple[int, ...], ArrayRef]:
    """Return dtype, shape and position of an image, after checking that they agree."""
    if image.type not in TYPES:
        problem = REFUSED.get(image.type or 0, f"pixels of type {image.type}")
        known = ", ".join(map(str, TYPES))
        raise file.fault(problem, offset=image.at, hint=f"Supported types are {known}")
    stored = np.dtype(order + TYPES[image.type])
    count = len(image.dimensions)
    sizes = [image.dimensions.get(k, 0) for k in range(count)]
    if count < 2 or count > MAX_DIMENSIONS or min(sizes) < 1:  # noqa: PLR2004 - of a frame
        raise file.fault(
            f"an image of {tuple(reversed(image.dimensions.values()))}",
            offset=image.at,
            hint=f"Save an image of 2 to {MAX_DIMENSIONS} dimensions",
        )
    data = image.data
    pixels = math.prod(sizes)
    if data is None:
        raise file.fault("an image without data", offset=image.at)
    if data.count * data.itemsize != pixels * stored.itemsize or image.pixel_bytes not in {
        None,
        stored.itemsize,
    }:
        raise file.fault(
            f"{data.count} values of {data.itemsize} bytes for {pixels} pixels of "
            f"{stored.itemsize}",
            offset=data.offset,
            hint="Check that the file is not damaged",
        )
    return stored, tuple(reversed(sizes)), data


def _axes(image: _Image, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """Create calibrated axes; the origin in the file is in pixels."""
    dims = len(shape)
    nav = {1: ["z"], 2: ["y", "x"]}.get(dims - 2, [f"nav_{k}" for k in range(dims - 2)])
    names = [*nav, *(["y", "x"] if dims == 3 else ["ky", "kx"])]  # noqa: PLR2004 - a stack
    axes = []
    for name, size, number in zip(names, shape, reversed(range(dims)), strict=True):
        scale = image.calibrations.get((number, "Scale"))
        origin = image.calibrations.get((number, "Origin"))
        unit = image.calibrations.get((number, "Units"))
        if not isinstance(scale, float) or not math.isfinite(scale) or scale <= 0:
            axes.append(Axis(name, size))
            continue
        pixel = origin if isinstance(origin, float) and math.isfinite(origin) else 0.0
        text = unit.text if isinstance(unit, ArrayRef) else None
        axes.append(Axis(name, size, text or None, scale, -pixel * scale))
    return tuple(axes)
