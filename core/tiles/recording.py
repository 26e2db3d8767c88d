"""Descriptions of recordings: where each frame is stored in a set of files, and how.

Format modules produce a :class:`Recording` from headers; everything else reads frames through
it and needs no knowledge of formats. Nothing here opens a file: callers supply names, sizes and
a way to read ranges of bytes.
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
    """Name and size of one file."""

    name: str
    """Base name, used in messages and for the numbers it contains."""
    size: int
    """Size in bytes."""


class RangeReader(Protocol):
    """Reads bytes of the files of a recording."""

    def read(self, file: int, start: int, stop: int) -> bytes:
        """Return bytes ``start`` to ``stop`` of the file with this index; fewer at its end."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of equally spaced frames in one file."""

    file: int
    """Index of the file."""
    frames: int
    offset: int
    """Byte at which the values of the first frame begin, after its header."""
    stride: int
    """Bytes between the values of one frame and those of the next."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a dataset."""

    name: str
    """Name, such as ``y`` or ``kx``."""
    size: int
    unit: str | None = None
    scale: float = 1.0
    """Size of a step, in units."""
    offset: float = 0.0
    """Coordinate of index 0, in units."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Corrections supplied with the data; None for each one that is not."""

    dark: npt.NDArray[np.floating[Any]] | None = None
    """Dark image to subtract, shape sig_shape."""
    gain: npt.NDArray[np.floating[Any]] | None = None
    """Gain image to multiply by, shape sig_shape."""
    excluded: Indices | None = None
    """Coordinates of defective pixels, shape (k, len(sig_shape))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The layout of a recording: where its frames are stored, their shape and dtype."""

    format: str
    extents: tuple[Extent, ...]
    """Positions of the frames, in order."""
    sig_shape: tuple[int, ...]
    """Shape of one frame."""
    nav_shape: tuple[int, ...]
    """Shape of the scan; (frames,) if the files do not give one. Its product may be larger or
    smaller than the number of frames."""
    found_nav: tuple[int, ...] = ()
    """Shape of the scan according to the files, whatever is declared; empty if nobody looked."""
    dtype: np.dtype[Any]
    """Dtype of the values after decoding, in native byte order."""
    stored: np.dtype[Any] | None
    """Dtype of the values in the file, with its byte order; None if they are packed."""
    decoder: str | None = None
    """Name of the decoder of packed values in ``core.tiles.formats.DECODERS``, else None."""
    frame_bytes: int
    """Size in the file of one frame's values, or of one panel's."""
    panels: int = 1
    """Number of panels that form a frame, side by side along the last axis; only for packed
    frames. Each panel is stored like a frame: first all frames of panel 0, then all of
    panel 1, and so on."""
    sync_offset: int = 0
    """Frame at which the scan begins, according to the files; 0 if they do not say."""
    axes: tuple[Axis, ...] = ()
    """Navigation axes, then signal axes; empty if the files do not describe them."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Other contents of the headers, as JSON values."""
    built_in: BuiltIn = field(default_factory=BuiltIn)
    notes: tuple[str, ...] = ()
    """Messages for people, such as a warning about unused trailing bytes."""

    @property
    def frames(self) -> int:
        """Number of frames in all files."""
        return sum(extent.frames for extent in self.extents) // self.panels

    @property
    def panel_shape(self) -> tuple[int, ...]:
        """Shape of one stored unit: a panel, or the whole frame if there is only one."""
        return (*self.sig_shape[:-1], self.sig_shape[-1] // self.panels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Properties of a dataset declared by its owner; None for each one that is not declared.

    A format uses the hints it needs and refuses those that contradict the files.
    """

    dtype: np.dtype[Any] | None = None
    nav_shape: tuple[int, ...] | None = None
    sig_shape: tuple[int, ...] | None = None
    file_header: int | None = None
    frame_header: int | None = None
    frame_footer: int | None = None
    sync_offset: int | None = None
    growing: bool = False
