"""Frames out of arrays that are stored in chunks, each chunk read once for all that is wanted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from core.arrays import Indices
from core.errors import AmbiguousFormatError, FormatError, ShapeError
from core.tiles.formats.layout import Found, settle
from core.tiles.formats.source import Source
from core.tiles.frames import Loaded
from core.tiles.recording import Axis, Extent, Hints, Recording

from .file_set import FileSet

Values = npt.NDArray[Any]
Box = tuple[tuple[int, int], ...]
"""Start and stop along each axis."""

READ_BYTES = 8 << 20
"""Bytes read at once, unless a single chunk has more."""
MOST_CHUNK_BYTES = 1 << 30
"""A chunk is in memory as a whole to be decoded."""
MOST_DIMENSIONS = 8
_FRAME_DIMENSIONS = 2
_SIZES = {"b": {1}, "u": {1, 2, 4, 8}, "i": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}
"""Bytes of values, by kind."""
_MOST_NAMED = 8


class BlockArray(Protocol):
    """An array in a file, of which boxes can be read; by any thread, also at once."""

    @property
    def file(self) -> int:
        """Index of the file it is in."""

    @property
    def name(self) -> str:
        """Where it is in the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """All of its dimensions."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As it is stored."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """What is decoded together."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """One for each dimension; empty if nothing is known."""

    @property
    def offset(self) -> int | None:
        """Byte of the file at which its values lie as they are in memory; None if they do not."""

    def read(self, box: Box) -> Values:
        """The values in a box.

        Raises:
            FormatError: they cannot be decoded.
            DataChangedError: a file is not what it was.
        """


class ArrayFrames:
    """Frames of arrays, one array behind the other; for one thread.

    Args:
        arrays: whose last dimensions are a frame, all of the same type.
        sig_dims: how many dimensions a frame has.
    """

    def __init__(self, arrays: Sequence[BlockArray], sig_dims: int) -> None:
        self._arrays = arrays
        self._sig_dims = sig_dims
        self._rest = arrays[0].shape[len(arrays[0].shape) - sig_dims :][1:]
        self._dtype = arrays[0].dtype
        counts = [math.prod(array.shape[: len(array.shape) - sig_dims]) for array in arrays]
        self._ends = np.cumsum(np.array(counts, np.int64))
        self._firsts = self._ends - counts
        self._buffer: Values = np.zeros(0, self._dtype)

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Rows start to stop, along the first axis of a frame, of these frames."""
        pitch = math.prod(self._rest)
        size = (rows[1] - rows[0]) * pitch
        if len(frames) * size > len(self._buffer):
            self._buffer = np.empty(len(frames) * size, self._dtype)
        flat = self._buffer[: len(frames) * size]
        out = flat.reshape(len(frames), rows[1] - rows[0], *self._rest)
        which = np.searchsorted(self._ends, frames, side="right")
        for number in np.unique(which).tolist():
            places = np.flatnonzero(which == number)
            self._fill(number, frames[places] - self._firsts[number], rows, (out, places))
        values = flat.view()
        values.flags.writeable = False
        return Loaded(values, np.arange(len(frames), dtype=np.int64) * size, pitch)

    def _fill(
        self, number: int, frames: Indices, rows: tuple[int, int], target: tuple[Values, Indices]
    ) -> None:
        """Put frames of one array at their places."""
        array = self._arrays[number]
        out, places = target
        split = len(array.shape) - self._sig_dims
        sig: Box = (rows, *((0, length) for length in self._rest))
        pixels = math.prod(stop - start for start, stop in sig)
        most = READ_BYTES // self._dtype.itemsize
        order = np.argsort(frames, kind="stable")
        nav_shape = array.shape[:split] or (1,)
        positions = np.stack(np.unravel_index(frames[order], nav_shape), axis=1).astype(np.int64)
        cells = array.chunks[:split] or (1,)
        for nav, members in boxes(positions, cells, max(most // max(pixels, 1), 1)):
            low = np.array([start for start, _ in nav])
            lengths = [stop - start for start, stop in nav]
            inside = np.ravel_multi_index(tuple((positions[members] - low).T), lengths)
            room = most // math.prod(lengths)
            for part in pieces(sig, array.chunks[split:], room):
                values = array.read((*nav, *part) if split else part)
                extent = [stop - start for start, stop in part]
                each = values.reshape(math.prod(lengths), *extent)
                shifted: Any = (
                    slice(a - s, b - s) for (a, b), (s, _) in zip(part, sig, strict=True)
                )
                where: Any = (places[order[members]], *shifted)
                out[where] = each[inside]


def boxes(positions: Indices, cells: Sequence[int], most: int) -> Iterator[tuple[Box, Indices]]:
    """Boxes that have all positions in them, and which positions each has.

    Positions in the same cell are in the same box, so that no cell is read twice. Boxes
    that touch are one, as long as it has not more than ``most`` positions.

    Args:
        positions: shape (n, axes), at least one.
        cells: shape of a cell.
        most: positions of a box.
    """
    places = positions // np.array(cells)
    order = np.lexsort(places.T[::-1])
    ordered = places[order]
    begins = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)])
    lows = np.minimum.reduceat(positions[order], begins)
    highs = np.maximum.reduceat(positions[order], begins) + 1
    owner = np.arange(len(begins))
    for axis in reversed(range(len(cells))):
        lows, highs, merged = _merged(lows, highs, axis, most)
        owner = merged[owner]
    label = np.empty(len(positions), np.int64)
    label[order] = owner[np.repeat(np.arange(len(begins)), np.diff(np.r_[begins, len(order)]))]
    by_box = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=len(lows)))
    for number, members in enumerate(np.split(by_box, ends[:-1])):
        pairs = zip(lows[number].tolist(), highs[number].tolist(), strict=True)
        yield tuple(pairs), members


