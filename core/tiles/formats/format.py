"""The base class of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ..packing import Decoder
from ..recording import FileInfo, Hints, RangeReader, Recording
from .layout import Found, settle
from .source import Source, extension, numeric_order


class Format(ABC):
    """A file format of recordings.

    To add a format, write a module with a subclass and list it in
    :data:`core.tiles.formats.FORMATS`.
    """

    name: ClassVar[str]
    """Name of the format in catalogues and requests."""
    magic: ClassVar[bytes] = b""
    """First bytes of a frame file; empty if they do not identify the format."""
    extensions: ClassVar[Sequence[str]]
    """Extensions of frame files, which decide if the contents fit several formats."""
    description: ClassVar[str | None] = None
    """Extension of the text file that accompanies and describes a recording."""
    names_its_files: ClassVar[bool] = False
    """Whether the description lists the frame files, which may then have any name."""
    series: ClassVar[bool] = False
    """Whether files whose names differ only in numbers are one recording."""
    decoders: ClassVar[Sequence[Decoder]] = ()
    """Decoders of packed pixels; a recording refers to one of them by name."""

    def looks_like(self, file: FileInfo, head: bytes) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a file with these first bytes (up to 4096) can be in this format."""
        return bool(self.magic) and head.startswith(self.magic)

    def is_companion(self, name: str) -> bool:
        """Whether a file of this name belongs to a recording but holds no frames."""
        return self.description is not None and extension(name) == self.description

    def has_name(self, name: str) -> bool:
        """Whether a frame file can have this name, by its extension."""
        return extension(name) in self.extensions

    def explains(self, name: str) -> bool:
        """Whether a file of this name can belong to a recording, regardless of its contents."""
        return self.has_name(name) or self.names_its_files or self.is_companion(name)

    def order(self, names: Sequence[str]) -> list[int]:
        """Return indices that put files of these names in order, companions last."""
        return numeric_order(names, self.is_companion)

    def split(self, source: Source) -> tuple[list[int], list[int]]:
        """Return the indices of the frame files, and of the companions."""
        groups: tuple[list[int], list[int]] = [], []
        for index, file in enumerate(source.files):
            groups[self.is_companion(file.name)].append(index)
        return groups

    def understand(self, files: Sequence[FileInfo], reader: RangeReader, hints: Hints) -> Recording:
        """Read the headers and describe the recording.

        Args:
            files: the files, already in order.
            reader: reader of their bytes.
            hints: properties declared by the owner.

        Raises:
            FormatError, ShapeError: as ``find``.
        """
        source = Source(files, reader)
        return self.settle(source, self.find(source, hints), hints)

    def settle(self, source: Source, found: Found, hints: Hints) -> Recording:
        """Apply the owner's hints to the contents of the headers; see :mod:`.layout`."""
        return settle(source, found, hints)

    @abstractmethod
    def find(self, source: Source, hints: Hints) -> Found:
        """Read the headers.

        Args:
            source: the files, already in order.
            hints: properties declared by the owner.

        Raises:
            FormatError: the files are in another format, damaged, truncated, or contradict
                each other or the hints. The error names the file and the byte.
            ShapeError: the hints do not fit the data.
        """
