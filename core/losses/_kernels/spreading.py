"""Losses in the order of buckets of their bits, so that few of them need to be sorted."""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from .layout import ZERO

BUCKETS = 2048
_FEW_BUCKETS = 256
_MANY = 4096
"""Losses from which on more buckets pay."""

# See unpacking.py.
_U = np.uintp

SPREADING = 4
"""Length of the progress of spreading; zeros before it begins."""
_STEP = 0
"""Index in the progress: 0 while bounds are found, 1 while losses are counted, 2 while they are
copied."""
_STEPS = 3
_ITEM = 1
"""First loss that the step has not come to."""
_LEAST = 2
_LARGEST = 3
"""Bounds of the bits."""


@subkernel
def _shift_of(buckets: int, progress: Indices) -> int:
    """Bits that do not tell the bucket of a loss."""
    shift = 0
    while (progress[_LARGEST] - progress[_LEAST]) >> shift >= buckets:
        shift += 1
    return shift


@kernel
def spread(
    values: Floats, bits: Indices, counts: Indices, ordered: Floats, progress: Indices, most: int
) -> bool:
    """Copy losses in the order of buckets of their bits; ``counts`` tells where each ends.

    Args:
        values: losses above 0, shape (n,).
        bits: the same memory as integers.
        counts: receives the end of each bucket, shape (BUCKETS,).
        ordered: receives the losses, shape (n,) or more.
        progress: where the last call stopped, shape (SPREADING,).
        most: losses after which a step stops.

    Returns:
        Whether it has to be called again.
    """
    n = len(values)
    used = counts[: _FEW_BUCKETS if n < _MANY else BUCKETS]
    while progress[_STEP] < _STEPS:
        begin = progress[_ITEM]
        end = min(begin + most, n)
        least = progress[_LEAST]
        if progress[_STEP] == 0:
            largest = progress[_LARGEST]
            if begin == 0:
                least = largest = bits[0]
            for i in range(begin, end):
                least = min(least, bits[i])
                largest = max(largest, bits[i])
            progress[_LEAST] = least
            progress[_LARGEST] = largest
        elif progress[_STEP] == 1:
            if begin == 0:
                used[:] = 0
            shift = _shift_of(len(used), progress)
            for i in range(begin, end):
                used[_U((bits[i] - least) >> shift)] += 1
        else:
            if begin == 0:
                place = ZERO
                for b in range(len(used)):
                    count = used[b]
                    used[b] = place
                    place += count
            shift = _shift_of(len(used), progress)
            for i in range(begin, end):
                bucket = _U((bits[i] - least) >> shift)
                ordered[_U(used[bucket])] = values[i]
                used[bucket] += 1
        if end < n:
            progress[_ITEM] = end
            return True
        progress[_ITEM] = 0
        progress[_STEP] += 1
    return False
