"""Order statistics of a few ranks by counting: no value is moved.

A threshold that exactly k + 1 values are below *separates* rank k from the next: the largest value
below it has rank k, the smallest of the others has rank k + 1, and a quantile lies between these
two. So it is enough to find that threshold, and to try one means to count the values below it,
which is a loop that vectorises: 20 ns for 500 values. As in ``quantiles``, values are bit patterns
of losses that are not negative, which grow with the logarithm of a loss::

    count    n |                              . - '
               |                       . '  |
      k + 1 ---|- - - - - - - - - - .' - - -|- - -
               |             .  '   :       |
             0 |_ _ . - '    |______:_______|_________ bits
                            low  threshold  high

The next threshold to try is where a straight line between the ends of the interval that is left
would have the count. If the same end stays twice, half its distance is used (the Illinois variant
of the regula falsi), as it would stay for ever where the counts bend: six tries find one of 500
losses, where halving the interval takes nine. Equal values have no threshold between them; an
interval of one value says so, and after a dozen tries its ends move to the nearest values.

Each rank takes a search of its own, so for more than a few the buckets of ``quantiles`` are faster.
They also take over from a search that tries too often, whatever the values are.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined
from .layout import LANES, ZERO, Bits, Ranks, Scratch

# See unpacking.py.
_U = np.uintp

FEW = 8
"""Up to this many ranks, two for each quantile, are faster to search for than to put in buckets."""

_TRIES = 24
"""Attempts of a search before it is given up."""

_NARROWING = 12
"""Tries after which the ends of the interval move to the nearest values, as there may be equals."""

_FOUND = 0
_EQUAL = 1
_GIVEN_UP = 2


@inlined
def _count_below(bits: Bits, size: int, threshold: int) -> int:
    """Number of values below a threshold."""
    t = bits.dtype.type(threshold)
    # In 32 bits, which the compiler adds up twice as many at a time of as in 64.
    count = np.int32(0)
    for i in range(size):
        count = np.int32(count + np.int32(bits[_U(i)] < t))
    return int(count)


@inlined
def _neighbours(bits: Bits, size: int, threshold: int, low: int, high: int) -> tuple[int, int]:
    """Largest value below a threshold, smallest at or above it; ``low``, ``high`` if none is."""
    t = bits.dtype.type(threshold)
    lowest = bits.dtype.type(low)
    highest = bits.dtype.type(high)
    below = lowest
    above = highest
    for i in range(size):
        value = bits[_U(i)]
        below = max(below, value if value < t else lowest)
        above = min(above, highest if value < t else value)
    return int(below), int(above)


@inlined
def _extremes(bits: Bits, n: int) -> tuple[int, int]:
    """Least and largest of n values."""
    least = bits[0]
    largest = bits[0]
    for i in range(n):
        least = min(least, bits[_U(i)])
        largest = max(largest, bits[_U(i)])
    return int(least), int(largest)


@inlined
def _pad(bits: Bits, n: int, value: int) -> int:
    """Fill up the last group after n values, so that loops have no rest; return the size."""
    size = (n + LANES - 1) // LANES * LANES
    for i in range(n, size):
        bits[_U(i)] = value
    return size


@inlined
def _separate(
    bits: Bits, size: int, target: int, low: int, at_low: int, high: int, at_high: int
) -> tuple[int, int, int]:
    """Look for the threshold that ``target`` values are below.

    Args:
        bits: values, shape (size,) or more.
        size: how many of them to look at.
        target: above ``at_low``, below ``at_high``, or equal to ``at_low``.
        low: a threshold that ``at_low`` values are below; no value is less if that is 0.
        at_low: see there.
        high: a threshold that ``at_high`` values are below.
        at_high: see there.

    Returns:
        _FOUND, _EQUAL if the values on both sides are ``low`` or _GIVEN_UP; the last ``low`` and
        ``at_low``.
    """
    to_low = np.float64(target - at_low)
    to_high = np.float64(at_high - target)
    side = 2
    tries = 0
    while at_low != target:
        if tries == _TRIES:
            return _GIVEN_UP, low, at_low
        if tries == _NARROWING:
            nearest, _ = _neighbours(bits, size, high, low, high)
            _, low = _neighbours(bits, size, low, low, high)
            high = nearest + 1
        if high - low <= 1:
            return _EQUAL, low, at_low
        tries += 1
        threshold = low + int((high - low) * (to_low / (to_low + to_high)))
        threshold = min(max(threshold, low + 1), high - 1)
        count = _count_below(bits, size, threshold)
        # Without branches, half of which would be mispredicted.
        is_low = count <= target
        distance = np.float64(abs(count - target))
        share = 0.5 if side == is_low else 1.0
        side = is_low
        low = threshold if is_low else low
        high = high if is_low else threshold
        at_low = count if is_low else at_low
        to_low = distance if is_low else to_low * share
        to_high = to_high * share if is_low else distance
    return _FOUND, low, at_low


@inlined
def pick_few(n: int, ranks: Ranks, begin: int, absent: int, scratch: Scratch) -> bool:
    """Pick the values of ranks from ``begin`` on of n values, none of them negative.

    Args:
        n: values at the start of ``scratch.work_bits``, at least 1.
        ranks: ascending; ``absent`` is taken off each.
        begin: the first to pick.
        absent: values before these n.
        scratch: ``picked`` receives the values; those in ``work_bits`` stay.

    Returns:
        False if a search was given up: the values must be selected in another way.
    """
    bits = scratch.work_bits
    least, largest = _extremes(bits, n)
    size = _pad(bits, n, scratch.limits[1])
    # Values become floats by way of the last place of the work memory.
    last = len(bits) - 1
    low = least
    at_low = ZERO
    i = begin
    while i < len(ranks):
        target = ranks[i] - absent + 1
        below = largest
        above = largest
        if target < n:
            found, low, at_low = _separate(bits, size, target, low, at_low, largest + 1, n)
            if found == _GIVEN_UP:
                return False
            below = low
            above = low
            if found == _FOUND:
                below, above = _neighbours(bits, size, low, least, largest)
        bits[last] = below
        scratch.picked[i] = scratch.work[last]
        i += 1
        if i < len(ranks) and ranks[i] - absent == target:
            bits[last] = above
            scratch.picked[i] = scratch.work[last]
            i += 1
    return True
