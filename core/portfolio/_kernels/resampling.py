"""Points of a curve whose periods, or samples, count more than once or not at all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from ...losses._kernels.layout import ZERO


@subkernel
def _squares(
    level: float,
    years: float,
    centre: float,
    multiples: Floats,
    shares: Floats,
    base: float,
    above: Floats,
    listed: Indices,
    n: int,
) -> float:
    """Sum of the squared influences of owners on a TVaR."""
    total = centre * centre * base
    for i in range(n):
        owner = listed[i]
        q = (above[2 * owner] - level * above[2 * owner + 1]) * years
        total += multiples[owner] * q * (q - 2.0 * shares[owner] * centre)
    return max(total, 0.0)


@kernel
def resample(
    values: Floats,
    owners: npt.NDArray[np.int32],
    masses: Floats,
    multiples: Floats,
    shares: Floats,
    returns: Floats,
    above: Floats,
    listed: Indices,
    points: Floats,
) -> None:
    """Read curves at return periods, once for each row of multiples.

    Args:
        values: losses of cells from the largest on.
        owners: period, or group of samples, of each.
        masses: probability of each.
        multiples: how often each owner counts, shape (replicates, owners).
        shares: probability of each owner.
        returns: return periods, descending.
        above: zeros, shape (2 * owners,).
        listed: scratch, shape (owners,).
        points: receives VaR, TVaR and the standard error of the TVaR, from the influence of
            owners on it; shape (replicates, 3, return periods).
    """
    for replicate in range(len(multiples)):
        times = multiples[replicate]
        total = 0.0
        base = 0.0
        for owner in range(len(times)):
            total += times[owner] * shares[owner]
            base += times[owner] * shares[owner] * shares[owner]
        k = ZERO
        n = ZERO
        mass = 0.0
        sums = 0.0
        j = ZERO
        while k < len(returns):
            wanted = total / returns[k]
            while j < len(values):
                owner = owners[j]
                further = times[owner] * masses[j]
                # Where all count once, rounding must not take a cell more than there are.
                if mass + further >= wanted * (1.0 - 1e-12):
                    break
                if further > 0.0:
                    if above[2 * owner + 1] == 0.0:
                        listed[n] = owner
                        n += 1
                    above[2 * owner] += masses[j] * values[j]
                    above[2 * owner + 1] += masses[j]
                    mass += further
                    sums += further * values[j]
                j += 1
            level = values[j] if j < len(values) else 0.0
            tail = (sums + (wanted - mass) * level) / wanted
            centre = tail - level
            squares = _squares(level, returns[k], centre, times, shares, base, above, listed, n)
            points[replicate, 0, k] = level
            points[replicate, 1, k] = tail
            points[replicate, 2, k] = np.sqrt(squares) / total
            k += 1
        for i in range(n):
            above[2 * listed[i]] = 0.0
            above[2 * listed[i] + 1] = 0.0
