"""Rows: the exact annual losses of one summary in one period, a float64 for each sample.

Annual averages need the sums of a group and nothing else of its cells: neither largest losses
nor which samples had a loss, since a sample without one counts as 0. So the stretches of a group
are added into one row of ``samples + 1`` floats, which stays in the nearest cache, is reduced to
a few moments, and is overwritten by the next group. No cell is ever written to memory::

    stretches of a group   [e7 s1]  [e9 s1]  [e12 s1]
                               | copied   | added, each addition checked
                               v          v
    row                    [ mean | sample 1 | ... | sample n ]    -> moments, then the next group

The sums must be exact, as those of cells are, but the pairs of floats that make sure of it
(``exact``) take 14 operations for each loss. Losses of 24 bits leave 29 bits of a float64 to
spare, so the sum of a few has no rounding error, unless one is half a billion times another.
That is checked with 4 operations: if ``s = h + x`` and both ``s - h == x`` and ``s - x == h``,
then s is exact, because Knuth's two-sum computes its error from these differences, as 0. After
a check that fails, the group is added up again as pairs. Two summands need no check: their sum,
rounded once, is the exact sum correctly rounded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Array, Floats, Indices
from .cells import KIND, Sums
from .groups import add_group, clear, sum_in_limbs
from .stretches import HEAD, LISTED, PAIRED, PLAIN, Arena, cells_of, values_at

_U = np.uintp
_FREE_OF_CHECKS = 2
"""Summands that are rounded once."""


@subkernel
def _add_list(row: Floats, ids: npt.NDArray[np.int32], values: Array) -> bool:
    """Add values to some cells; return whether a sum was rounded."""
    rounded = np.int32(0)
    for i in range(len(ids)):
        cell = _U(ids[i])
        x = np.float64(values[i])
        h = row[cell]
        s = h + x
        row[cell] = s
        rounded |= np.int32(s - h != x) | np.int32(s - x != h)
    return bool(rounded != 0)


@subkernel
def _add_dense(row: Floats, values: Array) -> bool:
    rounded = np.int32(0)
    for i in range(len(row)):
        x = np.float64(values[i])
        h = row[i]
        s = h + x
        row[i] = s
        rounded |= np.int32(s - h != x) | np.int32(s - x != h)
    return bool(rounded != 0)


@subkernel
def _add_stretch(arena: Arena, at: int, samples: int, width: int, row: Floats) -> bool:
    """Add the sums of a stretch to a row; return whether one was, or may be, rounded."""
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    n = cells_of(code, count, samples)
    ids = arena.words[at + HEAD : at + HEAD + count]
    first = at + values_at(code, count, samples)
    if width == 4 and code & KIND == PLAIN:
        singles = arena.singles[first : first + n]
        if code & LISTED:
            return _add_list(row, ids, singles)
        return _add_dense(row, singles)
    doubles = arena.doubles[first >> 1 : (first >> 1) + n]
    if code & LISTED:
        return _add_list(row, ids, doubles)
    return _add_dense(row, doubles)


@subkernel
def _fill_by_pairs(places: Indices, arena: Arena, samples: int, width: int, sums: Sums) -> None:
    clear(samples, sums)
    if add_group(places, arena, samples, width, sums):
        sum_in_limbs(places, arena, samples, width, sums)
    for cell in range(samples + 1):
        sums.high[cell] += sums.low[cell]


@subkernel
def fill_row(places: Indices, arena: Arena, samples: int, width: int, sums: Sums) -> None:
    """Write the sums of a group, rounded once, to ``sums.high``."""
    row = sums.high[: samples + 1]
    row[:] = 0.0
    rounded = False
    paired = False
    for i in range(len(places)):
        rounded |= _add_stretch(arena, places[i], samples, width, row)
        paired |= int(arena.words[places[i] + 2]) & KIND == PAIRED
    # The high part of a pair is its sum, correctly rounded: enough if nothing is added to it.
    if len(places) > 1 and (paired or (rounded and len(places) > _FREE_OF_CHECKS)):
        _fill_by_pairs(places, arena, samples, width, sums)
