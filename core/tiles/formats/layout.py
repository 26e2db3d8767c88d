"""From headers to a recording: frame counts are checked against file sizes, shapes settled.

Three parties describe a dataset: the headers, the sizes of the files, and the owner's hints.
They often disagree: a transfer was interrupted, a camera wrote fewer frames than announced, or
the catalogue was copied from another dataset. A format module only reads headers; deciding who is
right is the same for all formats and happens here::

    format module --> count_frames --> Found --> settle --> Recording
                      (file sizes)              (hints)

* **Sizes check headers.** :func:`count_frames` accepts bytes after the declared frames with a
  note, but raises if a file ends inside a frame or before the declared number of frames, unless
  the owner declared the dataset growing. Dropping frames silently would shift the rest of the
  scan.
* **Files beat hints on bytes.** :func:`settle` refuses a dtype or header size that contradicts the
  file.
* **Hints beat files on interpretation.** The owner may set the shape of the scan and the sync
  offset freely, and view unpacked frames in another shape of as many pixels.

A file that consists of headers and frames at a constant distance is described by one extent::

    | file_header | frame_header | values | footer | frame_header | values | footer | ...
                                 ^ offset                         ^ offset + stride
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FormatError, ShapeError
from ..recording import Axis, BuiltIn, Extent, Hints, Recording
from .source import GROWING_HINT, Source

MAX_SCAN = 1 << 40
"""Maximum number of positions a header may declare; more frames than any file system holds."""

MAX_DIMENSIONS = 32
"""Most dimensions of a scan and a frame together."""
NUMERIC = "biufc"
"""Kinds of dtype allowed for pixels."""


def check_shape(shape: tuple[int, ...], label: str) -> None:
    """Refuse an invalid shape from the owner; ``label`` names it in the error.

    Raises:
        ShapeError: the shape has no dimensions, or one that is not positive.
    """
    if not shape or any(size < 1 for size in shape):
        raise ShapeError(f"{label} {shape} needs dimensions of at least 1")


def count_frames(  # noqa: PLR0913 - position, spacing and strictness
    source: Source,
    file: int,
    start: int,
    stride: int,
    *,
    growing: bool,
    declared: int | None = None,
    notes: list[str] | None = None,
) -> int:
    """Count the whole frames between a byte and the end of a file.

    Args:
        source: the files.
        file: index of the file.
        start: byte at which the first frame begins, with its header.
        stride: bytes per frame, with header and footer.
        growing: whether the file is still being written and may end anywhere.
        declared: number of frames according to the header, which is then the maximum.
        notes: receives a note on bytes after the declared frames.

    Raises:
        FormatError: the file ends before its first frame, inside a frame, or before the
            declared number of frames.
    """
    size = source.files[file].size
    if size < start:
        raise source.fault(
            file,
            f"the file ends before its first frame, which would begin at byte {start}",
            offset=size,
            hint=GROWING_HINT,
        )
    whole, rest = divmod(size - start, stride)
    if declared is not None and whole >= declared:
        unused = size - start - declared * stride
        if unused and notes is not None:
            notes.append(f"{source.files[file].name}: {unused} bytes after the frames are not used")
        return declared
    if growing:
        return whole
    if declared is not None:
        raise source.fault(
            file,
            f"the file holds {whole} of {declared} frames of {stride} bytes",
            offset=start + whole * stride,
            hint=GROWING_HINT,
        )
    if rest:
        raise source.fault(
            file,
            f"the last frame is truncated: {rest} of {stride} bytes are present",
            offset=start + whole * stride,
            hint=GROWING_HINT,
        )
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Contents of the headers, before the owner's hints are applied."""

    format: str
    extents: Sequence[Extent]
    sig_shape: tuple[int, ...]
    stored: np.dtype[Any] | None = None
    """Dtype of the values in the file; None for packed values, which the next three describe."""
    decoder: str | None = None
    dtype: np.dtype[Any] | None = None
    frame_bytes: int | None = None
    nav_shape: tuple[int, ...] | None = None
    file_header: int = 0
    frame_header: int = 0
    frame_footer: int = 0
    sync_offset: int = 0
    axes: tuple[Axis, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    built_in: BuiltIn = field(default_factory=BuiltIn)
    notes: Sequence[str] = ()


def _native(found: Found) -> np.dtype[Any]:
    dtype = found.dtype if found.stored is None else found.stored
    if dtype is None:
        raise AssertionError("packed values without a dtype")
    return dtype.newbyteorder("=")


def _check_hints(source: Source, found: Found, hints: Hints) -> None:
    """Refuse hints that contradict the files.

    Raises:
        FormatError: a header size or the dtype differs.
    """
    name = source.files[0].name
    native = _native(found)
    sizes = {
        "file_header": (hints.file_header, found.file_header),
        "frame_header": (hints.frame_header, found.frame_header),
        "frame_footer": (hints.frame_footer, found.frame_footer),
    }
    for option, (requested, actual) in sizes.items():
        if requested is not None and requested != actual:
            raise FormatError(
                f"{option} is {requested} in the catalogue and {actual} in a {found.format} file",
                source=name,
                offset=0,
                hint=f"Leave {option} out",
            )
    if hints.dtype is None:
        return
    other_values = hints.dtype.newbyteorder("=") != native
    # numpy does not distinguish native order from no order, so only the other is explicit.
    other_order = not hints.dtype.isnative and found.stored is not None and found.stored.isnative
    if other_values or other_order:
        raise FormatError(
            f"dtype is {hints.dtype.str} in the catalogue and "
            f"{(found.stored or native).str} in the file",
            source=name,
            offset=0,
            hint="Leave dtype out; a view can convert",
        )


def _sig_shape(source: Source, found: Found, hints: Hints) -> tuple[int, ...]:
    requested = hints.sig_shape
    if requested is None or requested == found.sig_shape:
        return found.sig_shape
    check_shape(requested, "sig_shape")
    if math.prod(requested) != math.prod(found.sig_shape):
        raise ShapeError(
            f"sig_shape {requested} has {math.prod(requested)} pixels, "
            f"the frames have {math.prod(found.sig_shape)}: {found.sig_shape}",
            source=source.files[0].name,
            offset=0,
            hint="Leave sig_shape out",
        )
    if found.decoder is not None:
        raise ShapeError(
            f"packed frames of {found.sig_shape} cannot be reshaped to {requested}",
            source=source.files[0].name,
            offset=0,
            hint="Leave sig_shape out; a client can reshape the frames it receives",
        )
    return requested


def _nav_shape(source: Source, found: Found, hints: Hints, frames: int) -> tuple[int, ...]:
    if hints.nav_shape is not None:
        check_shape(hints.nav_shape, "nav_shape")
        return hints.nav_shape
    shape = found.nav_shape
    if shape is None:
        return (frames,)
    if not shape or min(shape) < 1 or math.prod(shape) > MAX_SCAN:
        raise FormatError(
            f"the files declare a scan of {shape}, which is invalid",
            source=source.files[0].name,
            offset=0,
            hint="Give nav_shape",
        )
    return shape


def settle(source: Source, found: Found, hints: Hints) -> Recording:
    """Apply the owner's hints to the contents of the headers.

    Raises:
        FormatError: there is no frame, or a hint contradicts the files.
        ShapeError: a shape does not fit the frames.
    """
    extents = tuple(extent for extent in found.extents if extent.frames)
    frames = sum(extent.frames for extent in extents)
    if not frames and not hints.growing:
        raise FormatError(
            "there are no frames",
            source=source.files[0].name,
            offset=source.files[0].size,
            hint="If it is still being written, declare the dataset growing",
        )
    _check_hints(source, found, hints)
    sig_shape = _sig_shape(source, found, hints)
    nav_shape = _nav_shape(source, found, hints, frames)
    if len(nav_shape) + len(sig_shape) > MAX_DIMENSIONS:
        raise FormatError(
            f"the files declare {len(nav_shape) + len(sig_shape)} dimensions",
            source=source.files[0].name,
            hint=f"Give a nav_shape; at most {MAX_DIMENSIONS} dimensions are served",
        )
    native = _native(found)
    reshaped = sig_shape != found.sig_shape or nav_shape != found.nav_shape
    sync = found.sync_offset if hints.sync_offset is None else hints.sync_offset
    return Recording(
        format=found.format,
        extents=extents,
        sig_shape=sig_shape,
        nav_shape=nav_shape,
        dtype=native,
        stored=found.stored,
        decoder=found.decoder,
        frame_bytes=found.frame_bytes or math.prod(sig_shape) * native.itemsize,
        sync_offset=sync,
        axes=() if reshaped else found.axes,
        metadata=found.metadata,
        built_in=_reshaped(found.built_in, found.sig_shape, sig_shape),
        notes=tuple(found.notes),
    )


def _reshaped(built_in: BuiltIn, old: tuple[int, ...], new: tuple[int, ...]) -> BuiltIn:
    """Reshape corrections to frames viewed in another shape."""
    if old == new:
        return built_in
    dark, gain, excluded = built_in.dark, built_in.gain, built_in.excluded
    if excluded is not None:
        flat = np.ravel_multi_index(tuple(excluded.T), old)
        excluded = np.stack(np.unravel_index(flat, new), axis=1).astype(np.int64)
    return BuiltIn(
        dark=None if dark is None else dark.reshape(new),
        gain=None if gain is None else gain.reshape(new),
        excluded=excluded,
    )