def _merged(
    lows: Indices, highs: Indices, axis: int, most: int
) -> tuple[Indices, Indices, Indices]:
    """Boxes that touch along an axis as one; (starts, stops, which one each became part of)."""
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
        if not follows or (stops[k] - starts[heads[-1]]) * across[k] > most:
            heads.append(k)
    became = np.empty(len(order), np.int64)
    became[order] = np.repeat(np.arange(len(heads)), np.diff([*heads, len(order)]))
    tails = [*(head - 1 for head in heads[1:]), len(order) - 1]
    ends = high[heads]
    ends[:, axis] = high[tails, axis]
    return low[heads], ends, became


def pieces(box: Box, cells: Sequence[int], most: int, axis: int = 0) -> Iterator[Box]:
    """A box in parts of whole cells, of at most ``most`` items where a cell has not more."""
    items = math.prod(stop - start for start, stop in box)
    if items <= most or axis == len(box):
        yield box
        return
    start, stop = box[axis]
    cell = cells[axis]
    slab = items // max(stop - start, 1) * cell
    step = cell * max(most // slab, 1)
    at = start
    while at < stop:
        end = min((at // cell) * cell + step, stop)
        yield from pieces((*box[:axis], (at, end), *box[axis + 1 :]), cells, most, axis + 1)
        at = end


# -- which array, and what is in it ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What is known of an array before it is opened."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]


def choose(shapes: Mapping[str, tuple[int, ...]], source: str) -> str:
    """The only array with the dimensions of a scan and a frame.

    Args:
        shapes: of the arrays of numbers, by name.
        source: the file, for messages.

    Raises:
        AmbiguousFormatError: there is none, or there are several.
    """
    fitting = [name for name, shape in shapes.items() if len(shape) > _FRAME_DIMENSIONS]
    if len(fitting) == 1:
        return fitting[0]
    named = ", ".join(f"{name} {shapes[name]}" for name in (fitting or list(shapes))[:_MOST_NAMED])
    if len(fitting or shapes) > _MOST_NAMED:
        named += ", …"
    how = "several arrays" if fitting else "no array"
    raise AmbiguousFormatError(
        f"there is {how} of three dimensions or more"
        if not fitting
        else f"there are {how} of three dimensions or more: {named}",
        source=source,
        hint=f"Say which one in array; there are {named}"
        if named
        else "It has no array of numbers",
    )


def check(info: ArrayInfo, name: str, source: str) -> None:
    """Refuse an array that cannot be served.

    Raises:
        FormatError: of records or text, without values, or in chunks that are too large.
    """
    problem = hint = None
    if info.dtype.itemsize not in _SIZES.get(info.dtype.kind, ()):
        problem, hint = f"has values of type {info.dtype}", "Numbers of at most 8 bytes can be read"
    elif not 1 <= len(info.shape) <= MOST_DIMENSIONS:
        problem, hint = f"has {len(info.shape)} dimensions", f"1 to {MOST_DIMENSIONS} can be read"
    elif not all(info.shape):
        problem, hint = f"of shape {info.shape} is empty", "Write its values first"
    elif math.prod(info.chunks) * info.dtype.itemsize > MOST_CHUNK_BYTES:
        problem = f"is in chunks of {info.chunks}, of more than {MOST_CHUNK_BYTES} bytes"
        hint = "Write it again in smaller chunks"
    if problem is not None:
        raise FormatError(f"the array {name!r} {problem}", source=source, hint=hint)


def recording_of(
    form: str, files: FileSet, arrays: Sequence[BlockArray], hints: Hints
) -> Recording:
    """Arrays as one recording, their frames one behind the other.

    Where all values lie in the files as in memory, the extents are theirs; else they only
    count frames.

    Raises:
        FormatError: the arrays are not alike, or contradict the hints.
        ShapeError: the hints do not fit.
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
                f"{array.dtype.str} {array.shape}, but {first.dtype.str} {first.shape} in "
                f"{files.name(first.file)}",
                source=files.name(array.file),
                hint="Make a dataset of each",
            )
        shapes.append(array.shape[:split])
        frames = math.prod(array.shape[:split])
        extents.append(Extent(array.file, frames, (array.offset or 0) if plain else 0, size))
    found = Found(
        format=form,
        extents=extents,
        sig_shape=sig,
        stored=first.dtype,
        nav_shape=_joined(shapes) if len(arrays) > 1 else nav or (1,),
        axes=first.axes if len(arrays) == 1 and nav else (),
        metadata={"array": first.name, "chunks": list(first.chunks)},
    )
    return settle(source, found, hints)


def _split(array: BlockArray, hints: Hints, source: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the scan and of a frame."""
    shape, sig, nav = array.shape, hints.sig_shape, hints.nav_shape
    if sig is not None:
        split = len(shape) - len(sig)
        if split < 0 or shape[split:] != sig:
            raise ShapeError(
                f"the array {array.name!r} of shape {shape} does not end in frames of {sig}",
                source=source,
                hint="Leave sig_shape out, or give the last dimensions",
            )
        return shape[:split], sig
    if nav is not None and len(nav) < len(shape) and shape[: len(nav)] == nav:
        return nav, shape[len(nav) :]
    if len(shape) < _FRAME_DIMENSIONS:
        raise ShapeError(f"an array of shape {shape} needs sig_shape to have frames", source=source)
    return shape[:-_FRAME_DIMENSIONS], shape[-_FRAME_DIMENSIONS:]


def _joined(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The scan of arrays laid one behind the other."""
    rest = shapes[0][1:]
    if all(shape and shape[1:] == rest for shape in shapes):
        return (sum(shape[0] for shape in shapes), *rest)
    return (sum(math.prod(shape) for shape in shapes),)


def linear(values: Values) -> tuple[float, float] | None:
    """(scale, offset) of coordinates at equal distances; None if they are not."""
    flat = np.asarray(values).reshape(-1)
    if flat.dtype.kind not in "iuf" or not len(flat) or not np.isfinite(flat).all():
        return None
    flat = flat.astype(np.float64)
    if len(flat) == 1:
        return 1.0, float(flat[0])
    step = float(flat[-1] - flat[0]) / (len(flat) - 1)
    straight = flat[0] + step * np.arange(len(flat))
    if not step or not np.allclose(flat, straight, rtol=0, atol=abs(step) * 1e-3):
        return None
    return step, float(flat[0])
