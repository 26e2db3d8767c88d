"""Recurrences that numpy has no function for."""

from __future__ import annotations

import numpy as np

from ..._jit import kernel
from ...arrays import Floats


@kernel
def smooth(values: Floats, alpha: float, state: Floats, out: Floats) -> None:
    """Exponential moving average: y += alpha (x - y), beginning with the first x.

    Args:
        values: shape (k,).
        alpha: weight of a new value.
        state: shape (2,), number of earlier values and y; updated.
        out: shape (k,), receives y after every value.
    """
    count, mean = state[0], state[1]
    for i in range(len(values)):
        if count == 0.0:
            mean = values[i]
        else:
            mean += alpha * (values[i] - mean)
        count += 1.0
        out[i] = mean
    state[0], state[1] = count, mean


@kernel
def accumulate(values: Floats, state: Floats, mean_out: Floats, std_out: Floats) -> None:
    """Mean and standard deviation so far (Welford, 1962; the deviation divides by n).

    Args:
        values: shape (k,).
        state: shape (3,), number, mean and sum of squared differences; updated.
        mean_out: shape (k,), receives the mean after every value.
        std_out: shape (k,), receives the deviation after every value.
    """
    count, mean, squares = state[0], state[1], state[2]
    for i in range(len(values)):
        count += 1.0
        difference = values[i] - mean
        mean += difference / count
        squares += difference * (values[i] - mean)
        mean_out[i] = mean
        std_out[i] = np.sqrt(squares / count)
    state[0], state[1], state[2] = count, mean, squares
