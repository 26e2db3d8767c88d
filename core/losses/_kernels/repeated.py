"""Adding the same number many times to a float that rounds, as a loop would, but in few steps.

The peer's MPLT accumulates its chance of loss and its mean impacted exposure in the float type
of the stream: one rounded addition for each sample with a loss. Their bytes are part of its
format, so the sum has to go through the same roundings::

    sum   0 ---> 1/N ---> 2/N ---> ... ---> 2**e ---> ... ---> 2**(e + 1) ---> ...
                                              |- steps of one size -|

But every addition within one binade rounds to the same step, because the grid of the float is
the same and the term falls on the same place between two of its points. So a whole binade is
one multiplication, which is exact, and only additions that cross into the next are made one by
one: some 30 operations instead of a thousand. Halfway between two points rounding depends on
the sum, and so near to it that float64 cannot tell: such terms are added one by one.
"""

from __future__ import annotations

import math

import numpy as np

from ..._jit import subkernel

_LOWEST4 = -149
_LOWEST8 = -1074
"""Exponents of the smallest numbers."""

_HALFWAY = 2.0**-20
"""How near to half a step a term may come: float64 errs by less than 2**-28 steps of float32."""


@subkernel
def _rounded(value: float, width: int) -> float:
    return np.float64(np.float32(value)) if width == 4 else value


@subkernel
def repeated_sum(term: float, count: int, width: int) -> float:
    """Sum of ``count`` terms, each addition rounded to a float of ``width`` bytes.

    Args:
        term: not negative, finite.
        count: how many times it is added to 0.
        width: 4 or 8.
    """
    digits = 24 if width == 4 else 53
    lowest = _LOWEST4 if width == 4 else _LOWEST8
    value = 0.0
    while count > 0:
        _, exponent = math.frexp(value)
        following = _rounded(value + term, width)
        value, previous = following, value
        count -= 1
        if previous == 0.0 or following == previous:
            # The first addition says nothing of those that follow; one that was lost, all.
            if following == previous:
                return value
            continue
        grid = math.ldexp(1.0, max(exponent - digits, lowest))
        place = term / grid
        if abs(place - np.floor(place) - 0.5) < _HALFWAY:
            continue
        step = following - previous
        room = np.floor((math.ldexp(1.0, exponent) - following) / step) - 1.0
        if room >= 1.0:
            steps = min(int(room), count)
            value += steps * step
            count -= steps
    return value
