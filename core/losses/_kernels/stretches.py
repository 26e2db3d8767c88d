"""Stretches: the losses of one summary, side by side, in the ledger's memory.

A ledger is a sequence of stretches, and nothing else: those that the pass appends, one for each
block, and those of runs, one or more for each period. All have one layout, in 32-bit words::

    owner  summary  code  count | cells' samples | values           (each part of even length)
    -----------------------------------------------------------------------------------------
    owner    event of the block, or period in a run
    count    cells that are there
    code     LISTED: count sample ids, ascending; values of these cells alone
             or a bitmap of the cells that are there; values of all cells, 0 elsewhere
             PLAIN: the loss is sum and largest loss at once          f
             SUMMED: sum and largest loss                             f8... f...
             PAIRED: the two parts of an exact sum, and largest loss  f8... f8... f...

Cell 0 is the numerical mean (sidx -1), cell s is sample s. A list takes twice the memory of a
cell's loss, so a stretch is listed where fewer than about half of the samples have a loss; the
others are dense, and are added without looking at sample ids.

In place of a stretch may be a reference to a block of the stream (``references``), of six words.

Stretches that come from outside are checked before any kernel trusts them (:func:`check_run`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats, Indices
from ..format import SIDX_MEAN
from .block import is_unordered
from .layout import ARENA_FULL, LEDGER_REFERENCES, OK, ZERO, Record, Scratch

HEAD = 4
"""Words before the cells."""

PLAIN = 0
SUMMED = 1
PAIRED = 2
KIND = 3
"""Bits of a code that tell which of the three."""
LISTED = 4
"""Flag in a code."""
REFERRED = 8
"""Flag in a code: after the head comes the place of the block, not its cells."""
OFFSET_BITS = 48
"""Bits of such a place: the byte offset in the stream; above them is the index of the stream."""
_REFERENCE = HEAD + 2
"""Words of a reference."""


class Arena(NamedTuple):
    """The memory of stretches, seen as each of the types in it."""

    words: npt.NDArray[np.int32]
    longs: Indices
    doubles: Floats
    singles: Array
    """float32."""


@subkernel
def bitmap_longs(samples: int) -> int:
    """Words of 64 bits that mark the cells of a stretch."""
    return (samples + 64) >> 6


@subkernel
def _even(words: int) -> int:
    return (words + 1) & ~1


@subkernel
def cells_of(code: int, count: int, samples: int) -> int:
    """Values in a part of a stretch."""
    return count if code & LISTED else samples + 1


@subkernel
def values_at(code: int, count: int, samples: int) -> int:
    """Word of the first value of a stretch, from its beginning."""
    return HEAD + (_even(count) if code & LISTED else 2 * bitmap_longs(samples))


@subkernel
def largest_at(code: int, count: int, samples: int) -> int:
    """Word of the first largest loss of a stretch, from its beginning."""
    return values_at(code, count, samples) + 2 * (code & KIND) * cells_of(code, count, samples)


@subkernel
def stretch_size(code: int, count: int, samples: int, width: int) -> int:
    """Words of a stretch, or of a reference to a block."""
    if code & REFERRED:
        return _REFERENCE
    cells = cells_of(code, count, samples)
    return largest_at(code, count, samples) + _even(cells * (width >> 2))


@subkernel
def better_code(kind: int, count: int, samples: int, width: int) -> int:
    """The shorter code of a stretch of this kind."""
    listed = stretch_size(kind | LISTED, count, samples, width)
    return kind | LISTED if listed < stretch_size(kind, count, samples, width) else kind


@subkernel
def store(arena: Arena, place: int, width: int, loss: float) -> None:
    """Write a loss, at a place counted in losses of the stream's width."""
    if width == 4:
        arena.singles[place] = loss
    else:
        arena.doubles[place] = loss


@subkernel
def write_head(arena: Arena, at: int, owner: int, summary: int, code: int, count: int) -> None:
    """Write the first words of a stretch."""
    arena.words[at] = owner
    arena.words[at + 1] = summary
    arena.words[at + 2] = code
    arena.words[at + 3] = count


@subkernel
def _mark(longs: Indices, base: int, cell: int) -> None:
    longs[base + (cell >> 6)] |= np.int64(1) << np.int64(cell & 63)


@subkernel
def _mean_pair(scratch: Scratch, pairs: int) -> int:
    """The pair of the numerical mean among those of the block; -1 if it has none."""
    sidx = scratch.sidx
    for i in range(pairs):
        if sidx[i] == SIDX_MEAN:
            return i
    return -1


@subkernel
def _write_list(
    scratch: Scratch,
    mean: int,
    first: int,
    last: int,
    arena: Arena,
    ids: int,
    values: int,
    width: int,
) -> None:
    k = 0
    if mean >= 0:
        arena.words[ids] = 0
        store(arena, values, width, scratch.losses[mean])
        k = 1
    sidx = scratch.sidx[first:last]
    losses = scratch.losses[first:last]
    to_ids = arena.words[ids + k : ids + k + len(sidx)]
    for i in range(len(sidx)):
        to_ids[i] = sidx[i]
        store(arena, values + k + i, width, losses[i])
    if (k + len(sidx)) & 1:
        arena.words[ids + k + len(sidx)] = 0


