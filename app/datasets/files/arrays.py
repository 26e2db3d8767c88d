"""Frames of arrays stored in chunks: every chunk a request needs is decoded once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from core.arrays import Array, Indices
from core.errors import AmbiguousFormatError, FormatError, ShapeError
from core.tiles.formats.layout import Found, settle
from core.tiles.formats.source import Source
from core.tiles.frames import Loaded
from core.tiles.plan import Box
from core.tiles.recording import Axis, Extent, Hints, Recording

from .file_set import FileSet

READ_BYTES = 8 << 20
"""Maximum bytes read at once, unless a single chunk is larger."""
MAX_CHUNK_BYTES = 1 << 30
"""Maximum decoded size of a chunk, which must fit into memory as a whole."""
MAX_DIMENSIONS = 8
_FRAME_DIMENSIONS = 2
_ITEM_SIZES = {"b": {1}, "u": {1, 2, 4, 8}, "i": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}
"""Supported sizes of a value in bytes, by kind of dtype."""
_MAX_LISTED = 8


class BlockArray(Protocol):
    """An array in a file that can be read in boxes; several threads may read at once."""

    @property
    def file(self) -> int:
        """Index of the file."""

    @property
    def name(self) -> str:
        """Path of the array in the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, navigation and signal dimensions together."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored dtype."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk, the unit of decoding."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """One axis per dimension; empty if the file describes none."""

    @property
    def offset(self) -> int | None:
        """Byte of the file at which the values begin if they lie there as in memory, else None."""

    def read(self, box: Box) -> Array:
        """Read the values in a box, given as (start, stop) along each axis.

        Raises:
            FormatError: the values cannot be decoded.
            DataChangedError: a file changed since it was opened.
        """


class ArrayFrames:
    """Frames of one or more arrays, in the order of the arrays; for one thread at a time.

    Args:
        arrays: arrays of one dtype, whose last dimensions are a frame.
        sig_dims: number of dimensions of a frame.
    """

    def __init__(self, arrays: Sequence[BlockArray], sig_dims: int) -> None:
        self._arrays = arrays
        self._sig_dims = sig_dims
        self._rest = arrays[0].shape[len(arrays[0].shape) - sig_dims :][1:]
        self._dtype = arrays[0].dtype
        counts = [math.prod(array.shape[: len(array.shape) - sig_dims]) for array in arrays]
        self._ends = np.cumsum(np.array(counts, np.int64))
        self._firsts = self._ends - counts
        self._buffer: Array = np.zeros(0, self._dtype)

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Read frames, cropped along their first axis.

        Args:
            frames: indices of the frames, in any order; repetitions are allowed.
            rows: (start, stop) along the first axis of a frame.

        Returns:
            The values, valid until the next call.
        """
        pitch = math.prod(self._rest)
        size = (rows[1] - rows[0]) * pitch
        if len(frames) * size > len(self._buffer):
            self._buffer = np.empty(len(frames) * size, self._dtype)
        flat = self._buffer[: len(frames) * size]
        out = flat.reshape(len(frames), rows[1] - rows[0], *self._rest)
        owners = np.searchsorted(self._ends, frames, side="right")
        for number in np.unique(owners).tolist():
            slots = np.flatnonzero(owners == number)
            self._fill(number, frames[slots] - self._firsts[number], rows, (out, slots))
        values = flat.view()
        values.flags.writeable = False
        return Loaded(values, np.arange(len(frames), dtype=np.int64) * size, pitch)

    def _fill(
        self, number: int, frames: Indices, rows: tuple[int, int], target: tuple[Array, Indices]
    ) -> None:
        """Read frames of one array into their slots of the output.

        Args:
            number: index of the array.
            frames: indices of the frames in the array.
            rows: (start, stop) along the first axis of a frame.
            target: the output, and the slot of each frame in it.
        """
        array = self._arrays[number]
        out, slots = target
        split = len(array.shape) - self._sig_dims
        sig: Box = (rows, *((0, length) for length in self._rest))
        pixels = math.prod(stop - start for start, stop in sig)
        max_items = READ_BYTES // self._dtype.itemsize
        order = np.argsort(frames, kind="stable")
        nav_shape = array.shape[:split] or (1,)
        positions = np.stack(np.unravel_index(frames[order], nav_shape), axis=1).astype(np.int64)
        cells = array.chunks[:split] or (1,)
        for nav, members in boxes(positions, cells, max(max_items // max(pixels, 1), 1)):
            low = np.array([start for start, _ in nav])
            lengths = [stop - start for start, stop in nav]
            inside = np.ravel_multi_index(tuple((positions[members] - low).T), lengths)
            for part in pieces(sig, array.chunks[split:], max_items // math.prod(lengths)):
                values = array.read((*nav, *part) if split else part)
                extent = [stop - start for start, stop in part]
                images = values.reshape(math.prod(lengths), *extent)
                shifted: Any = (
                    slice(a - s, b - s) for (a, b), (s, _) in zip(part, sig, strict=True)
                )
                selection: Any = (slots[order[members]], *shifted)
                out[selection] = images[inside]


def boxes(
    positions: Indices, cells: Sequence[int], max_positions: int
) -> Iterator[tuple[Box, Indices]]:
    """Cover positions with boxes; yield each box and the indices of its positions.

    All positions of a cell share a box, so that no cell is read twice. Boxes that touch
    are merged while the result has at most ``max_positions`` positions.

    Args:
        positions: shape (n, axes), n ≥ 1.
        cells: shape of a cell.
        max_positions: maximum size of a merged box.
    """
    coordinates = positions // np.array(cells)
    order = np.lexsort(coordinates.T[::-1])
    ordered = coordinates[order]
    begins = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)])
    lows = np.minimum.reduceat(positions[order], begins)
    highs = np.maximum.reduceat(positions[order], begins) + 1
    owner = np.arange(len(begins))
    for axis in reversed(range(len(cells))):
        lows, highs, merged = _merge(lows, highs, axis, max_positions)
        owner = merged[owner]
    label = np.empty(len(positions), np.int64)
    label[order] = owner[np.repeat(np.arange(len(begins)), np.diff(np.r_[begins, len(order)]))]
    by_box = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=len(lows)))
    for number, members in enumerate(np.split(by_box, ends[:-1])):
        pairs = zip(lows[number].tolist(), highs[number].tolist(), strict=True)
        yield tuple(pairs), members


