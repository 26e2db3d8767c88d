"""Tiles of a plan, read, decoded, corrected, binned and converted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..arrays import Array, Indices
from ._kernels.correct import copy, correct, gather
from .convert import convert
from .corrections import Corrections
from .frames import FrameSource, Loaded
from .plan import Box, Plan, Tile
from .recording import Recording
from .wide import halves, joined

BATCH_BYTES = 8 << 20
"""Bytes read at a time: bounds memory however much a tile is summed from."""

FAST_STORED = frozenset(np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "f4"))
FAST_OUT = frozenset([np.dtype("f4")])
"""Types that have kernels of their own; all others go through numpy, with equal results."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is the same for all tiles that have one box of their frames."""

    step: int
    """Frames read at a time."""
    lines: tuple[int, int] | None
    """(lines, items of a line) if the box is made of lines, each a pitch after the one
    before; else None."""
    left: int
    """Items before the first line, in its row."""

    @classmethod
    def of(cls, box: Box, rest: tuple[int, ...], itemsize: int) -> Self:
        """Of a box, and of the shape and item of what frames have in each of their rows."""
        rows = box[0][1] - box[0][0]
        pitch = math.prod(rest)
        step = max(BATCH_BYTES // max(rows * pitch * itemsize, 1), 1)
        if all(pair == (0, length) for pair, length in zip(box[1:], rest, strict=True)):
            return cls(step, (1, rows * pitch), 0)
        if len(rest) == 1:
            low, high = box[1]
            return cls(step, (rows, high - low), low)
        return cls(step, None, 0)


class TileReader:
    """Reads tiles of one plan; not for two threads at once.

    Args:
        plan: which tiles there are.
        recording: what is in the files.
        source: gives their frames.
        corrections: what is done to every frame, if the view wants it.
    """

    def __init__(
        self, plan: Plan, recording: Recording, source: FrameSource, corrections: Corrections | None
    ) -> None:
        self._plan = plan
        self._stored = recording.dtype if recording.stored is None else recording.stored
        self._source = source
        self._frame_rest = recording.sig_shape[1:]
        self._corrections = corrections if plan.view.corrections and corrections else None
        self._work = _work_dtype(plan, self._stored, self._corrections)
        self._copies = self._stored.newbyteorder("=") == plan.dtype
        self._last: tuple[Box, _Part] | None = None

    def read(self, tile: Tile, out: Array | None = None) -> Array:
        """One tile, shape ``tile.shape``, of the plan's type, C order.

        Args:
            tile: of the plan.
            out: where to put it; a new array if None.

        Raises:
            CastingError: a value does not fit the type.
            Exception: what the source raises where its files changed.
        """
        plan = self._plan
        made = np.empty(tile.shape, plan.dtype) if out is None else out
        flat = made.reshape(-1, *tile.shape[len(plan.nav_shape) :])
        frames = plan.frames_of(tile)
        box = plan.pixels_of(tile)
        if self._work is None:
            self._fill(frames.reshape(-1), box, flat)
        else:
            self._sum(frames, box, flat)
        return made

    # -- one frame each, converted ------------------------------------------------

    def _fill(self, frames: Indices, box: Box, out: Array) -> None:
        for some, target in self._batches(frames, box, out):
            self._convert(self._source.load(some, box[0]), box, target)

    def _batches(self, frames: Indices, box: Box, out: Array) -> Iterator[tuple[Indices, Array]]:
        """Frames that are there, some at a time, and where to put them; fills the others."""
        step = self._part(box).step
        if self._plan.complete:
            for at in range(0, len(frames), step):
                yield frames[at : at + step], out[at : at + step]
            return
        missing = frames < 0
        out[missing] = np.nan if self._plan.view.missing == "nan" and self._work is None else 0
        there = np.flatnonzero(~missing)
        for at in range(0, len(there), step):
            some = there[at : at + step]
            target = np.empty((len(some), *out.shape[1:]), out.dtype)
            yield frames[some], target
            out[some] = target

    def _convert(self, loaded: Loaded, box: Box, out: Array) -> None:
        part = self._part(box)
        if part.lines is not None and self._copies:
            _copy(loaded, part.left, out.reshape(len(out), *part.lines), self._stored)
        elif part.lines is not None and _is_fast(self._stored, out.dtype):
            starts = loaded.starts + part.left if part.left else loaded.starts
            gather(loaded.values, starts, loaded.pitch, out.reshape(len(out), *part.lines))
        else:
            for index in range(len(out)):
                convert(self._frame(loaded, index, box), out[index], self._plan.view.casting)

    def _part(self, box: Box) -> _Part:
        """What follows from a box; that of the last one is kept, for it is mostly the same."""
        if self._last is None or self._last[0] != box:
            self._last = box, _Part.of(box, self._frame_rest, self._stored.itemsize)
        return self._last[1]

    def _frame(self, loaded: Loaded, index: int, box: Box) -> Array:
        """A box of one frame as it is stored."""
        rows = box[0][1] - box[0][0]
        begin = int(loaded.starts[index])
        whole = loaded.values[begin : begin + rows * loaded.pitch].reshape(rows, *self._frame_rest)
        return whole[(slice(None), *(slice(a, b) for a, b in box[1:]))]

    # -- corrected or summed ------------------------------------------------------

    def _sum(self, frames: Indices, box: Box, out: Array) -> None:
        """Corrected frames, summed over groups of frames and blocks of pixels."""
        step = self._plan.view.bin_sig
        members = frames.shape[1]
        missing = (frames < 0).any(axis=1) if self._plan.view.missing == "nan" else None
        if (members, step) == (1, 1) and out.dtype == self._work and self._halo(box) == box:
            # Nothing to sum, cut off or convert: no memory of its own.
            self._work_into(frames[:, 0], box, box, out)
            if missing is not None:
                out[missing] = np.nan
            return
        size = max(math.prod(b - a for a, b in box), 1) * self._work_dtype.itemsize
        group = max(BATCH_BYTES // (size * members), 1)
        for at in range(0, len(frames), group):
            some = frames[at : at + group]
            convert(self._summed(some, box), out[at : at + group], self._plan.view.casting)
        if missing is not None:
            out[missing] = np.nan

    def _summed(self, frames: Indices, box: Box) -> Array:
        """Each row of frames, and blocks of pixels of it, summed."""
        step = self._plan.view.bin_sig
        wide = self._work_dtype.kind in "iu" and self._stored.itemsize == self._work_dtype.itemsize
        total: Array | None = None
        for member in range(frames.shape[1]):
            part = self._worked(frames[:, member], box)
            part = halves(part) if wide else part
            total = part if total is None else total + part
        assert total is not None  # noqa: S101 - every tile has frames
        if step > 1:
            total = _block_sums(total, step, 2 if wide else 1)
        if not wide:
            return total
        unsigned = self._stored.kind == "u"
        return joined(total, unsigned, self._plan.dtype, self._plan.view.casting)

    @property
    def _work_dtype(self) -> np.dtype[Any]:
        assert self._work is not None  # noqa: S101 - used where something is worked on
        return self._work

    def _halo(self, box: Box) -> Box:
        return box if self._corrections is None else self._corrections.halo(box)

    def _worked(self, frames: Indices, box: Box) -> Array:
        """Frames of the working type, corrected; zero where there is none."""
        halo = self._halo(box)
        made = np.empty((len(frames), *(b - a for a, b in halo)), self._work_dtype)
        self._work_into(frames, halo, box, made)
        if halo == box:
            return made
        inner = (slice(a - low, b - low) for (a, b), (low, _) in zip(box, halo, strict=True))
        return made[(slice(None), *inner)]

    def _work_into(self, frames: Indices, halo: Box, box: Box, out: Array) -> None:
        """Put corrected frames, zeros where there are none; repairs only ``box`` of ``halo``."""
        for some, target in self._batches(frames, halo, out):
            self._correct(self._source.load(some, halo[0]), halo, target)
            if self._corrections is not None:
                self._corrections.repair(target, halo, box)

    def _correct(self, loaded: Loaded, box: Box, out: Array) -> None:
        corrections = self._corrections
        scales = None if corrections is None else corrections.cut(box, out.dtype)
        part = self._part(box)
        if scales is not None and part.lines is not None and _is_fast(self._stored, out.dtype):
            starts = loaded.starts + part.left if part.left else loaded.starts
            dark, gain = (array.reshape(part.lines) for array in scales)
            flat = out.reshape(len(out), *part.lines)
            correct(loaded.values, starts, loaded.pitch, dark, gain, flat)
            return
        for index in range(len(out)):
            np.copyto(out[index], self._frame(loaded, index, box), casting="unsafe")
        if scales is not None:
            np.subtract(out, scales[0], out=out)
            np.multiply(out, scales[1], out=out)


def _is_fast(stored: np.dtype[Any], out: np.dtype[Any]) -> bool:
    return stored in FAST_STORED and out in FAST_OUT


def _copy(loaded: Loaded, left: int, out: Array, stored: np.dtype[Any]) -> None:
    """Values of the same type, turned round if the file has the other byte order."""
    item = stored.itemsize
    starts = (loaded.starts + left) * item
    copy(loaded.values.view(np.uint8), starts, loaded.pitch * item, out.view(np.uint8))
    if not stored.isnative:
        out.byteswap(inplace=True)


def _work_dtype(
    plan: Plan, stored: np.dtype[Any], corrections: Corrections | None
) -> np.dtype[Any] | None:
    """What sums and corrections are made in; None if there are neither."""
    bins = (plan.view.bin_nav, plan.view.bin_sig) != (1, 1)
    if corrections is None:
        if not bins:
            return None
        wide = {"b": "u8", "u": "u8", "i": "i8", "f": "f8", "c": "c16"}
        return np.dtype(wide[stored.kind])
    if stored.kind == "c" or corrections.is_complex:
        return np.dtype("c8" if stored == np.complex64 and not bins else "c16")
    single = stored.itemsize <= 2 or np.dtype("f4") in {stored, plan.dtype}  # noqa: PLR2004
    return np.dtype("f4" if single and plan.dtype.itemsize <= 4 and not bins else "f8")  # noqa: PLR2004


def _block_sums(values: Array, step: int, first: int) -> Array:
    """Sums over blocks of ``step`` along every axis from ``first`` on."""
    split = [n for length in values.shape[first:] for n in (length // step, step)]
    blocks = values.reshape(*values.shape[:first], *split)
    axes = tuple(range(first + 1, blocks.ndim, 2))
    sums: Array = blocks.sum(axis=axes, dtype=values.dtype)
    return sums
