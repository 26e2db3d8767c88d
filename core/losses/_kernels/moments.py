"""Sums and standard deviations, of a block and of an event, the same bits on any machine.

The number of lanes is read from the array, not from a constant, on purpose: LLVM
unrolls loops of a known short length before it could vectorise them.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ..._vectors import shifted_sums
from ...arrays import Floats
from .layout import Losses, Sidx, Totals


@inlined
def fold(lanes: Floats) -> float:
    """Sum of the lanes, as a tree."""
    half = len(lanes) >> 1
    while half > 0:
        for j in range(half):
            lanes[j] += lanes[j + half]
        half >>= 1
    return float(lanes[0])


@inlined
def _sum(values: Losses, centre: float, squares: bool, lanes: Floats) -> float:
    """Sum of the differences from a number, or of their squares, in float64."""
    width = len(lanes)
    for j in range(width):
        lanes[j] = 0.0
    n = len(values)
    i = 0
    while i + width <= n:
        group = values[i : i + width]
        for j in range(width):
            d = np.float64(group[j]) - centre
            lanes[j] += d * d if squares else d
        i += width
    group = values[i:n]
    for j in range(n - i):
        d = np.float64(group[j]) - centre
        lanes[j] += d * d if squares else d
    return fold(lanes)


@subkernel
def total(values: Losses, lanes: Floats) -> float:
    """Sum of values in float64."""
    return _sum(values, 0.0, False, lanes)


@subkernel
def squared_deviations(values: Losses, centre: float, lanes: Floats) -> float:
    """Sum of (value - centre) squared in float64."""
    return _sum(values, centre, True, lanes)


@inlined
def mean_and_deviation(
    values: Losses, samples: int, shift: float, lanes: Floats
) -> tuple[float, float]:
    """Mean and sample standard deviation of ``samples`` values, absent ones being 0.

    In one pass, shifted by a value near the mean, so that the squares do not cancel.
    Where they do all the same, because the shift was not near, in two: the result is
    as exact as float64 allows for any spread. The deviation is 0 for a single sample,
    as there is nothing to deviate from, and infinite where squares of losses, from
    about 1e154, are beyond float64.
    """
    absent = samples - len(values)
    first, second = shifted_sums(values, shift)
    first -= absent * shift
    second += absent * (shift * shift)
    if second < np.inf and 2.0 * first * first <= samples * second:
        mean = shift + first / samples
        second -= first * first / samples
    else:
        mean = total(values, lanes) / samples
        second = squared_deviations(values, mean, lanes)
        if absent > 0:
            second += absent * (mean * mean)
    if samples == 1:
        return mean, 0.0
    return mean, float(np.sqrt(max(second, 0.0) / (samples - 1)))


_PAGE_BITS = 6


@inlined
def add_samples(sidx: Sidx, losses: Losses, totals: Totals) -> None:
    """Add one block's samples to the event's totals."""
    sums = totals.sums
    touched = totals.touched
    for i in range(len(sidx)):
        # Unsigned, so that numpy's wrap-around of negative indices costs nothing.
        s = np.uintp(np.uint32(sidx[i] - 1))
        sums[s] += np.float64(losses[i])
        touched[s >> np.uintp(_PAGE_BITS)] = 1


@subkernel
def statistics(
    samples: int, totals: Totals, lanes: Floats
) -> tuple[float, float, float, float, float]:
    """Mean, standard deviation, minimum, maximum and chance of loss; clears the totals.

    Samples that no block had count as 0. Only touched pages are visited, so that an
    event of few samples costs little however large ``samples`` is.
    """
    sums = totals.sums
    touched = totals.touched
    width = len(lanes)
    lanes[:] = 0.0
    visited = 0
    positives = 0
    low = np.inf
    high = -np.inf
    for p in range(len(touched)):
        if touched[p]:
            n = min(width, samples - p * width)
            visited += n
            page = sums[p * width : p * width + n]
            for j in range(n):
                x = page[j]
                lanes[j] += x
                positives += int(x > 0)
                low = min(low, x)
                high = max(high, x)
    if visited < samples:
        low = min(low, 0.0)
        high = max(high, 0.0)
    mean = fold(lanes) / samples
    squares = 0.0
    if visited < samples:
        squares = (samples - visited) * (mean * mean)
    lanes[:] = 0.0
    for p in range(len(touched)):
        if touched[p]:
            n = min(width, samples - p * width)
            page = sums[p * width : p * width + n]
            for j in range(n):
                d = page[j] - mean
                lanes[j] += d * d
            page[:] = 0.0
            touched[p] = 0
    squares += fold(lanes)
    deviation = np.sqrt(squares / (samples - 1)) if samples > 1 else 0.0
    return mean, float(deviation), low, high, positives / samples
