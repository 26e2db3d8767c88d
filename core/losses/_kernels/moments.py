"""Sums and standard deviations whose last bit does not depend on the machine.

The number of lanes is read from the array, not from a constant, on purpose: LLVM
unrolls loops of a known short length before it could vectorise them.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ...arrays import Floats
from .layout import Losses

_U = np.uintp


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
def _shifted_sums(values: Losses, shift: float, lanes: Floats) -> tuple[float, float]:
    """Sums of (value - shift) and of its square, in one pass over half the lanes each."""
    half = len(lanes) >> 1
    for j in range(len(lanes)):
        lanes[j] = 0.0
    n = len(values)
    i = 0
    while i + half <= n:
        for j in range(half):
            d = np.float64(values[_U(i) + _U(j)]) - shift
            lanes[_U(j)] += d
            lanes[_U(half) + _U(j)] += d * d
        i += half
    for j in range(n - i):
        d = np.float64(values[_U(i) + _U(j)]) - shift
        lanes[_U(j)] += d
        lanes[_U(half) + _U(j)] += d * d
    return fold(lanes[:half]), fold(lanes[half:])


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
    first, second = _shifted_sums(values, shift, lanes)
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
