"""Sums and standard deviations whose last bit does not depend on the machine.

The number of lanes is read from the array, not from a constant, on purpose: LLVM
unrolls loops of a known short length before it could vectorise them.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel
from .layout import Floats, Losses


@kernel
def fold(lanes: Floats) -> float:
    """Sum of the lanes, as a tree."""
    half = len(lanes) >> 1
    while half > 0:
        for j in range(half):
            lanes[j] += lanes[j + half]
        half >>= 1
    return float(lanes[0])


@kernel
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


@kernel
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


@kernel
def mean_and_deviation(values: Losses, samples: int, lanes: Floats) -> tuple[float, float]:
    """Mean and sample standard deviation of ``samples`` values, absent ones being 0.

    Two passes over values that are in the first-level cache by now: as exact as
    float64 allows for any spread, where one-pass formulas cancel. The deviation is
    0 for a single sample, as there is nothing to deviate from.
    """
    mean = total(values, lanes) / samples
    if samples == 1:
        return mean, 0.0
    squares = squared_deviations(values, mean, lanes)
    squares += (samples - len(values)) * (mean * mean)
    return mean, float(np.sqrt(squares / (samples - 1)))
