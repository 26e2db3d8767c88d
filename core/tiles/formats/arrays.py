"""Arrays of a file or store as a recording: choosing, checking and describing them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays import Array
from ...errors import AmbiguousFormatError, FormatError, ShapeError
from ..plan import Box
from ..recording import Axis, Extent, FileInfo, Hints, Recording
from .format import Found, settle

MAX_DIMENSIONS = 8
_FRAME_DIMENSIONS = 2
_ITEM_SIZES = {"b": {1}, "u": {1, 2, 4, 8}, "i": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}
"""Supported sizes of a value in bytes, by kind of dtype."""
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True, eq=False)
class BlockArray(ABC):
    """An array in a file that can be read in boxes, by several threads at once."""

    file: int
    """Index of the file."""
    name: str
    """Path of the array in the file."""
    shape: tuple[int, ...]
    """Shape, navigation and signal dimensions together."""
    dtype: np.dtype[Any]
    """Stored dtype."""
    chunks: tuple[int, ...]
    """Shape of a chunk, the unit of decoding."""
    axes: tuple[Axis, ...]
    """One axis per dimension; empty if the file describes none."""
    stretches: Sequence[tuple[int, int]]
    """Number and first byte of values that lie in the file one after the other, in C order; none
    if the file does not have all values as they are."""

    @abstractmethod
    def read(self, boxes: Sequence[Box]) -> Sequence[Array]:
        """Read the values in boxes, each given as (start, stop) along each axis.

        Returns:
            The values in each box, which must not be written to.

        Raises:
            FormatError: the values cannot be decoded.
            DataChangedError: a file changed since it was opened.
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Values(BlockArray):
    """An array whose values are frames of one pixel each, such as labels."""

    inner: BlockArray

    def read(self, boxes: Sequence[Box]) -> Sequence[Array]:
        """See BlockArray."""
        return [values[..., None] for values in self.inner.read([box[:-1] for box in boxes])]


def with_frames(array: BlockArray, sig_shape: tuple[int, ...] | None) -> BlockArray:
    """Return an array that ends in frames: of a list, or if frames have one pixel, of its values.

    Args:
        array: the array.
        sig_shape: shape of a frame, if it is stated.
    """
    is_list = sig_shape is None and len(array.shape) == 1
    if not is_list and (sig_shape != (1,) or array.shape[-1] == 1):
        return array
    shapes = (*array.shape, 1), array.dtype, (*array.chunks, 1)
    return _Values(array.file, array.name, *shapes, (), array.stretches, array)


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Metadata of an array, read before the array is opened."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]


def choose(
    shapes: Mapping[str, tuple[int, ...]], source: str, others: Mapping[str, str] | None = None
) -> str:
    """Choose the only array with enough dimensions for a scan and a frame, or the only one.

    Args:
        shapes: shapes of the numeric arrays, by name.
        source: name of the file, for messages.
        others: what the other arrays hold, by name, for messages.

    Raises:
        AmbiguousFormatError: there is no such array, or more than one.
    """
    candidates = [name for name, shape in shapes.items() if len(shape) > _FRAME_DIMENSIONS]
    listed = candidates or [name for name, shape in shapes.items() if shape]
    if len(listed) == 1:
        return listed[0]
    if not listed:
        held = some_of([f"{name} ({form})" for name, form in (others or {}).items()])
        message = f"there is no array of numbers{held and ', only '}{held}"
        hint = "Name a file with an array of numbers"
        raise AmbiguousFormatError(message, source=source, hint=hint)
    message = "there is no array of three dimensions or more, but several smaller ones"
    if candidates:
        message = "there are several arrays of three dimensions or more"
    names = some_of([f"{name} {shapes[name]}" for name in listed])
    raise AmbiguousFormatError(message, source=source, hint=f"Name one of them in array: {names}")


def some_of(names: Sequence[str]) -> str:
    """Return a list of names for a message, cut off where it is long."""
    return ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")


def check(info: ArrayInfo, name: str, source: str) -> None:
    """Check that an array can be served; the size of its chunks is for whoever decodes them.

    Raises:
        FormatError: the dtype or number of dimensions is unsupported, or the array is empty.
    """
    problem = hint = None
    if info.dtype.itemsize not in _ITEM_SIZES.get(info.dtype.kind, ()):
        problem = f"has values of type {info.dtype}"
        hint = "Convert them to integers, real or complex numbers of standard size"
    elif not 1 <= len(info.shape) <= MAX_DIMENSIONS:
        problem = f"has {len(info.shape)} dimensions"
        hint = f"Write it with 1 to {MAX_DIMENSIONS} dimensions"
    elif not all(info.shape):
        problem, hint = f"of shape {info.shape} is empty", "Write its values first"
    if problem is not None:
        raise FormatError(f"the array {name!r} {problem}", source=source, hint=hint)


