"""Means and variances of annual losses, of whole summaries and of subsets of their samples.

Per summary, x is the loss of one sample in one period and w the weight of the period, times the
number P of periods. Periods and samples without a loss count as zeros, and are not visited. Sums
of squares are taken about the mean, in a second pass: the textbook form, a small difference of
large sums, loses half of the digits where losses vary little.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from .groups import Cells
from .layout import ZERO

MEAN = 0
DEVIATION = 1
BETWEEN = 2
WITHIN = 3
COLUMNS = 4


@subkernel
def _deviation(squares: float, count: float) -> float:
    """Sample standard deviation; NaN of a single observation, which has none."""
    if count < 2:
        return np.nan
    return float(np.sqrt(max(squares, 0.0) / (count - 1)))


@subkernel
def _weight(cells: Cells, group: int, weights: Floats) -> float:
    return weights[cells.periods[group] - 1] if len(weights) else 1.0


@subkernel
def _first_from(cells: Cells, begin: int, end: int, sample: int) -> int:
    """First cell in [begin, end) of this or a higher sample."""
    while begin < end:
        middle = (begin + end) >> 1
        if cells.samples[middle] < sample:
            begin = middle + 1
        else:
            end = middle
    return begin


@subkernel
def _annual_mean(
    cells: Cells, begin: int, end: int, low: int, high: int, weights: Floats, count: float
) -> float:
    total = 0.0
    for group in range(begin, end):
        first = _first_from(cells, cells.starts[group], cells.starts[group + 1], low)
        last = _first_from(cells, first, cells.starts[group + 1], high)
        part = 0.0
        for k in range(first, last):
            part += cells.sums[k]
        total += _weight(cells, group, weights) * part
    return total / count


@subkernel
def _squares(
    cells: Cells,
    begin: int,
    end: int,
    low: int,
    high: int,
    weights: Floats,
    periods: int,
    mean: float,
) -> tuple[float, float, float]:
    """Sums of squares of samples [low, high): in all, between periods, within periods."""
    n = high - low
    total = 0.0
    between = 0.0
    within = 0.0
    mass = 0.0
    for group in range(begin, end):
        first = _first_from(cells, cells.starts[group], cells.starts[group + 1], low)
        last = _first_from(cells, first, cells.starts[group + 1], high)
        weight = _weight(cells, group, weights)
        part = 0.0
        about_mean = 0.0
        for k in range(first, last):
            x = cells.sums[k]
            part += x
            about_mean += (x - mean) * (x - mean)
        total += weight * about_mean
        mass += weight * (last - first)
        centre = part / n
        inside = (n - (last - first)) * centre * centre
        for k in range(first, last):
            d = cells.sums[k] - centre
            inside += d * d
        # Weights other than 1 add a part that may be negative: so does the formula.
        within += weight * inside + weight * (1.0 - weight) * part * part / n
        d = weight * centre - mean
        between += d * d
    total += mean * mean * (n * periods - mass)
    between += mean * mean * (periods - (end - begin))
    return total, between, within


@kernel
def annual_losses(
    cells: Cells,
    groups: Indices,
    weights: Floats,
    periods: int,
    lows: Indices,
    highs: Indices,
    results: Floats,
) -> None:
    """Mean, standard deviation and sums of squares of annual losses.

    Args:
        cells: sums of the summaries.
        groups: first group of each summary, shape (summaries + 1,).
        weights: of the periods times their number, shape (periods,); empty if all are 1.
        periods: number of periods.
        lows: first sample of each subset, shape (subsets,); 0 is the numerical mean.
        highs: sample after the last of each.
        results: receives MEAN, DEVIATION, and the sums of squares BETWEEN periods and WITHIN
            them; shape (summaries, subsets, COLUMNS).
    """
    for s in range(len(groups) - 1):
        begin = groups[s]
        end = groups[s + 1]
        for i in range(len(lows)):
            low = ZERO + lows[i]
            high = ZERO + highs[i]
            count = np.float64((high - low) * periods)
            mean = _annual_mean(cells, begin, end, low, high, weights, count)
            total, between, within = _squares(cells, begin, end, low, high, weights, periods, mean)
            results[s, i, MEAN] = mean
            results[s, i, DEVIATION] = _deviation(total, count)
            results[s, i, BETWEEN] = between
            results[s, i, WITHIN] = within
