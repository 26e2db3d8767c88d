"""Sums of the largest losses of a curve, which no order of summing changes.

A loss above 0 is an integer of 53 bits times a power of two. So the losses of one exponent are
added as integers, in two parts of 26 and 27 bits that do not overflow, and the parts of all
exponents become one float64 at the end, from the largest down. However losses came by, whether
one by one, by bucket or some of them many times over, the sum is the same to the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from ..._jit import subkernel
from ...arrays import Indices
from .exact import two_sum

# See unpacking.py.
_U = np.uintp

EXPONENTS = 2048
SPLIT = 26
"""Bits of the lower part."""
FRACTION = (1 << 52) - 1
LOWER = (1 << SPLIT) - 1


@subkernel
def add_losses(parts: Indices, exponent: int, times: int, upper: int, lower: int) -> None:
    """Add the fractions of so many losses of an exponent.

    Args:
        parts: of all exponents, shape (2, EXPONENTS).
        exponent: of the losses, as in their bits.
        times: number of losses.
        upper: sum of the upper bits of their fractions.
        lower: sum of the lower ones.
    """
    # All but the subnormal have a bit before the fraction.
    leading = times << SPLIT if exponent else 0
    parts[0, _U(exponent)] += upper + leading
    parts[1, _U(exponent)] += lower


@subkernel
def total_of(parts: Indices, least: int, most: int) -> float:
    """The sum of all losses with exponents from ``least`` to ``most``."""
    high = 0.0
    low = 0.0
    scale = math.ldexp(1.0, int(max(most, 1)) - 1075)
    for exponent in range(most, least - 1, -1):
        for part in range(2):
            x = np.float64(parts[part, _U(exponent)]) * scale
            high, error = two_sum(high, x if part else x * (1 << SPLIT))
            low += error
        if exponent > 1:
            scale *= 0.5
    return high if math.isinf(high) else high + low
