"""The tree of tags in Digital Micrograph files, versions 3 and 4.

The structure of the tree is big endian; values are in the byte order given by the file. Arrays
are not read: only their position is returned.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from .files import GROWING_HINT, File

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
            self._fault(begin, f"a tag of kind {kind}; 20 and 21 are supported", GROWING_HINT)
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
            self._fault(begin, f"a value of {size} bytes, which are not in the file", GROWING_HINT)
        self._position += size

    def _fault(self, offset: int, message: str, hint: str | None = None) -> NoReturn:
        raise self._file.fault(message, offset, hint or "Check that the file is not damaged")
