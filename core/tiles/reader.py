"""Reading tiles: frames are visited, corrected, binned and converted to the requested dtype.

A tile needs some frames of the files and a box of pixels in each. There are three ways to get
there, and the view decides between them::

    whole rows as they are:        read ----------------------------------------------> tile
    no correction, no binning:     visit -----------------------------> convert --> tile
    otherwise:                     visit --> correct -> sum over bins -> convert --> tile
                                             (in the working dtype)

The second way is one pass over memory: a kernel reads the stored values where they are, often
in the mapped file itself, and writes them to the tile. The third way computes in a working
dtype wide enough for the sums (64 bits for integers; see :mod:`.wide` for sums of 64-bit
integers) or for the corrections (floating).

Repairing an excluded pixel takes its neighbours, which may be outside the box. Corrected
frames are therefore read with a halo around the box, which is cropped afterwards; the pixels
of a tile thus do not depend on where the tile ends.

Frames are processed in batches of :data:`BATCH_BYTES`, so that the memory in use is bounded
even when a tile is summed from a gigabyte of frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from ..arrays import Array, Indices
from ..budget import Scope, check_room, current
from ._kernels.correct import copy, correct
from .convert import convert, halves, joined
from .corrections import Corrections
from .frames import FrameSource, Loaded
from .plan import Box, Plan, Tile
from .recording import Recording

BATCH_BYTES = 8 << 20
"""Size of a batch of frames; it bounds memory however many frames a tile is summed from."""
_BATCH_FRAMES = 1 << 16
"""Frames of a batch at most: small ones take more memory to be located than their values."""
_FRAME_BYTES = 40
"""Memory that it takes to list a frame."""
_SMALL = 256
"""Items of a frame up to which many are worked on at once: one by one takes a microsecond each."""
_TOGETHER = 1 << 16
"""Items that are worked on at once."""
_FEW_FRAMES = 1 << 14
"""Frames that are not worth an entry in the budget."""

FAST_STORED = frozenset(np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "f4"))
FAST_OUT = frozenset([np.dtype("f4")])
"""Dtypes that have their own kernels; all others go through numpy, with equal results."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Memory layout of a box of pixels; the same for all tiles with that box."""

    step: int
    """Frames per batch."""
    lines: tuple[int, int] | None
    """(lines, items per line) if the box consists of lines one pitch apart, else None."""
    left: int
    """Items between the start of a row and the start of its line."""
    whole: bool
    """Whether the box consists of whole rows, which lie without gaps."""

    @classmethod
    def of(cls, box: Box, rest: tuple[int, ...], itemsize: int) -> Self:
        """Lay out a box of frames whose rows have shape ``rest`` and items of ``itemsize``."""
        rows = box[0][1] - box[0][0]
        pitch = math.prod(rest)
        step = min(max(BATCH_BYTES // max(rows * pitch * itemsize, 1), 1), _BATCH_FRAMES)
        if all(pair == (0, length) for pair, length in zip(box[1:], rest, strict=True)):
            return cls(step, (1, rows * pitch), 0, whole=True)
        if len(rest) == 1:
            low, high = box[1]
            return cls(step, (rows, high - low), low, whole=False)
        return cls(step, None, 0, whole=False)


class TileReader:
    """Reads tiles of one plan, in one thread at a time.

    Args:
        plan: the plan.
        recording: description of the files.
        source: supplier of the frames.
        corrections: corrections of every frame, applied if the view requests them.
    """

    def __init__(
        self, plan: Plan, recording: Recording, source: FrameSource, corrections: Corrections | None
    ) -> None:
        self._plan = plan.for_reader()
        self._stored = recording.dtype if recording.stored is None else recording.stored
        self._source = source
        self._frame_rest = recording.sig_shape[1:]
        self._corrections = corrections if plan.view.corrections and corrections else None
        self._work = _work_dtype(plan, self._stored, self._corrections)
        self._copies = self._stored.newbyteorder("=") == plan.dtype
        self._last: tuple[Box, _Layout] | None = None

    def read(self, tile: Tile, out: Array | None = None) -> Array:
        """Read a tile.

        Args:
            tile: a tile of the plan.
            out: C-contiguous array of the tile's shape and the plan's dtype to fill; None
                for a new one.

        Returns:
            The tile, shape ``tile.shape``, in the plan's dtype and C order.

        Raises:
            CastingError: a value does not fit the dtype.
            WorkStoppedError: the tile exceeds the budget, or the work was cancelled.
            Exception: raised by the source if its files changed.
        """
        plan = self._plan
        if out is None:
            check_room("tile", tile.nbytes)
        result = np.empty(tile.shape, plan.dtype) if out is None else out
        axes, start = len(plan.nav_shape), 0
        flat = result.reshape(-1, *tile.shape[axes:])
        for part in plan.parts(tile):
            count = math.prod(part.shape[:axes])
            self._read(part, flat[start : start + count])
            start += count
        return result

    def _read(self, part: Tile, out: Array) -> None:
        plan, box = self._plan, self._plan.pixels_of(part)
        summed = len(out) * plan.view.bin_nav ** len(plan.nav_shape)
        with Scope("tile", _FRAME_BYTES * summed if summed > _FEW_FRAMES else 0):
            frames = plan.frames_of(part)
            if self._work is None:
                as_stored = self._copies and self._layout(box).whole
                for batch, target in self._batches(frames.reshape(-1), box, out):
                    if not (as_stored and self._copy(batch, box, target)):
                        self._source.visit(batch, box[0], partial(self._convert, box, target))
            else:
                self._sum(frames, box, out)

    def hint(self, tile: Tile) -> None:
        """Prepare for a tile that is read next; returns at once."""
        frames = self._plan.frames_of(next(self._plan.parts(tile))).reshape(-1)
        if not self._plan.complete:
            frames = frames[frames >= 0]
        self._source.hint(frames, self._plan.pixels_of(tile)[0])

    def locate(self, tile: Tile) -> tuple[Indices, Indices, int] | None:
        """Locate a tile in the files, if its bytes are those of rows one after the other.

        Returns:
            Index of the file of each row, shape (k,), or (1,) if it is one file; first byte of
            each, shape (k,); and their length in bytes. None if the tile is not stored as it is, or
            of too many frames.
        """
        box = self._plan.pixels_of(tile)
        as_stored = self._work is None and self._copies and self._stored.isnative
        if not (as_stored and self._plan.complete and self._layout(box).whole):
            return None
        if next(self._plan.parts(tile)) is not tile:
            return None
        return self._source.locate(self._plan.frames_of(tile).reshape(-1), box[0])

    # -- one frame each, converted ------------------------------------------------

    def _copy(self, frames: Indices, box: Box, out: Array) -> bool:
        """Read whole rows into place if their source can; return whether it did."""
        if not self._source.copy(frames, box[0], out.reshape(-1).view(np.uint8)):
            return False
        if not self._stored.isnative:
            out.byteswap(inplace=True)
        return True

    def _batches(self, frames: Indices, box: Box, out: Array) -> Iterator[tuple[Indices, Array]]:
        """Yield batches of existing frames and the arrays to fill; blank the missing ones."""
        step = self._layout(box).step
        if self._plan.complete:
            for start in range(0, len(frames), step):
                current().check("tile")
                yield frames[start : start + step], out[start : start + step]
            return
        missing = frames < 0
        out[missing] = np.nan if self._plan.view.missing == "nan" and self._work is None else 0
        existing = np.flatnonzero(~missing)
        for start in range(0, len(existing), step):
            current().check("tile")
            batch = existing[start : start + step]
            target = np.empty((len(batch), *out.shape[1:]), out.dtype)
            yield frames[batch], target
            out[batch] = target

    def _convert(self, box: Box, target: Array, first: int, loaded: Loaded) -> None:
        """Convert frames, from ``first`` of ``target`` on."""
        out = target[first : first + len(loaded.starts)]
        layout = self._layout(box)
        if layout.lines is not None and self._copies:
            _copy(loaded, layout.left, out.reshape(len(out), *layout.lines), self._stored)
        elif layout.lines is not None and _is_fast(self._stored, out.dtype):
            starts = loaded.starts + layout.left if layout.left else loaded.starts
            copy(loaded.values, starts, loaded.pitch, out.reshape(len(out), *layout.lines))
        else:
            for begin, end, values in self._boxes(loaded, box):
                convert(values, out[begin:end], self._plan.view.casting)

    def _layout(self, box: Box) -> _Layout:
        """Return the layout of a box, cached because successive tiles mostly share it."""
        if self._last is None or self._last[0] != box:
            self._last = box, _Layout.of(box, self._frame_rest, self._stored.itemsize)
        return self._last[1]

    def _boxes(self, loaded: Loaded, box: Box) -> Iterator[tuple[int, int, Array]]:
        """Yield the boxes of some frames in the stored dtype: small ones copied, many at once."""
        layout, count = self._layout(box), len(loaded.starts)
        shape = tuple(b - a for a, b in box)
        if layout.lines is None or math.prod(shape) > _SMALL:
            inner = (slice(None), *(slice(a, b) for a, b in box[1:]))
            for index, begin in enumerate(loaded.starts.tolist()):
                rows = loaded.values[begin : begin + shape[0] * loaded.pitch]
                yield index, index + 1, rows.reshape(1, shape[0], *self._frame_rest)[:, *inner]
            return
        lines, length = layout.lines
        places = layout.left + np.arange(lines)[:, None] * loaded.pitch + np.arange(length)
        step = max(_TOGETHER // places.size, 1)
        for begin in range(0, count, step):
            starts = loaded.starts[begin : begin + step]
            values = loaded.values[starts[:, None, None] + places]
            yield begin, begin + len(starts), values.reshape(len(starts), *shape)

    # -- corrected or summed ------------------------------------------------------

    def _sum(self, frames: Indices, box: Box, out: Array) -> None:
        """Fill ``out`` with corrected frames, summed over groups of frames and pixel blocks.

        Args:
            frames: shape (frames of the tile, frames summed into each).
            box: pixels of a frame, before binning.
            out: shape (frames of the tile, *binned box).
        """
        step = self._plan.view.bin_sig
        members = frames.shape[1]
        missing = (frames < 0).any(axis=1) if self._plan.view.missing == "nan" else None
        if (members, step) == (1, 1) and out.dtype == self._work and self._halo(box) == box:
            # Nothing to sum, crop or convert: correct in place, without a buffer.
            self._correct_into(frames[:, 0], box, box, out)
            if missing is not None:
                out[missing] = np.nan
            return
        size = max(math.prod(b - a for a, b in box), 1) * self._work_dtype.itemsize
        group = max(BATCH_BYTES // (size * members), 1)
        for start in range(0, len(frames), group):
            batch = frames[start : start + group]
            with Scope("tile", self._sum_copies(members) * len(batch) * size):
                summed = self._summed(batch, box)
                convert(summed, out[start : start + group], self._plan.view.casting)
        if missing is not None:
            out[missing] = np.nan

    def _sum_copies(self, members: int) -> int:
        """Return how much memory a sum takes, in frames of the working dtype."""
        copies = (1 if members == 1 else 2) * (3 if self._is_wide else 1)
        copies += not self._plan.complete
        # Sums of pixels are small; those of frames alone are as large as these.
        return copies + 2 if self._plan.view.bin_sig == 1 else copies

    @property
    def _is_wide(self) -> bool:
        """Whether sums may need more than the bits of the working dtype."""
        work = self._work_dtype
        return work.kind in "iu" and self._stored.itemsize == work.itemsize

    def _summed(self, frames: Indices, box: Box) -> Array:
        """Sum each row of frames, then blocks of pixels."""
        step, wide = self._plan.view.bin_sig, self._is_wide
        total: Array | None = None
        pixels = math.prod(b - a for a, b in box)
        few = max(_TOGETHER // (len(frames) * pixels), 1) if pixels <= _SMALL else 1
        for first in range(0, frames.shape[1], few):
            part = self._corrected(frames[:, first : first + few].reshape(-1), box)
            part = halves(part) if wide else part
            total = _added(total, part, len(frames), 1 if wide else 0)
        assert total is not None  # noqa: S101 - every tile has frames
        if step > 1:
            total = _block_sums(total, step, 2 if wide else 1)
        if not wide:
            return total
        unsigned = self._stored.kind == "u"
        return joined(total, unsigned, self._plan.dtype, self._plan.view.casting)

    @property
    def _work_dtype(self) -> np.dtype[Any]:
        assert self._work is not None  # noqa: S101 - only corrections and sums use it
        return self._work

    def _halo(self, box: Box) -> Box:
        return box if self._corrections is None else self._corrections.halo(box)

    def _corrected(self, frames: Indices, box: Box) -> Array:
        """Return corrected frames in the working dtype; missing frames are zero."""
        halo = self._halo(box)
        result = np.empty((len(frames), *(b - a for a, b in halo)), self._work_dtype)
        self._correct_into(frames, halo, box, result)
        if halo == box:
            return result
        inner = (slice(a - low, b - low) for (a, b), (low, _) in zip(box, halo, strict=True))
        return result[(slice(None), *inner)]

    def _correct_into(self, frames: Indices, halo: Box, box: Box, out: Array) -> None:
        """Fill ``out`` with corrected frames or zeros; repair only ``box`` within ``halo``."""
        for batch, target in self._batches(frames, halo, out):
            self._source.visit(batch, halo[0], partial(self._correct, halo, target))
            if self._corrections is not None:
                self._corrections.repair(target, halo, box)

    def _correct(self, box: Box, target: Array, first: int, loaded: Loaded) -> None:
        """Correct frames without repairs, from ``first`` of ``target`` on."""
        out = target[first : first + len(loaded.starts)]
        corrections = self._corrections
        scales = None if corrections is None else corrections.cut(box, out.dtype)
        layout = self._layout(box)
        if scales is not None and layout.lines is not None and _is_fast(self._stored, out.dtype):
            starts = loaded.starts + layout.left if layout.left else loaded.starts
            dark, gain = (array.reshape(layout.lines) for array in scales)
            flat = out.reshape(len(out), *layout.lines)
            correct(loaded.values, starts, loaded.pitch, dark, gain, flat)
            return
        for begin, end, values in self._boxes(loaded, box):
            np.copyto(out[begin:end], values, casting="unsafe")
        if scales is not None:
            np.subtract(out, scales[0], out=out)
            np.multiply(out, scales[1], out=out)


def _is_fast(stored: np.dtype[Any], out: np.dtype[Any]) -> bool:
    return stored in FAST_STORED and out in FAST_OUT


def _copy(loaded: Loaded, left: int, out: Array, stored: np.dtype[Any]) -> None:
    """Copy values of the same dtype, swapping bytes if the file has the other order."""
    item = stored.itemsize
    starts = (loaded.starts + left) * item
    copy(loaded.values.view(np.uint8), starts, loaded.pitch * item, out.view(np.uint8))
    if not stored.isnative:
        out.byteswap(inplace=True)


def _work_dtype(
    plan: Plan, stored: np.dtype[Any], corrections: Corrections | None
) -> np.dtype[Any] | None:
    """Choose the dtype for sums and corrections; None if the view needs neither."""
    bins = plan.view.bins
    if corrections is None:
        if not bins:
            return None
        wide = {"b": "u8", "u": "u8", "i": "i8", "f": "f8", "c": "c16"}
        return np.dtype(wide[stored.kind])
    if stored.kind == "c" or corrections.is_complex:
        return np.dtype("c8" if stored == np.complex64 and not bins else "c16")
    single = stored.itemsize <= 2 or np.dtype("f4") in {stored, plan.dtype}  # noqa: PLR2004
    return np.dtype("f4" if single and plan.dtype.itemsize <= 4 and not bins else "f8")  # noqa: PLR2004


def _added(total: Array | None, part: Array, count: int, axis: int) -> Array:
    """Add ``part``, of some frames for each of ``count`` sums along an axis, one after the other.

    Floating sums depend on the order, so that each is added to the sum of those before it.
    """
    if part.shape[axis] == count:
        return part if total is None else np.add(total, part, out=total)
    terms = part.reshape(*part.shape[:axis], count, -1, *part.shape[axis + 1 :])
    prefix: tuple[Any, ...] = (slice(None),) * (axis + 1)
    if total is not None:
        first = terms[(*prefix, 0)]
        np.add(total, first, out=first)
    np.add.accumulate(terms, axis + 1, out=terms)
    sums: Array = terms[(*prefix, -1)].copy()
    return sums


def _block_sums(values: Array, step: int, first: int) -> Array:
    """Sum blocks of ``step`` along every axis from axis ``first`` on."""
    split = [n for length in values.shape[first:] for n in (length // step, step)]
    blocks = values.reshape(*values.shape[:first], *split)
    axes = tuple(range(first + 1, blocks.ndim, 2))
    sums: Array = blocks.sum(axis=axes, dtype=values.dtype)
    return sums
