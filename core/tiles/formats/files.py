"""The files of a recording as formats read them, with errors that name the file and the byte.

A format declares a header as a structured dtype and a list of checks::

    HEADER = np.dtype([("magic", "<u4"), ("width", "<u4")])
    CHECKS = (Check("width", lambda v: v["width"] > 0, "{width} columns"),)
    values = file.record(HEADER, 0, "the header", CHECKS)

A file that consists of headers and frames at a constant distance is one extent::

    | file_header | frame_header | values | footer | frame_header | values | footer | ...
                                 ^ offset                         ^ offset + stride

Sizes check headers: :meth:`File.extent` accepts bytes after the declared frames with a note, but
raises if a file ends inside a frame or before the declared number of frames, unless the owner
declared the dataset growing. Dropping frames silently would shift the rest of the scan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree as ET

import numpy as np

from ...budget import current
from ...errors import FormatError
from ..recording import Extent, RangeReader

TEXT_LIMIT = 1 << 20
"""Maximum size of a companion file in bytes; the largest seen have about 20 KiB."""

GROWING_HINT = (
    "If the file is still being written, declare the dataset growing; "
    "otherwise copy it again from its source"
)

WHOLE_HINT = (
    "If the file is still being written, wait until it is whole; otherwise copy it again from its"
    " source"
)
"""Of formats that say at the beginning of a file how much it holds."""

_ELEMENT_BYTES = 160
"""Memory of an XML element or its end."""
_DIGITS = re.compile("([0-9]+)")

Order = Literal["<", ">"]
"""Byte order, as numpy writes it."""
Values = Mapping[str, Any]
"""The fields of a header by name, as Python numbers and bytes."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that the values of a header must meet."""

    field: str
    """Field whose byte the error names."""
    holds: Callable[[Values], bool]
    message: str
    """Message of the error, with fields in braces."""
    hint: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A file of a recording."""

    index: int
    """Number of the file for the reader, and in extents."""
    name: str
    size: int
    reader: RangeReader
    notes: list[str]
    """Receives notes on the recording."""
    growing: bool = False
    """Whether the file is still being written and may end anywhere."""

    def fault(self, message: str, offset: int = 0, hint: str | None = None) -> FormatError:
        """Create an error at a byte, for the caller to raise."""
        return FormatError(message, source=self.name, offset=offset, hint=hint)

    def exactly(self, start: int, size: int, label: str) -> bytes:
        """Read exactly ``size`` bytes; ``label`` names them in the error.

        Raises:
            FormatError: the file ends before them.
        """
        data = self.reader.read(self.index, start, start + size)
        if len(data) != size:
            raise self.fault(
                f"the file ends inside {label}: {len(data)} of {size} bytes are present",
                min(start + len(data), self.size),
                GROWING_HINT,
            )
        return data

    def record(
        self, header: np.dtype[Any], start: int, label: str, checks: Sequence[Check] = ()
    ) -> dict[str, Any]:
        """Read a header, and return its values by name; ``label`` names it in the error.

        Raises:
            FormatError: the file ends inside the header, or a check fails.
        """
        values = fields_of(self.exactly(start, header.itemsize, label), header)
        for check in checks:
            if not check.holds(values):
                at = start + offset_of(header, check.field)
                raise self.fault(check.message.format_map(values), at, check.hint)
        return values

    def octets(self) -> bytes:
        """Read a whole companion file as bytes.

        Raises:
            FormatError: the file is larger than ``TEXT_LIMIT``.
        """
        if self.size > TEXT_LIMIT:
            raise self.fault(
                f"a companion file of {self.size} bytes; at most {TEXT_LIMIT} are read",
                TEXT_LIMIT,
                "Check that the file is what its name suggests",
            )
        return self.exactly(0, self.size, "the companion file")

    def text(self) -> str:
        """Read a whole companion file as text; undecodable bytes become U+FFFD.

        Raises:
            FormatError: the file is larger than ``TEXT_LIMIT``.
        """
        return self.octets().decode(errors="replace")

    def extent(
        self,
        start: int,
        stride: int,
        *,
        header: int = 0,
        declared: int | None = None,
        noted: bool = True,
    ) -> Extent:
        """Count the whole frames between a byte and the end of the file.

        Args:
            start: byte at which the first frame begins, with its header.
            stride: bytes per frame, with header and footer.
            header: bytes of a frame before its values.
            declared: number of frames according to the file header, which is then the maximum.
            noted: whether bytes after the declared frames deserve a note.

        Raises:
            FormatError: the file ends before its first frame, inside a frame, or before the
                declared number of frames.
        """
        if self.size < start:
            raise self.fault(
                f"the file ends before its first frame, which would begin at byte {start}",
                self.size,
                GROWING_HINT,
            )
        frames, rest = divmod(self.size - start, stride)
        problem = None
        if declared is not None and frames >= declared:
            unused = self.size - start - declared * stride
            if unused and noted:
                self.notes.append(f"{self.name}: {unused} bytes after the frames are not used")
            frames = declared
        elif declared is not None:
            problem = f"the file holds {frames} of {declared} frames of {stride} bytes"
        elif rest:
            problem = f"the last frame is truncated: {rest} of {stride} bytes are present"
        if problem and not self.growing:
            raise self.fault(problem, start + frames * stride, GROWING_HINT)
        return Extent(self.index, frames, start + header, stride)


def packed(fields: str) -> np.dtype[np.void]:
    """Return a header whose fields follow each other, given as a name and a type in turn."""
    words = fields.split()
    return np.dtype(list(zip(words[::2], words[1::2], strict=True)))


def fields_of(octets: bytes, header: np.dtype[Any]) -> dict[str, Any]:
    """Return the fields of a header, which begins ``octets``, by name."""
    values = np.frombuffer(octets, header, 1)[0].item()
    return dict(zip(header.names or (), values, strict=True))


def offset_of(header: np.dtype[Any], field: str) -> int:
    """Return the byte of a header at which a field begins."""
    fields: Mapping[str, Any] = header.fields or {}
    return int(fields[field][1])


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a recording, in order."""

    frames: Sequence[File]
    """Files that hold frames."""
    companions: Sequence[File]
    notes: list[str]

    @property
    def first(self) -> File:
        """The file that errors name if they are of no other."""
        return [*self.frames, *self.companions][0]