@subkernel
def _write_dense(
    scratch: Scratch,
    mean: int,
    first: int,
    last: int,
    arena: Arena,
    bitmap: int,
    values: int,
    samples: int,
    width: int,
) -> None:
    arena.longs[bitmap : bitmap + bitmap_longs(samples)] = 0
    for i in range(samples + 1):
        store(arena, values + i, width, 0.0)
    if mean >= 0:
        store(arena, values, width, scratch.losses[mean])
        _mark(arena.longs, bitmap, 0)
    sidx = scratch.sidx[first:last]
    losses = scratch.losses[first:last]
    for i in range(len(sidx)):
        store(arena, values + sidx[i], width, losses[i])
        _mark(arena.longs, bitmap, int(sidx[i]))


@subkernel
def append_block(rules: Record, state: Record, scratch: Scratch, arena: Arena) -> int:
    """Append the block as a plain stretch, or a reference to it.

    Returns:
        OK, or ARENA_FULL if there is no room.
    """
    r = rules[0]
    s = state[0]
    b = scratch.block[0]
    samples = r["samples"]
    width = r["width"]
    first = b["first"]
    last = first + b["count"]
    # The mean is among the pairs as received, and with the special ones if these come first.
    mean = _mean_pair(scratch, min(first, b["pairs"]))
    count = b["count"] + int(mean >= 0)
    at = s["ledger_words"]
    code = better_code(PLAIN, count, samples, width)
    if code & LISTED and r["any_order"] and is_unordered(scratch.sidx[first:last]):
        code = PLAIN
    if r["ledger"] == LEDGER_REFERENCES:
        code |= REFERRED
    size = stretch_size(code, count, samples, width)
    if at + size > len(arena.words):
        s["needed"] = size
        return ARENA_FULL
    write_head(arena, at, b["event"], b["id"], code, count)
    if code & REFERRED:
        offset = s["base"] + 4 * s["at"]
        arena.longs[(at + HEAD) >> 1] = (r["stream"] << OFFSET_BITS) | offset
        s["ledger_words"] = at + size
        return OK
    part = at + values_at(code, count, samples)
    values = part if width == 4 else part >> 1
    # The last word of a part of uneven length is written, so that equal stretches are equal.
    arena.words[at + size - 1] = 0
    if code & LISTED:
        _write_list(scratch, mean, first, last, arena, at + HEAD, values, width)
    else:
        bitmap = (at + HEAD) >> 1
        _write_dense(scratch, mean, first, last, arena, bitmap, values, samples, width)
    s["ledger_words"] = at + size
    return OK


@subkernel
def _is_list(words: npt.NDArray[np.int32], at: int, count: int, samples: int) -> bool:
    """Whether sample ids ascend, in range."""
    before = -1
    for i in range(at, at + count):
        cell = words[i]
        if cell <= before or cell > samples:
            return False
        before = cell
    return True


@subkernel
def _is_bitmap(longs: Indices, at: int, count: int, samples: int) -> bool:
    """Whether as many cells are marked as there should be, and none beyond the last."""
    marked = ZERO
    for i in range(bitmap_longs(samples)):
        word = longs[at + i]
        for j in range(64):
            bit = (word >> j) & 1
            if bit and 64 * i + j > samples:
                return False
            marked += int(bit)
    return bool(marked == count)


@subkernel
def _are_finite(values: Array) -> bool:
    odd = ZERO
    for i in range(len(values)):
        odd += int(not abs(values[i]) < np.inf)
    return bool(odd == 0)


@kernel
def check_run(
    words: npt.NDArray[np.int32],
    longs: Indices,
    doubles: Floats,
    singles: Array,
    samples: int,
    width: int,
    periods: int,
) -> int:
    """Check a sequence of stretches; return 0, or the word of the first bad one as -1 - word.

    Args:
        words: the sequence, and the same memory as the next three.
        longs: for bitmaps.
        doubles: for sums.
        singles: for largest losses of four bytes.
        samples: len_sample.
        width: bytes of a loss.
        periods: number of periods.
    """
    at = ZERO
    stop = len(words)
    while at < stop:
        if at + HEAD > stop:
            return -1 - at
        code = int(words[at + 2])
        count = int(words[at + 3])
        if (
            not 1 <= words[at] <= periods
            or words[at + 1] < 1
            or not 0 <= code < 2 * LISTED
            or code & KIND > PAIRED
            or not 0 <= count <= samples + 1
        ):
            return -1 - at
        size = stretch_size(code, count, samples, width)
        if at + size > stop:
            return -1 - at
        if code & LISTED:
            good = _is_list(words, at + HEAD, count, samples)
        else:
            good = _is_bitmap(longs, (at + HEAD) >> 1, count, samples)
        cells = cells_of(code, count, samples)
        values = (at + values_at(code, count, samples)) >> 1
        first = at + largest_at(code, count, samples)
        good = good and _are_finite(doubles[values : values + (code & KIND) * cells])
        if width == 4:
            good = good and _are_finite(singles[first : first + cells])
        else:
            good = good and _are_finite(doubles[first >> 1 : (first >> 1) + cells])
        if not good:
            return -1 - at
        at += size
    return 0
