"""What a format module finds out about a set of files: where every frame lies, and as what.

Nothing here opens a file. Whoever has them gives names, sizes and a way to read ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..arrays import Indices


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file, as seen from outside."""

    name: str
    """Its base name, for messages and for numbers in it."""
    size: int
    """Bytes."""


class RangeReader(Protocol):
    """Reads bytes of the files a recording is made of."""

    def read(self, file: int, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of the file of this index; fewer at its end."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Frames that lie one after the other in one file, at a constant distance."""

    file: int
    """Index of the file."""
    frames: int
    offset: int
    """Byte of the first frame's values, after its header."""
    stride: int
    """Bytes from the values of one frame to those of the next."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a dataset."""

    name: str
    """Such as ``y`` or ``kx``."""
    size: int
    unit: str | None = None
    scale: float = 1.0
    """Units per step."""
    offset: float = 0.0
    """Coordinate of index 0, in units."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Corrections that come with the data; each None if it does not."""

    dark: npt.NDArray[np.floating[Any]] | None = None
    """Shape sig_shape."""
    gain: npt.NDArray[np.floating[Any]] | None = None
    """Shape sig_shape."""
    excluded: Indices | None = None
    """Pixels without a meaning, shape (k, len(sig_shape))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A set of files, understood."""

    format: str
    extents: tuple[Extent, ...]
    """Where the frames lie, in their order."""
    sig_shape: tuple[int, ...]
    """Shape of one frame."""
    nav_shape: tuple[int, ...]
    """Shape of the scan, as far as the files tell; else (frames,). Its product may be
    larger or smaller than the number of frames."""
    dtype: np.dtype[Any]
    """Of the values after decoding, native byte order."""
    stored: np.dtype[Any] | None
    """Of the values in the file, with their byte order; None if they are packed."""
    decoder: str | None = None
    """Name of the decoder in ``core.tiles.decoders`` for packed values, else None."""
    frame_bytes: int
    """Bytes of one frame's values in the file, or of one panel's."""
    panels: int = 1
    """Parts, side by side along the last axis, that a frame is made of; each lies where a
    frame would: first those of the first panel, then those of the second. Only of packed
    frames."""
    sync_offset: int = 0
    """Frame of the file at which the scan begins, as far as the files tell."""
    axes: tuple[Axis, ...] = ()
    """Navigation axes, then signal axes; empty if the files do not tell."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the headers say, JSON values."""
    built_in: BuiltIn = field(default_factory=BuiltIn)
    notes: tuple[str, ...] = ()
    """What a person should know, such as trailing bytes that are not used."""

    @property
    def frames(self) -> int:
        """Frames in all files."""
        return sum(extent.frames for extent in self.extents) // self.panels

    @property
    def panel_shape(self) -> tuple[int, ...]:
        """Shape of what one decoder call gives: of a frame, or of a panel of it."""
        return (*self.sig_shape[:-1], self.sig_shape[-1] // self.panels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the owner of a dataset says about it; None where nothing is said.

    A format takes what it needs and refuses what contradicts the files.
    """

    dtype: np.dtype[Any] | None = None
    nav_shape: tuple[int, ...] | None = None
    sig_shape: tuple[int, ...] | None = None
    file_header: int | None = None
    frame_header: int | None = None
    frame_footer: int | None = None
    sync_offset: int | None = None
    growing: bool = False
