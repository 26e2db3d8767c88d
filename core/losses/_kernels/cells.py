"""Cells: sums and largest losses by period and sample, and how a single stretch becomes such.

Most groups have one stretch, and most stretches are blocks as they came: their losses are sums
and largest losses at once, and are copied without being added to anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Floats, Indices
from .stretches import HEAD, KIND, PLAIN, Arena, bitmap_longs, cells_of, largest_at, values_at

# See unpacking.py.
_U = np.uintp


class Sums(NamedTuple):
    """Scratch for the cells of one group; all zero between groups."""

    high: Floats
    """Shape (samples + 1,), as those that follow."""
    low: Floats
    largest: Floats
    losses: Floats
    """Losses of a stretch, in float64."""
    marks: Indices
    """Bitmap of the cells that are there."""
    limbs: Indices
    """Shape (TILE * LIMBS,)."""
    cursors: Indices
    """Next cell of each stretch of a group, shape (stretches of the largest group,)."""
    bits: Indices
    """One float64 as integer, shape (1,)."""
    value: Floats
    """The same memory as a float."""


MEAN_SUM = 0
MEAN_LARGEST = 1
"""Sum and largest loss of the numerical mean, 0 without one."""
TOTAL_SUM = 2
TOTAL_LARGEST = 3
"""Totals over the samples of their sums and largest losses."""
WHOLES = 4
"""Columns of all that a group has."""


class Cells(NamedTuple):
    """Sums and largest losses of several summaries, by summary, period and sample."""

    summaries: npt.NDArray[np.int32]
    """Summary of each group, shape (groups,)."""
    periods: npt.NDArray[np.int32]
    """Period of each group, shape (groups,)."""
    starts: Indices
    """First cell of each group, shape (groups + 1,)."""
    samples: npt.NDArray[np.int32]
    """Sample of each cell, 0 for the numerical mean; shape (cells,)."""
    sums: Floats
    largest: Floats
    """Not below 0."""


@subkernel
def read_losses(arena: Arena, at: int, samples: int, width: int, sums: Sums) -> None:
    """Bring the losses, or largest losses, of a stretch into scratch, in float64.

    A loss of -0 becomes 0: curves order losses by their bits.
    """
    code = int(arena.words[at + 2])
    count = cells_of(code, int(arena.words[at + 3]), samples)
    first = at + largest_at(code, count, samples)
    losses = sums.losses[:count]
    if width == 4:
        singles = arena.singles[first : first + count]
        for i in range(count):
            losses[i] = np.float64(singles[i]) + 0.0
    else:
        doubles = arena.doubles[first >> 1 : (first >> 1) + count]
        for i in range(count):
            losses[i] = doubles[i] + 0.0


@subkernel
def copy_list(
    arena: Arena, at: int, samples: int, width: int, sums: Sums, cells: Cells, k: int
) -> int:
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    ids = arena.words[at + HEAD : at + HEAD + count]
    read_losses(arena, at, samples, width, sums)
    losses = sums.losses[:count]
    to_ids = cells.samples[k : k + count]
    to_sums = cells.sums[k : k + count]
    to_largest = cells.largest[k : k + count]
    for i in range(count):
        x = losses[i]
        to_ids[i] = ids[i]
        to_sums[i] = x
        to_largest[i] = max(x, 0.0)
    if code & KIND != PLAIN:
        values = (at + values_at(code, count, samples)) >> 1
        for i in range(count):
            # The high part of an exact sum is the sum, correctly rounded.
            to_sums[i] = arena.doubles[values + i]
    return k + count


@subkernel
def copy_dense(
    arena: Arena, at: int, samples: int, width: int, sums: Sums, cells: Cells, k: int
) -> int:
    """Copy the cells of a block that came as an array with a bitmap; return the cell after."""
    read_losses(arena, at, samples, width, sums)
    losses = sums.losses
    bitmap = (at + HEAD) >> 1
    for word in range(bitmap_longs(samples)):
        marks = arena.longs[bitmap + word]
        first = word << 6
        for j in range(min(64, samples + 1 - first)):
            # Written for every cell, and kept if it is there: no branch to mispredict.
            x = losses[first + j]
            cells.samples[_U(k)] = first + j
            cells.sums[_U(k)] = x
            cells.largest[_U(k)] = max(x, 0.0)
            k += int((marks >> j) & 1)
    return k
