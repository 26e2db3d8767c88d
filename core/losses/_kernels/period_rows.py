"""Rows: the exact annual losses of one summary in one period, a float64 for each sample.

Annual averages need the sums of a group and nothing else of its cells: neither largest losses
nor which samples had a loss, since a sample without one counts as 0. So the stretches of a group
are added into one row of ``samples + 1`` floats, which stays in the nearest cache, is reduced to
a few moments, and is overwritten by the next group. No cell is ever written to memory::

    stretches of a group   [e7 s1]  [e9 s1]  [e12 s1]
                               | copied   | added, as pairs of floats
                               v          v
    row                    [ mean | sample 1 | ... | sample n ]    -> moments, then the next group

The first stretch is copied: nothing is added to it yet, so the pairs' low parts are 0. The loops
over dense stretches have no branch and no index, so they become vector instructions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Array, Floats, Indices
from .cells import KIND, Sums
from .exact import add_all_to_pairs
from .groups import sum_in_limbs
from .stretches import HEAD, LISTED, PAIRED, PLAIN, Arena, cells_of, values_at

_U = np.uintp


@subkernel
def _copy_list(row: Floats, ids: npt.NDArray[np.int32], values: Array) -> None:
    row[:] = 0.0
    for i in range(len(ids)):
        row[_U(ids[i])] = np.float64(values[i]) + 0.0


@subkernel
def _copy_dense(row: Floats, values: Array) -> None:
    for i in range(len(row)):
        # A sum is never -0.
        row[i] = np.float64(values[i]) + 0.0


@subkernel
def _add_list(high: Floats, low: Floats, ids: npt.NDArray[np.int32], values: Array) -> bool:
    """As :func:`add_all_to_pairs`, for some cells."""
    lost = np.int32(0)
    for i in range(len(ids)):
        cell = _U(ids[i])
        x = np.float64(values[i])
        h = high[cell]
        s = h + x
        t = s - h
        e = (h - (s - t)) + (x - t)
        high[cell] = s
        h = low[cell]
        s = h + e
        t = s - h
        low[cell] = s
        lost |= np.int32((h - (s - t)) + (e - t) != 0.0)
    return bool(lost != 0)


@subkernel
def _copy_values(arena: Arena, at: int, samples: int, width: int, sums: Sums) -> None:
    """Begin a row with the sums of a stretch; of a pair, the part that is the sum, rounded."""
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    n = cells_of(code, count, samples)
    ids = arena.words[at + HEAD : at + HEAD + count]
    first = at + values_at(code, count, samples)
    row = sums.high[: samples + 1]
    if width == 4 and code & KIND == PLAIN:
        singles = arena.singles[first : first + n]
        if code & LISTED:
            _copy_list(row, ids, singles)
        else:
            _copy_dense(row, singles)
    else:
        doubles = arena.doubles[first >> 1 : (first >> 1) + n]
        if code & LISTED:
            _copy_list(row, ids, doubles)
        else:
            _copy_dense(row, doubles)


@subkernel
def _add_doubles(arena: Arena, at: int, first: int, samples: int, sums: Sums) -> bool:
    """Add values from a place counted in float64."""
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    values = arena.doubles[first : first + cells_of(code, count, samples)]
    if code & LISTED:
        ids = arena.words[at + HEAD : at + HEAD + count]
        return _add_list(sums.high, sums.low, ids, values)
    return add_all_to_pairs(sums.high, sums.low, values)


@subkernel
def _add_values(arena: Arena, at: int, samples: int, width: int, sums: Sums) -> bool:
    """Add the sums of a stretch to a row; return whether a cell lost bits."""
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    first = at + values_at(code, count, samples)
    if code & KIND != PLAIN or width != 4:
        return _add_doubles(arena, at, first >> 1, samples, sums)
    values = arena.singles[first : first + cells_of(code, count, samples)]
    if code & LISTED:
        ids = arena.words[at + HEAD : at + HEAD + count]
        return _add_list(sums.high, sums.low, ids, values)
    return add_all_to_pairs(sums.high, sums.low, values)


@subkernel
def _add_rest(arena: Arena, at: int, samples: int, sums: Sums) -> bool:
    """Add the lower parts of the sums of a stretch, if it has any."""
    code = int(arena.words[at + 2])
    if code & KIND != PAIRED:
        return False
    count = int(arena.words[at + 3])
    first = (at + values_at(code, count, samples)) >> 1
    return _add_doubles(arena, at, first + cells_of(code, count, samples), samples, sums)


@subkernel
def fill_row(places: Indices, arena: Arena, samples: int, width: int, sums: Sums) -> None:
    """Write the sums of a group, rounded once, to ``sums.high``; ``sums.low`` is scratch."""
    _copy_values(arena, places[0], samples, width, sums)
    if len(places) == 1:
        return
    sums.low[:] = 0.0
    lost = _add_rest(arena, places[0], samples, sums)
    for i in range(1, len(places)):
        lost |= _add_values(arena, places[i], samples, width, sums)
        lost |= _add_rest(arena, places[i], samples, sums)
    if lost:
        sum_in_limbs(places, arena, samples, width, sums)
        return
    for cell in range(len(sums.high)):
        sums.high[cell] += sums.low[cell]
