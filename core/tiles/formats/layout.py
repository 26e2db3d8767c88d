"""From what headers say to a recording: counts checked against sizes, shapes settled."""

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
"""Frames of a scan as a header tells it; more than any file system holds."""

NUMERIC = "biufc"
"""Kinds of dtype a pixel can have."""


def check_shape(shape: tuple[int, ...], what: str) -> None:
    """Refuse a shape from the owner that cannot be one.

    Raises:
        ShapeError: no dimensions, or one that is not positive.
    """
    if not shape or any(size < 1 for size in shape):
        raise ShapeError(f"{what} {shape} needs dimensions of at least 1")


def count_frames(  # noqa: PLR0913 - where frames lie, and how strictly
    source: Source,
    file: int,
    start: int,
    stride: int,
    *,
    growing: bool,
    declared: int | None = None,
    notes: list[str] | None = None,
) -> int:
    """Whole frames from a byte to the end of a file, not more than declared.

    Raises:
        FormatError: the file ends inside a frame, or before the declared number.
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
            f"the last frame is cut: {rest} of {stride} bytes are there",
            offset=start + whole * stride,
            hint=GROWING_HINT,
        )
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a format module found, before the owner's hints are applied."""

    format: str
    extents: Sequence[Extent]
    sig_shape: tuple[int, ...]
    stored: np.dtype[Any] | None = None
    """None for packed values; then the next three say how they become pixels."""
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


def _agree(source: Source, found: Found, hints: Hints) -> None:
    """Refuse what the owner said where the files say otherwise."""
    name = source.files[0].name
    native = _native(found)
    said = {
        "file_header": (hints.file_header, found.file_header),
        "frame_header": (hints.frame_header, found.frame_header),
        "frame_footer": (hints.frame_footer, found.frame_footer),
    }
    for option, (wanted, real) in said.items():
        if wanted is not None and wanted != real:
            raise FormatError(
                f"{option} is {wanted} in the catalogue and {real} in a {found.format} file",
                source=name,
                offset=0,
                hint=f"Leave {option} out",
            )
    if hints.dtype is None:
        return
    other_values = hints.dtype.newbyteorder("=") != native
    # numpy writes the machine's own order as "no order said": only the other is explicit
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
    wanted = hints.sig_shape
    if wanted is None or wanted == found.sig_shape:
        return found.sig_shape
    check_shape(wanted, "sig_shape")
    if math.prod(wanted) != math.prod(found.sig_shape):
        raise ShapeError(
            f"sig_shape {wanted} has {math.prod(wanted)} pixels, "
            f"the frames have {math.prod(found.sig_shape)}: {found.sig_shape}",
            source=source.files[0].name,
            offset=0,
            hint="Leave sig_shape out",
        )
    if found.decoder is not None:
        raise ShapeError(
            f"packed frames of {found.sig_shape} cannot be seen as {wanted}",
            source=source.files[0].name,
            offset=0,
            hint="Leave sig_shape out; a client can reshape what it gets",
        )
    return wanted


def _nav_shape(source: Source, found: Found, hints: Hints, frames: int) -> tuple[int, ...]:
    if hints.nav_shape is not None:
        check_shape(hints.nav_shape, "nav_shape")
        return hints.nav_shape
    shape = found.nav_shape
    if shape is None:
        return (frames,)
    if not shape or min(shape) < 1 or math.prod(shape) > MAX_SCAN:
        raise FormatError(
            f"the files tell of a scan of {shape}, which cannot be",
            source=source.files[0].name,
            offset=0,
            hint="Give nav_shape",
        )
    return shape


def settle(source: Source, found: Found, hints: Hints) -> Recording:
    """The recording, after the owner's hints were applied or refused.

    Raises:
        FormatError: not a single frame, or a hint that the files contradict.
        ShapeError: a shape that does not fit.
    """
    extents = tuple(extent for extent in found.extents if extent.frames)
    frames = sum(extent.frames for extent in extents)
    if not frames and not hints.growing:
        raise FormatError(
            "there is not a single frame",
            source=source.files[0].name,
            offset=source.files[0].size,
            hint="If it is still being written, declare the dataset growing",
        )
    _agree(source, found, hints)
    sig_shape = _sig_shape(source, found, hints)
    nav_shape = _nav_shape(source, found, hints, frames)
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
    """Corrections for frames that are seen in another shape."""
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
