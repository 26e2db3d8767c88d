"""Frames of arrays stored in chunks: each chunk of a request is decoded once.

A chunk is the unit of decoding: to read one of its values, all of it is decompressed. A request
may list frames in any order, and a chunk often holds many frames, so reading frame by frame
would decode the same chunk again and again. Instead, the frames are grouped by chunk::

    scan in chunks of 2 x 3 positions; x marks the requested ones

    +-------+-------+-------+
    | x x x | x x x |       |     one box per chunk; these two touch and are merged
    |       |       |     x |     a box of its own
    +-------+-------+-------+

* :func:`boxes` covers the requested positions with boxes. All positions of a chunk are in one
  box, and touching boxes are merged up to a bounded size, because a call of the library costs
  more than a few extra frames. Positions that are far apart are boxes as they are.
* :func:`pieces` splits a box along chunk borders if it is too large to be read at once.

Each piece is read with one call of the library, and its frames are copied to their slots in the
output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Indices, Octets
from .formats.arrays import BlockArray
from .frames import Loaded, Use
from .plan import Box

READ_BYTES = 8 << 20
"""Maximum bytes read at once, unless a single chunk is larger."""
READ_BOXES = 1024
"""Maximum number of boxes read at once."""


_FEW = 8
"""One position of so many may be in a cell that touches another's."""
_FIRST = np.zeros(1, np.int64)


class _Part(NamedTuple):
    """A box, and where the frames in it go."""

    box: Box
    members: Indices
    """Which of the requested frames it has."""
    inside: Indices
    """Position of each of them among the frames of the box."""
    pixels: tuple[slice, ...]
    """All frames of the output, and the pixels of a frame that the box has."""


class ArrayFrames:
    """Frames of one or more arrays, numbered in the order of the arrays.

    For one thread at a time, because calls share a buffer.

    Args:
        arrays: arrays of one dtype and frame shape; their last dimensions are a frame.
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

    def visit(self, frames: Indices, rows: tuple[int, int], use: Use) -> None:
        """Decode the frames, and call ``use`` once."""
        if len(frames):
            use(0, self.load(frames, rows))

    def copy(self, frames: Indices, rows: tuple[int, int], out: Octets) -> bool:  # noqa: ARG002
        """Return False: chunks are decoded, not copied."""
        return False

    def hint(self, frames: Indices, rows: tuple[int, int]) -> None:
        """Do nothing: only the library knows which bytes a chunk needs."""

    def locate(self, frames: Indices, rows: tuple[int, int]) -> None:
        """Return None: chunks are decoded."""

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
        for number in sorted(set(owners.tolist())):
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
        max_items = READ_BYTES // self._dtype.itemsize
        for batch in _batches(self._parts(array, frames, rows), max_items):
            for part, values in zip(batch, array.read([part.box for part in batch]), strict=True):
                images = values.reshape(-1, *values.shape[-self._sig_dims :])
                targets = (_run(slots[part.members]), *part.pixels[1:])
                out[targets] = images[_run(part.inside)]

    def _parts(self, array: BlockArray, frames: Indices, rows: tuple[int, int]) -> Iterator[_Part]:
        """Divide frames of one array into boxes that are read as a whole."""
        split = len(array.shape) - self._sig_dims
        sig: Box = (rows, *((0, length) for length in self._rest))
        pixels = math.prod(stop - start for start, stop in sig)
        max_items = READ_BYTES // self._dtype.itemsize
        order = np.argsort(frames, kind="stable")
        nav_shape = array.shape[:split] or (1,)
        positions = np.stack(np.unravel_index(frames[order], nav_shape), axis=1).astype(np.int64)
        cells = array.chunks[:split] or (1,)
        if _are_apart(positions // np.array(cells), nav_shape):
            cut = list(_cut(sig, array.chunks[split:], max_items))
            for place, position in enumerate(positions.tolist()):
                nav = tuple((start, start + 1) for start in position) if split else ()
                for part, inner in cut:
                    yield _Part((*nav, *part), order[place : place + 1], _FIRST, inner)
            return
        parted: dict[int, list[tuple[Box, tuple[slice, ...]]]] = {}
        for nav, members in boxes(positions, cells, max(max_items // max(pixels, 1), 1)):
            lengths = [stop - start for start, stop in nav]
            count = math.prod(lengths)
            if count == 1:
                inside = np.zeros(len(members), np.int64)
            else:
                low = np.array([start for start, _ in nav])
                inside = np.ravel_multi_index(tuple((positions[members] - low).T), lengths)
            if count not in parted:
                parted[count] = list(_cut(sig, array.chunks[split:], max_items // count))
            for part, inner in parted[count]:
                yield _Part((*nav, *part) if split else part, order[members], inside, inner)


def _are_apart(cells: Indices, shape: Sequence[int]) -> bool:
    """Whether no two positions, shape (n, axes), are in one cell and few in cells that touch.

    A shuffle is like this: to look for boxes in it would take longer than to read the frames.
    """
    if len(cells) == 1:
        return True
    numbers = np.ravel_multi_index(tuple(cells.T), shape).tolist()
    known = set(numbers)
    # Along each axis. The end of a row seems to touch the beginning of the next: no harm.
    steps = np.cumprod([1, *shape[:0:-1]]).tolist()
    touching = sum(number + step in known for step in steps for number in known)
    return len(known) == len(numbers) and touching * _FEW < len(numbers)


def _cut(sig: Box, cells: Sequence[int], max_items: int) -> Iterator[tuple[Box, tuple[slice, ...]]]:
    """Yield the pieces of frames, each with where it lies in an array of frames of this box."""
    for part in pieces(sig, cells, max_items):
        shifted = (slice(a - s, b - s) for (a, b), (s, _) in zip(part, sig, strict=True))
        yield part, (slice(None), *shifted)


def _run(indices: Indices) -> Indices | slice:
    """Return consecutive indices as a slice, which selects without a copy."""
    first, count = int(indices[0]), len(indices)
    # A box of one frame, as of a shuffle, is asked for often.
    if count > 1 and bool((indices[1:] - indices[:-1] != 1).any()):
        return indices
    return slice(first, first + count)


def _batches(parts: Iterator[_Part], max_items: int) -> Iterator[list[_Part]]:
    """Collect boxes while they have at most ``max_items`` values, or one box that has more."""
    batch: list[_Part] = []
    left = max_items
    for part in parts:
        items = math.prod(stop - start for start, stop in part.box)
        if batch and (items > left or len(batch) == READ_BOXES):
            yield batch
            batch, left = [], max_items
        batch.append(part)
        left -= items
    if batch:
        yield batch


def boxes(
    positions: Indices, cells: Sequence[int], max_positions: int
) -> Iterator[tuple[Box, Indices]]:
    """Cover positions with boxes; yield each box and the indices of its positions.

    All positions of a cell share a box, so that no cell is read twice. Touching boxes are
    merged as long as the result has at most ``max_positions`` positions.

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
    ends = np.cumsum(np.bincount(label, minlength=len(lows))).tolist()
    begin = 0
    for low, high, end in zip(lows.tolist(), highs.tolist(), ends, strict=True):
        yield tuple(zip(low, high, strict=True)), by_box[begin:end]
        begin = end


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
    """Split a box along cell borders into parts of at most ``max_items`` items.

    Cells are never split, so a part can exceed ``max_items`` if a single cell does.
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
