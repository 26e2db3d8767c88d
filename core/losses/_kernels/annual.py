"""Means and variances of annual losses, of whole summaries and of subsets of their samples.

Per summary, x is the loss of one sample in one period and w the weight of the period, times the
number P of periods. Periods and samples without a loss count as zeros, and periods without one
are not visited.

Sums of squares are taken about means: the textbook form, a small difference of large sums, loses
half of the digits where losses vary little. A mean of all periods is known only at the end, so
each period is reduced to its own mean m and the squares Q about it, and these are put together
(Chan, Golub and LeVeque, 1979), with n samples::

    sum of w (x - mean)**2 over samples and periods = sum of w (Q + n (m - mean)**2) over periods
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from .cells import Sums
from .moments import squared_deviations, total
from .period_rows import fill_row
from .stretches import Arena

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
    return float(np.sqrt(max(squares, 0.0) / (count - 1)))


@kernel
def annual_losses(
    moments: Floats,
    weights: Floats,
    groups: Indices,
    periods: int,
    sizes: Indices,
    results: Floats,
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
