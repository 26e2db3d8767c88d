"""Means and variances of annual losses, of whole summaries and of subsets of their samples.

Per summary, x is the loss of one sample in one period and w the weight of the period, times the
number P of periods. Periods and samples without a loss count as zeros, and periods without one
are not visited.

Sums of squares are taken about means: the textbook form, a small difference of large sums, loses
half of the digits where losses vary little. A mean of all periods is known only at the end, so
each period is reduced to its own mean m and the squares Q about it, and these are put together
(Chan, Golub and LeVeque, 1979), with n samples::

    sum of w (x - mean)**2 over samples and periods = sum of w (Q + n (m - mean)**2) over periods

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

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats, Indices
from .cells import Sums
from .groups import add_group, clear, sum_in_limbs
from .moments import squared_deviations, total
from .stretches import HEAD, KIND, LISTED, PAIRED, PLAIN, Arena, cells_of, values_at

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


MEAN = 0
DEVIATION = 1
BETWEEN = 2
WITHIN = 3
COLUMNS = 4

PART = 0
"""Moment of a period: sum of the losses."""
SQUARES = 1
"""Sum of their squares about their mean."""
MOMENTS = 2


@kernel
def reduce_periods(
    places: Indices,
    starts: Indices,
    arena: Arena,
    samples: int,
    width: int,
    sums: Sums,
    lanes: Floats,
    lows: Indices,
    highs: Indices,
    moments: Floats,
) -> None:
    """Add up the stretches of each group, and reduce the sums of subsets of samples to moments.

    Args:
        places: words of the stretches, by group.
        starts: first stretch of each group, shape (groups + 1,).
        arena: holds the stretches.
        samples: len_sample.
        width: bytes of a loss.
        sums: scratch.
        lanes: scratch, shape (LANES,).
        lows: first sample of each subset, shape (subsets,); 0 is the numerical mean.
        highs: sample after the last of each.
        moments: receives PART and SQUARES; shape (groups, subsets, MOMENTS).
    """
    for group in range(len(starts) - 1):
        fill_row(places[starts[group] : starts[group + 1]], arena, samples, width, sums)
        for i in range(len(lows)):
            losses = sums.high[lows[i] : highs[i]]
            part = total(losses, lanes)
            moments[group, i, PART] = part
            moments[group, i, SQUARES] = squared_deviations(losses, part / len(losses), lanes)


@subkernel
def _deviation(squares: float, count: float) -> float:
    """Sample standard deviation; NaN of a single observation, which has none."""
    if count < 2:
        return np.nan
    if np.isnan(squares):
        # Infinite squares, times a weight of nothing.
        return np.inf
    return float(np.sqrt(max(squares, 0.0) / (count - 1)))


@kernel
def annual_losses(
    moments: Floats, weights: Floats, groups: Indices, periods: int, sizes: Indices, results: Floats
) -> None:
    """Mean, standard deviation and sums of squares of annual losses.

    Args:
        moments: of the groups, from :func:`reduce_periods`.
        weights: of the groups' periods, times the number of periods; shape (groups,).
        groups: first group of each summary, shape (summaries + 1,).
        periods: number of periods.
        sizes: samples of each subset, shape (subsets,).
        results: receives MEAN, DEVIATION, and the sums of squares BETWEEN periods and WITHIN
            them; shape (summaries, subsets, COLUMNS).
    """
    for s in range(len(groups) - 1):
        for i in range(len(sizes)):
            n = sizes[i]
            count = np.float64(n * periods)
            of_periods = 0.0
            for group in range(groups[s], groups[s + 1]):
                of_periods += weights[group] * moments[group, i, PART]
            mean = of_periods / count
            squares = 0.0
            mass = 0.0
            between = mean * mean * (periods - (groups[s + 1] - groups[s]))
            within = 0.0
            for group in range(groups[s], groups[s + 1]):
                weight = weights[group]
                part = moments[group, i, PART]
                inside = moments[group, i, SQUARES]
                centre = part / n
                mass += weight
                squares += weight * (inside + n * (centre - mean) * (centre - mean))
                # Weights other than 1 add a part that may be negative: so does the formula.
                within += weight * inside + weight * (1.0 - weight) * part * part / n
                d = weight * centre - mean
                between += d * d
            squares += mean * mean * n * (periods - mass)
            results[s, i, MEAN] = mean
            results[s, i, DEVIATION] = _deviation(squares, count)
            results[s, i, BETWEEN] = between
            results[s, i, WITHIN] = within
