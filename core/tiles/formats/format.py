"""The base class of file formats: from headers to a recording.

Three parties describe a dataset: the headers, the sizes of the files, and the owner's hints.
They often disagree: a transfer was interrupted, a camera wrote fewer frames than announced, or
the catalogue was copied from another dataset. A format only reads headers; deciding who is right
is the same for all formats::

    Format.find --> File.extent --> Found --> settle --> Recording
                    (file sizes)              (hints)

* **Files beat hints on frames.** :func:`settle` refuses a dtype, header size or shape of a frame
  that contradicts the file.
* **Hints beat files on the scan.** The owner may set its shape and the sync offset freely.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ...errors import FormatError, ShapeError
from ..packing import Decoder
from ..recording import Axis, BuiltIn, Extent, FileInfo, Hints, RangeReader, Recording
from .files import File, Files, extension, natural

MAX_SCAN = 1 << 40
"""Maximum number of positions a header may declare; more frames than any file system holds."""

MAX_DIMENSIONS = 32
"""Most dimensions of a scan and a frame together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Contents of the headers, before the owner's hints are applied."""

    extents: Sequence[Extent]
    sig_shape: tuple[int, ...]
    stored: np.dtype[Any]
    """Dtype of the values in the file, or of those that the decoder makes of packed ones."""
    decoder: Decoder | None = None
    nav_shape: tuple[int, ...] | None = None
    file_header: int = 0
    frame_header: int = 0
    frame_footer: int = 0
    sync_offset: int = 0
    axes: tuple[Axis, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    built_in: BuiltIn = field(default_factory=BuiltIn)


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
    numbered: ClassVar[bool] = False
    """Whether each file is the part of a recording that the number in its name says."""
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

    def parse(self, infos: Sequence[FileInfo], reader: RangeReader, hints: Hints) -> Recording:
        """Read the headers and describe the recording.

        Args:
            infos: the files, at least one, in the order of their frames; those of a format whose
                files are numbered, and companions, in any.
            reader: reader of their bytes.
            hints: properties declared by the owner.

        Raises:
            FormatError, ShapeError: as ``find``.
        """
        notes: list[str] = []
        every = [File(k, info.name, info.size, reader, notes) for k, info in enumerate(infos)]
        parts = [file for file in every if not self.is_companion(file.name)]
        frames = sorted(parts, key=lambda file: natural(file.name)) if self.numbered else parts
        if frames != parts:
            notes.append("ordered by the numbers in the names, which is not the order given")
        files = Files(frames, [file for file in every if self.is_companion(file.name)], notes)
        if frames:
            frames[-1] = replace(frames[-1], growing=hints.growing)
        return self.settle(files, self.find(files, hints), hints)

    def settle(self, files: Files, found: Found, hints: Hints) -> Recording:
        """Apply the owner's hints to the contents of the headers."""
        return settle(self.name, files.first, found, hints, files.notes)

    @abstractmethod
    def find(self, files: Files, hints: Hints) -> Found:
        """Read the headers.

        Args:
            files: the files, in order.
            hints: properties declared by the owner.

        Raises:
            FormatError: the files are in another format, damaged, truncated, or contradict
                each other or the hints. The error names the file and the byte.
            ShapeError: the hints do not fit the data.
        """


def check_shape(shape: tuple[int, ...], label: str) -> None:
    """Refuse an invalid shape from the owner; ``label`` names it in the error.

    Raises:
        ShapeError: the shape has no dimensions, or one that is not positive.
    """
    if not shape or any(size < 1 for size in shape):
        raise ShapeError(f"{label} {shape} needs dimensions of at least 1")


def _check_hints(form: str, name: str, found: Found, hints: Hints) -> None:
    """Refuse hints that contradict the files.

    Raises:
        FormatError: the shape of a frame, a header size or the dtype differs.
    """
    stated: dict[str, tuple[object, object]] = {
        "sig_shape": (hints.sig_shape, found.sig_shape),
        "file_header": (hints.file_header, found.file_header),
        "frame_header": (hints.frame_header, found.frame_header),
        "frame_footer": (hints.frame_footer, found.frame_footer),
    }
    for option, (requested, actual) in stated.items():
        if requested is not None and requested != actual:
            raise FormatError(
                f"{option} is stated as {requested}, but this {form} file has {actual}",
                source=name,
                offset=0,
                hint=f"Leave {option} out",
            )
    if hints.dtype is None:
        return
    other_values = hints.dtype.newbyteorder("=") != found.stored.newbyteorder("=")
    # numpy does not distinguish native order from no order, so only the other is explicit.
    other_order = not hints.dtype.isnative and found.decoder is None and found.stored.isnative
    if other_values or other_order:
        raise FormatError(
            f"dtype is stated as {hints.dtype.str}, but the file has {found.stored.str}",
            source=name,
            offset=0,
            hint="Leave dtype out; a view can convert",
        )


def _nav_shape(name: str, found: Found, hints: Hints, frames: int) -> tuple[int, ...]:
    if hints.nav_shape is not None:
        check_shape(hints.nav_shape, "nav_shape")
        return hints.nav_shape
    shape = found.nav_shape
    if shape is None:
        return (frames,)
    if not shape or min(shape) < 1 or math.prod(shape) > MAX_SCAN:
        raise FormatError(
            f"the files declare a scan of {shape}, which is invalid",
            source=name,
            offset=0,
            hint="Give nav_shape",
        )
    return shape


def settle(
    form: str, first: File | FileInfo, found: Found, hints: Hints, notes: Sequence[str] = ()
) -> Recording:
    """Apply the owner's hints to the contents of the headers.

    Args:
        form: name of the format.
        first: the file that errors name.
        found: contents of the headers.
        hints: properties declared by the owner.
        notes: notes on the recording.

    Raises:
        FormatError: there is no frame, or a hint contradicts the files.
        ShapeError: a shape does not fit the frames.
    """
    extents = tuple(extent for extent in found.extents if extent.frames)
    frames = sum(extent.frames for extent in extents)
    if not frames and not hints.growing:
        raise FormatError(
            "there are no frames",
            source=first.name,
            offset=first.size,
            hint="If it is still being written, declare the dataset growing",
        )
    _check_hints(form, first.name, found, hints)
    sig_shape = found.sig_shape
    nav_shape = _nav_shape(first.name, found, hints, frames)
    if len(nav_shape) + len(sig_shape) > MAX_DIMENSIONS:
        raise FormatError(
            f"the files declare {len(nav_shape) + len(sig_shape)} dimensions",
            source=first.name,
            hint=f"Give a nav_shape; at most {MAX_DIMENSIONS} dimensions are served",
        )
    decoder, dtype = found.decoder, found.stored.newbyteorder("=")
    return Recording(
        format=form,
        extents=extents,
        sig_shape=sig_shape,
        nav_shape=nav_shape,
        found_nav=found.nav_shape or (frames,),
        dtype=dtype,
        stored=None if decoder else found.stored,
        decoder=decoder.name if decoder else None,
        frame_bytes=(
            decoder.frame_bytes(sig_shape) if decoder else math.prod(sig_shape) * dtype.itemsize
        ),
        sync_offset=found.sync_offset if hints.sync_offset is None else hints.sync_offset,
        axes=found.axes if nav_shape == found.nav_shape else (),
        metadata=found.metadata,
        built_in=found.built_in,
        notes=tuple(notes),
    )