def recording_of(
    form: str, files: Sequence[FileInfo], arrays: Sequence[BlockArray], hints: Hints
) -> Recording:
    """Describe arrays as one recording, with frames in the order of the arrays.

    If :func:`are_located` says so, the extents locate the frames; otherwise they only count them.

    Raises:
        FormatError: the arrays differ in dtype or frame shape, or contradict the hints.
        ShapeError: the hints do not fit the arrays.
    """
    first = arrays[0]
    nav, sig = _split(first, hints, files[first.file].name)
    plain, values = are_located(arrays, sig), math.prod(sig)
    size = math.prod(sig) * first.dtype.itemsize
    extents: list[Extent] = []
    shapes: list[tuple[int, ...]] = []
    for array in arrays:
        split = len(array.shape) - len(sig)
        if array.dtype != first.dtype or split < 0 or array.shape[split:] != sig:
            raise FormatError(
                f"the array is {array.dtype.str} {array.shape}, but "
                f"{first.dtype.str} {first.shape} in {files[first.file].name}",
                source=files[array.file].name,
                hint="Register each file as a dataset of its own",
            )
        shapes.append(array.shape[:split])
        whole = [(math.prod(array.shape), 0)]
        for count, begin in array.stretches if plain else whole:
            extents.append(Extent(array.file, count // values, begin, size))
    nav_shape = concatenated(shapes) or (1,)
    axes: tuple[Axis, ...] = first.axes if nav else ()
    notes: list[str] = []
    if len(arrays) > 1:
        names = [files[array.file].name for array in arrays]
        is_described = any(array.axes for array in arrays)
        axes, notes = _joined_axes(arrays, nav_shape, len(sig), names) if is_described else ((), [])
    found = Found(
        extents=extents,
        sig_shape=sig,
        stored=first.dtype,
        nav_shape=nav_shape,
        axes=axes,
        metadata={"array": first.name, "chunks": list(first.chunks)},
    )
    return settle(form, files[0], found, hints, notes)


def _joined_axes(
    arrays: Sequence[BlockArray], nav_shape: tuple[int, ...], sig_dims: int, files: Sequence[str]
) -> tuple[tuple[Axis, ...], list[str]]:
    """Return the axes of several arrays as one, and notes on those that the files disagree on.

    Args:
        arrays: the arrays.
        nav_shape: shape of their scan.
        sig_dims: number of dimensions of a frame.
        files: name of the file of each array.
    """
    shape = arrays[0].shape
    split = len(shape) - sig_dims
    is_stacked = split == len(nav_shape)
    axes = [] if is_stacked else [Axis("axis_0", nav_shape[0])]
    notes = []
    for k in range(0 if is_stacked else split, len(shape)):
        each = [array.axes[k - len(shape)] if array.axes else None for array in arrays]
        other = _first_other(each, follows=k < split and k == 0)
        axis = each[0]
        if other or axis is None:
            notes.append(
                f"axis {k} has no scale, as files disagree: {_described(axis)} in {files[0]}, but"
                f" {_described(each[other])} in {files[other]}"
            )
            names = {axis and axis.name for axis in each}
            name = names.pop() if len(names) == 1 else None
            axis = Axis(name or f"axis_{k}", 0)
        axes.append(replace(axis, size=(*nav_shape, *shape[split:])[k - len(shape)]))
    return tuple(axes), notes


def _first_other(axes: Sequence[Axis | None], *, follows: bool) -> int:
    """Return the first that differs from axis 0; 0 if none does.

    Args:
        axes: the same axis in each file.
        follows: whether each may also begin where the one before ends.
    """
    first, *others = axes
    end = 0.0 if first is None else first.offset + first.scale * first.size
    for number, axis in enumerate(others, 1):
        if first is None or axis is None:
            if axis is not first:
                return number
            continue
        near = abs(first.scale) * 1e-3
        begins = abs(axis.offset - first.offset) < near or (
            follows and abs(axis.offset - end) < near
        )
        is_same = abs(axis.scale - first.scale) * axis.size < near and begins
        if not is_same or (axis.name, axis.unit) != (first.name, first.unit):
            return number
        end += axis.scale * axis.size
    return 0


def _described(axis: Axis | None) -> str:
    if axis is None:
        return "nothing"
    return f"{axis.name} in steps of {axis.scale:.6g} {axis.unit or ''}".strip() + (
        f" from {axis.offset:.6g}"
    )


def are_located(arrays: Sequence[BlockArray], sig_shape: tuple[int, ...]) -> bool:
    """Whether each frame of these arrays is known to lie in a file in one piece."""
    values = math.prod(sig_shape)
    return all(
        array.stretches and not any(count % values for count, _ in array.stretches)
        for array in arrays
    )


def _split(array: BlockArray, hints: Hints, source: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the shape of an array into those of the scan and of a frame."""
    shape, sig, nav = array.shape, hints.sig_shape, hints.nav_shape
    if isinstance(array, _Values):
        return shape[:-1], shape[-1:]
    if sig is not None:
        split = len(shape) - len(sig)
        if split < 0 or shape[split:] != sig:
            raise ShapeError(
                f"the array {array.name!r} of shape {shape} does not end in frames of {sig}",
                source=source,
                hint="Omit sig_shape, or set it to the last dimensions",
            )
        return shape[:split], sig
    if nav is not None and len(nav) < len(shape) and shape[: len(nav)] == nav:
        return nav, shape[len(nav) :]
    return shape[:-_FRAME_DIMENSIONS], shape[-_FRAME_DIMENSIONS:]


def concatenated(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of scans concatenated along their first axis; flat if rows differ."""
    first, *others = shapes
    if not others:
        return first
    if all(shape and shape[1:] == first[1:] for shape in shapes):
        return (sum(shape[0] for shape in shapes), *first[1:])
    return (sum(math.prod(shape) for shape in shapes),)


def linear(values: Array) -> tuple[float, float] | None:
    """Return (scale, offset) of evenly spaced coordinates; None if they are not."""
    flat = np.asarray(values).reshape(-1)
    if flat.dtype.kind not in "iuf" or not len(flat) or not np.isfinite(flat).all():
        return None
    flat = flat.astype(np.float64)
    if len(flat) == 1:
        return 1.0, float(flat[0])
    step = float(flat[-1] - flat[0]) / (len(flat) - 1)
    line = flat[0] + step * np.arange(len(flat))
    if not step or not np.allclose(flat, line, rtol=0, atol=abs(step) * 1e-3):
        return None
    return step, float(flat[0])
