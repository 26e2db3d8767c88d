"""One file format: the row that says everything about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ..packing import Decoder
from ..recording import FileInfo, Hints, RangeReader, Recording
from .source import extension, numeric_order


class Format(ABC):
    """A format of the files of a recording.

    A new format is a module with a subclass of this, and its line in
    :data:`core.tiles.formats.FORMATS`.
    """

    name: ClassVar[str]
    """As in catalogues and requests."""
    magic: ClassVar[bytes] = b""
    """What a file of frames begins with, if that alone decides."""
    extensions: ClassVar[Sequence[str]]
    """Of files of frames; they decide between formats that content leaves open."""
    description: ClassVar[str | None] = None
    """Extension of the text file that describes a recording and comes with it."""
    names_its_files: ClassVar[bool] = False
    """Whether the description names the files of frames, so that they may be called anything."""
    series: ClassVar[bool] = False
    """Whether files whose names differ only in numbers are one recording."""
    decoders: ClassVar[Sequence[Decoder]] = ()
    """Of packed pixels; a recording has the name of one of them."""

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a file with these first bytes (up to 4096) can be of this format."""
        return bool(self.magic) and head.startswith(self.magic)

    def is_companion(self, name: str) -> bool:
        """Whether a file of this name belongs to a recording but holds no frames."""
        return self.description is not None and extension(name) == self.description

    def has_name(self, name: str) -> bool:
        """Whether files of frames are called like this."""
        return extension(name) in self.extensions

    def explains(self, name: str) -> bool:
        """Whether a recording can have a file of this name, whatever is in it."""
        return self.has_name(name) or self.names_its_files or self.is_companion(name)

    def order(self, names: Sequence[str]) -> list[int]:
        """The order in which files of these names follow each other, companions last."""
        return numeric_order(names, self.is_companion)

    @abstractmethod
    def understand(self, files: Sequence[FileInfo], reader: RangeReader, hints: Hints) -> Recording:
        """Find out what is in the files, which are in their order already.

        Raises:
            FormatError: they are not of this format, damaged, cut, or contradict each
                other or the hints; with file, byte offset and what to do.
            ShapeError: the hints do not fit the data.
        """