def only(files: Sequence[File], label: str) -> File:
    """Return the only file; ``label`` names its kind in errors.

    Raises:
        FormatError: there is no such file, or more than one.
    """
    if not files:
        raise FormatError(f"there is no {label}", hint=f"Add the {label} to the dataset's files")
    if len(files) > 1:
        raise files[1].fault(
            f"a second {label}, besides {files[0].name}",
            hint="Register each file as a dataset of its own",
        )
    return files[0]


def extension(name: str) -> str:
    """Return the part of a name after its last dot, in lower case; empty without a dot."""
    return name.rpartition(".")[2].lower() if "." in name else ""


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares runs of digits, of any length, by value."""
    key = []
    for part in _DIGITS.split(name):
        digits = part.isascii() and part.isdigit()
        value = part.lstrip("0") if digits else part
        key.append((0, len(value), value) if digits else (1, 0, value))
    return key


class _DeclarationError(Exception):
    """The document has a type declaration, whose entities could expand to any size."""


class _Builder(ET.TreeBuilder):
    def doctype(self, *_: str | None) -> None:
        raise _DeclarationError


def read_xml(file: File) -> ET.Element:
    """Parse a companion file and return its root element.

    Raises:
        FormatError: the file is not XML, is too large, or declares a document type.
    """
    octets = file.octets()
    current().hold("companion", _ELEMENT_BYTES * octets.count(b"<"))
    parser = ET.XMLParser(target=_Builder())  # noqa: S314 - declarations, hence entities, are refused
    try:
        parser.feed(octets)
        root: ET.Element = parser.close()
    except _DeclarationError:
        raise file.fault(
            "the XML declares a document type, which detector software never does",
            hint="Leave the file out, and give the shapes",
        ) from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise file.fault(
            f"the file is not XML: {error}", hint="Leave it out, and give the shapes"
        ) from None
    return root