def _merge(
    lows: Indices, highs: Indices, axis: int, max_positions: int
) -> tuple[Indices, Indices, Indices]:
    """Merge boxes that touch along an axis.

    Returns:
        Starts and stops of the merged boxes, shape (m, axes), and for each original box the
        index of the merged box it became part of.
    """
    others = [k for k in range(lows.shape[1]) if k != axis]
    order = np.lexsort((lows[:, axis], *(lows[:, k] for k in reversed(others))))
    low, high = lows[order], highs[order]
    touch = (low[1:, axis] == high[:-1, axis]) & (
        (low[1:, others] == low[:-1, others]) & (high[1:, others] == high[:-1, others])
    ).all(axis=1)
    across = np.prod(high[:, others] - low[:, others], axis=1).tolist()
    starts, stops = low[:, axis].tolist(), high[:, axis].tolist()
    heads = [0]
    for k, follows in enumerate(touch.tolist(), 1):
        if not follows or (stops[k] - starts[heads[-1]]) * across[k] > max_positions:
            heads.append(k)
    owner = np.empty(len(order), np.int64)
    owner[order] = np.repeat(np.arange(len(heads)), np.diff([*heads, len(order)]))
    tails = [*(head - 1 for head in heads[1:]), len(order) - 1]
    ends = high[heads]
    ends[:, axis] = high[tails, axis]
    return low[heads], ends, owner


