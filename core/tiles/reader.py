"""Tiles of a plan, read, decoded, corrected, binned and converted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ._kernels.correct import copy, correct, gather
from .convert import convert
from .corrections import Corrections
from .frames import FrameSource, Loaded
from .plan import Box, Plan, Tile
from .positions import Indices
from .recording import Recording

Array = npt.NDArray[Any]

BATCH_BYTES = 8 << 20
"""Bytes read at a time: bounds memory however much a tile is summed from."""

FAST_STORED = frozenset(np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "f4"))
FAST_OUT = frozenset([np.dtype("f4")])
"""Types that have kernels of their own; all others go through numpy, with equal results."""


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
            self._fill(frames[:, 0], box, flat)
        else:
            self._sum(frames, box, flat)
        return made

    # -- one frame each, converted ------------------------------------------------

    def _fill(self, frames: Indices, box: Box, out: Array) -> None:
        self._fill_missing(frames, out)
        for some in self._batches(frames, box):
            loaded = self._source.load(frames[some], box[0])
            self._convert(loaded, box, out, some)

    def _fill_missing(self, frames: Indices, out: Array) -> None:
        missing = frames < 0
        if missing.any():
            out[missing] = np.nan if self._plan.view.missing == "nan" else 0

    def _batches(self, frames: Indices, box: Box) -> list[Indices]:
        """Places of the frames that are there, in groups of so many bytes."""
        there = np.flatnonzero(frames >= 0)
        rows = box[0][1] - box[0][0]
        size = rows * math.prod(self._frame_rest) * self._stored.itemsize
        step = max(BATCH_BYTES // max(size, 1), 1)
        return [there[at : at + step] for at in range(0, len(there), step)]

    def _convert(self, loaded: Loaded, box: Box, out: Array, some: Indices) -> None:
        target = out if len(some) == len(out) else np.empty((len(some), *out.shape[1:]), out.dtype)
        lines = self._lines(loaded, box)
        flat = None if lines is None else target.reshape(len(some), *lines[2])
        values, stored = loaded.values, self._stored
        if flat is not None and lines is not None and stored.newbyteorder("=") == out.dtype:
            _copy(values, lines, flat, stored)
        elif flat is not None and lines is not None and _is_fast(stored, out.dtype):
            gather(values, lines[0], lines[1], flat)
        else:
            for index in range(len(some)):
                convert(self._frame(loaded, index, box), target[index], self._plan.view.casting)
        if target is not out:
            out[some] = target

    def _lines(self, loaded: Loaded, box: Box) -> tuple[Indices, int, tuple[int, int]] | None:
        """(starts, pitch, (lines, items of a line)) of a box; None if it is not made of lines."""
        rest = self._frame_rest
        rows = box[0][1] - box[0][0]
        inner = box[1:]
        if all(pair == (0, length) for pair, length in zip(inner, rest, strict=True)):
            return loaded.starts, loaded.pitch, (1, rows * loaded.pitch)
        if len(rest) == 1:
            low, high = inner[0]
            return loaded.starts + low, loaded.pitch, (rows, high - low)
        return None

    def _frame(self, loaded: Loaded, index: int, box: Box) -> Array:
        """A box of one frame as it is stored."""
        rows = box[0][1] - box[0][0]
        begin = int(loaded.starts[index])
        whole = loaded.values[begin : begin + rows * loaded.pitch].reshape(rows, *self._frame_rest)
        return whole[(slice(None), *(slice(a, b) for a, b in box[1:]))]

    # -- corrected or summed ------------------------------------------------------

    def _sum(self, frames: Indices, box: Box, out: Array) -> None:
        """Corrected frames, summed over groups of frames and blocks of pixels."""
        missing = (frames < 0).any(axis=1)
        step = self._plan.view.bin_sig
        members = frames.shape[1]
        if (members, step) == (1, 1) and out.dtype == self._work and self._halo(box) == box:
            # Nothing to sum, cut off or convert: no memory of its own.
            self._fill_missing(frames[:, 0], out)
            self._work_into(frames[:, 0], box, box, out)
            return
        size = max(math.prod(b - a for a, b in box), 1) * self._work_dtype.itemsize
        group = max(BATCH_BYTES // (size * members), 1)
        for at in range(0, len(frames), group):
            some = frames[at : at + group]
            total = np.zeros((len(some), *(b - a for a, b in box)), self._work_dtype)
            for member in range(members):
                part = self._worked(some[:, member], box)
                total = part if members == 1 else total + part
            if step > 1:
                total = _block_sums(total, step)
            convert(total, out[at : at + group], self._plan.view.casting)
        if self._plan.view.missing == "nan" and missing.any():
            out[missing] = np.nan

    @property
    def _work_dtype(self) -> np.dtype[Any]:
        assert self._work is not None  # noqa: S101 - used where something is worked on
        return self._work

    def _halo(self, box: Box) -> Box:
        return box if self._corrections is None else self._corrections.halo(box)

    def _worked(self, frames: Indices, box: Box) -> Array:
        """Frames of the working type, corrected; zero where there is none."""
        halo = self._halo(box)
        made = np.zeros((len(frames), *(b - a for a, b in halo)), self._work_dtype)
        self._work_into(frames, halo, box, made)
        if halo == box:
            return made
        inner = (slice(a - low, b - low) for (a, b), (low, _) in zip(box, halo, strict=True))
        return made[(slice(None), *inner)]

    def _work_into(self, frames: Indices, halo: Box, box: Box, out: Array) -> None:
        """Put corrected frames where there are any; only ``box`` of ``halo`` is repaired."""
        for some in self._batches(frames, halo):
            loaded = self._source.load(frames[some], halo[0])
            self._correct(loaded, halo, out, some)
        if self._corrections is not None:
            there = frames >= 0
            repaired = out if there.all() else out[there]
            self._corrections.repair(repaired, halo, box)
            if repaired is not out:
                out[there] = repaired

    def _correct(self, loaded: Loaded, box: Box, out: Array, some: Indices) -> None:
        whole = len(some) == len(out)
        target = out if whole else np.empty((len(some), *out.shape[1:]), out.dtype)
        scales = self._corrections is not None and self._corrections.scales
        lines = self._lines(loaded, box)
        if scales and lines is not None and _is_fast(self._stored, out.dtype):
            assert self._corrections is not None  # noqa: S101 - they scale
            dark, gain = self._corrections.cut(box, out.dtype)
            shape = lines[2]
            flat = target.reshape(len(some), *shape)
            arrays = (dark.reshape(shape), gain.reshape(shape))
            correct(loaded.values, lines[0], lines[1], *arrays, flat)
        else:
            for index in range(len(some)):
                np.copyto(target[index], self._frame(loaded, index, box), casting="unsafe")
            if scales:
                assert self._corrections is not None  # noqa: S101 - they scale
                dark, gain = self._corrections.cut(box, out.dtype)
                np.subtract(target, dark, out=target)
                np.multiply(target, gain, out=target)
        if not whole:
            out[some] = target


def _is_fast(stored: np.dtype[Any], out: np.dtype[Any]) -> bool:
    return stored in FAST_STORED and out in FAST_OUT


def _copy(
    values: Array, lines: tuple[Indices, int, tuple[int, int]], out: Array, stored: np.dtype[Any]
) -> None:
    """Values of the same type, turned round if the file has the other byte order."""
    item = stored.itemsize
    starts, pitch, _ = lines
    copy(values.view(np.uint8), starts * item, pitch * item, out.view(np.uint8))
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


def _block_sums(values: Array, step: int) -> Array:
    """Sums over blocks of ``step`` along every axis but the first."""
    split = [n for length in values.shape[1:] for n in (length // step, step)]
    blocks = values.reshape(values.shape[0], *split)
    axes = tuple(range(2, 2 * len(values.shape), 2))
    sums: Array = blocks.sum(axis=axes, dtype=values.dtype)
    return sums
