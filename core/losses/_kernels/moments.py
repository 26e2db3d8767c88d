"""Sums and standard deviations whose last bit does not depend on the machine.

The number of lanes is read from the array, not from a constant, on purpose: LLVM
unrolls loops of a known short length before it could vectorise them.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ..._vectors import shifted_sums
from ...arrays import Floats
from .layout import Losses


@inlined
def fold(lanes: Floats) -> float:
    """Sum of the lanes, as a tree."""
    half = len(lanes) >> 1
    while half > 0:
        for j in range(half):
            lanes[j] += lanes[j + half]
        half >>= 1
    return float(lanes[0])


@subkernel
def total(values: Losses, lanes: Floats) -> float:
    """Sum of values in float64."""
    width = len(lanes)
    for j in range(width):
        lanes[j] = 0.0
    n = len(values)
    i = 0
    while i + width <= n:
        group = values[i : i + width]
        for j in range(width):
            lanes[j] += np.float64(group[j])
        i += width
    group = values[i:n]
    for j in range(n - i):
        lanes[j] += np.float64(group[j])
    return fold(lanes)


@subkernel
def squared_deviations(values: Losses, centre: float, lanes: Floats) -> float:
    """Sum of (value - centre) squared in float64."""
    width = len(lanes)
    for j in range(width):
        lanes[j] = 0.0
    n = len(values)
    i = 0
    while i + width <= n:
        group = values[i : i + width]
        for j in range(width):
            d = np.float64(group[j]) - centre
            lanes[j] += d * d
        i += width
    group = values[i:n]
    for j in range(n - i):
        d = np.float64(group[j]) - centre
        lanes[j] += d * d
    return fold(lanes)


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
