"""An event's total per sample over its blocks, and the statistics of that total."""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ...arrays import Floats
from .layout import Losses, Sidx, Totals
from .moments import fold

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
