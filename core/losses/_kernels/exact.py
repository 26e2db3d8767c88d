"""Sums of floats whose last bit does not depend on the order of the summands.

A sum is carried as two float64, ``high + low``, that are its exact value. Adding x splits
``high + x`` into the nearest float64 and the error of that rounding (Knuth's two-sum), and
the error goes to ``low`` the same way. As long as that second addition has no error itself,
nothing has been lost: the pair holds about 106 bits, while the losses of one summary rarely
span 60. At the end ``high + low``, rounded once, is the exact sum correctly rounded, which is
a function of the summands alone.

Where the second addition does have an error (losses of 1e300 and 1e-300 in one cell, or an
overflow), the caller sums that cell again into *limbs*: one integer wide enough for any
float64, in digits of 32 bits with room for 2**30 summands before a carry (Kulisch). Integers
add in any order; the result is rounded once, to nearest, ties to even, and to infinity where
the exact sum is beyond float64.
"""

from __future__ import annotations

import math

import numpy as np

from ..._jit import inlined, subkernel
from ...arrays import Floats, Indices

LIMBS = 68
"""Digits of 32 bits: 2098 for the range of float64, and room for carries."""
_MASK = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
_LEAST = -1074
"""Exponent of the unit of limbs."""
_GREATEST = 971
"""Exponent of the unit of the largest float64."""


@inlined
def two_sum(h: float, x: float) -> tuple[float, float]:
    """The sum of two numbers as the nearest float64, and the error of that."""
    s = h + x
    t = s - h
    return s, (h - (s - t)) + (x - t)


@subkernel
def add_to_pair(high: Floats, low: Floats, cell: int, x: float) -> bool:
    """Add to the sum of a cell; return whether bits were lost."""
    high[cell], e = two_sum(high[cell], x)
    if e == 0.0:
        return False
    low[cell], lost = two_sum(low[cell], e)
    return bool(lost != 0.0)


@subkernel
def add_all_to_pairs(high: Floats, low: Floats, values: Floats) -> bool:
    """Add a value to the sum of each cell; return whether bits were lost in any."""
    lost = np.int32(0)
    for i in range(len(values)):
        high[i], e = two_sum(high[i], np.float64(values[i]))
        low[i], rest = two_sum(low[i], e)
        lost |= np.int32(rest != 0.0)
    return bool(lost != 0)


@subkernel
def add_to_limbs(limbs: Indices, base: int, bits: int) -> None:
    """Add a finite float64, given by its bits, to the integer at ``limbs[base]``."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & _FRACTION
    shift = 0
    if exponent:
        fraction |= 1 << 52
        shift = exponent - 1
    limb = base + (shift >> 5)
    offset = shift & 31
    low = (fraction & _MASK) << offset
    high = (fraction >> 32) << offset
    first = low & _MASK
    second = (low >> 32) + (high & _MASK)
    third = high >> 32
    if bits < 0:
        first, second, third = -first, -second, -third
    limbs[limb] += first
    limbs[limb + 1] += second
    limbs[limb + 2] += third


@subkernel
def _carry(limbs: Indices, base: int) -> int:
    """Bring the digits into 0 to 2**32 - 1; return what is left over, negative if the sum is."""
    rest = 0
    for k in range(base, base + LIMBS):
        digit = int(limbs[k]) + rest
        limbs[k] = digit & _MASK
        rest = digit >> 32
    return rest


@subkernel
def rounded(limbs: Indices, base: int) -> float:
    """The nearest float64 of an integer in limbs, which are cleared."""
    sign = 1.0
    if _carry(limbs, base) < 0:
        sign = -1.0
        # Two's complement: the digits of the absolute value.
        for k in range(base, base + LIMBS):
            limbs[k] = -limbs[k]
        _carry(limbs, base)
    top = LIMBS - 1
    while top > 0 and limbs[base + top] == 0:
        top -= 1
    digit = int(limbs[base + top])
    highest = 32 * top - 1
    while digit > 0:
        digit >>= 1
        highest += 1
    shift = max(highest - 52, 0)
    at = base + (shift >> 5)
    offset = shift & 31
    quotient = int(limbs[at]) >> offset
    if at + 1 < base + LIMBS:
        quotient |= int(limbs[at + 1]) << (32 - offset)
    if offset and at + 2 < base + LIMBS:
        quotient |= int(limbs[at + 2]) << (64 - offset)
    quotient &= (1 << 53) - 1
    if shift > 0 and _above_half(limbs, base, shift, quotient & 1):
        quotient += 1
    limbs[base : base + LIMBS] = 0
    exponent = shift + _LEAST
    if exponent > _GREATEST or (exponent == _GREATEST and quotient >> 53):
        return sign * np.inf
    return sign * math.ldexp(float(quotient), exponent)


@subkernel
def _above_half(limbs: Indices, base: int, shift: int, odd: int) -> bool:
    """Whether the bits below ``shift`` are more than half a unit, or half of an odd one."""
    half = shift - 1
    at = base + (half >> 5)
    digit = int(limbs[at])
    if not (digit >> (half & 31)) & 1:
        return False
    if odd or digit & ((1 << (half & 31)) - 1):
        return True
    rest = 0
    for k in range(base, at):
        rest |= int(limbs[k])
    return rest != 0