def pieces(box: Box, cells: Sequence[int], max_items: int, axis: int = 0) -> Iterator[Box]:
    """Divide a box along cell borders into parts of at most ``max_items`` items.

    A part is never smaller than a cell, even if a cell has more items.
    """
    items = math.prod(stop - start for start, stop in box)
    if items <= max_items or axis == len(box):
        yield box
        return
    start, stop = box[axis]
    cell = cells[axis]
    slab = items // max(stop - start, 1) * cell
    step = cell * max(max_items // slab, 1)
    while start < stop:
        end = min((start // cell) * cell + step, stop)
        yield from pieces((*box[:axis], (start, end), *box[axis + 1 :]), cells, max_items, axis + 1)
        start = end


# -- choosing and describing an array --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Metadata of an array, read before the array is opened."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]


def choose(shapes: Mapping[str, tuple[int, ...]], source: str) -> str:
    """Choose the only array that has the dimensions of a scan and a frame.

    Args:
        shapes: shapes of the numeric arrays, by name.
        source: name of the file, for messages.

    Raises:
        AmbiguousFormatError: there are no such arrays, or several.
    """
    candidates = [name for name, shape in shapes.items() if len(shape) > _FRAME_DIMENSIONS]
    if len(candidates) == 1:
        return candidates[0]
    listed = candidates or list(shapes)
    names = ", ".join(f"{name} {shapes[name]}" for name in listed[:_MAX_LISTED])
    if len(listed) > _MAX_LISTED:
        names += ", …"
    message = "there is no array of three dimensions or more"
    if candidates:
        message = f"there are several arrays of three dimensions or more: {names}"
    hint = "Name a file with an array of numbers"
    if names:
        hint = f"Name one of them in array: {names}"
    raise AmbiguousFormatError(message, source=source, hint=hint)


def check(info: ArrayInfo, name: str, source: str) -> None:
    """Check that an array can be served.

    Raises:
        FormatError: the dtype, number of dimensions or size of chunks is unsupported, or the
            array is empty.
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
    elif math.prod(info.chunks) * info.dtype.itemsize > MAX_CHUNK_BYTES:
        problem = f"is in chunks of {info.chunks}, of more than {MAX_CHUNK_BYTES} bytes"
        hint = "Write it with smaller chunks"
    if problem is not None:
        raise FormatError(f"the array {name!r} {problem}", source=source, hint=hint)


def recording_of(
    form: str, files: FileSet, arrays: Sequence[BlockArray], hints: Hints
) -> Recording:
    """Describe arrays as one recording, their frames in the order of the arrays.

    If all values lie in the files as in memory, the extents locate them; else they only
    count frames.

    Raises:
        FormatError: the arrays differ in dtype or frame shape, or contradict the hints.
        ShapeError: the hints do not fit the arrays.
    """
    source = Source(files.infos, files)
    first = arrays[0]
    nav, sig = _split(first, hints, files.name(first.file))
    plain = all(array.offset is not None for array in arrays)
    size = math.prod(sig) * first.dtype.itemsize
    extents: list[Extent] = []
    shapes: list[tuple[int, ...]] = []
    for array in arrays:
        split = len(array.shape) - len(sig)
        if array.dtype != first.dtype or split < 0 or array.shape[split:] != sig:
            raise FormatError(
                f"the array is {array.dtype.str} {array.shape}, but "
                f"{first.dtype.str} {first.shape} in {files.name(first.file)}",
                source=files.name(array.file),
                hint="Register each file as a dataset of its own",
            )
        shapes.append(array.shape[:split])
        frames = math.prod(array.shape[:split])
        extents.append(Extent(array.file, frames, (array.offset or 0) if plain else 0, size))
    found = Found(
        format=form,
        extents=extents,
        sig_shape=sig,
        stored=first.dtype,
        nav_shape=_concatenated(shapes) if len(arrays) > 1 else nav or (1,),
        axes=first.axes if len(arrays) == 1 and nav else (),
        metadata={"array": first.name, "chunks": list(first.chunks)},
    )
    return settle(source, found, hints)


def _split(array: BlockArray, hints: Hints, source: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the shape of an array into those of the scan and of a frame."""
    shape, sig, nav = array.shape, hints.sig_shape, hints.nav_shape
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
    if len(shape) < _FRAME_DIMENSIONS:
        raise ShapeError(
            f"an array of shape {shape} has no frames",
            source=source,
            hint="Set sig_shape to the shape of a frame",
        )
    return shape[:-_FRAME_DIMENSIONS], shape[-_FRAME_DIMENSIONS:]


def _concatenated(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of scans concatenated along their first axis; flat if they differ."""
    rest = shapes[0][1:]
    if all(shape and shape[1:] == rest for shape in shapes):
        return (sum(shape[0] for shape in shapes), *rest)
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
