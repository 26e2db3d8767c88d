"""Kernels that look at the positions of many ranges.

They replace a few array operations each: in numpy these take longer than a small read.
"""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Array, Indices


@kernel
def farthest(starts: Indices) -> int:
    """Return the largest start, or -1 if one is negative."""
    largest = 0
    for i in range(len(starts)):
        if starts[i] < 0:
            return -1
        largest = max(largest, starts[i])
    return largest


@kernel
def are_delivered(delivered: Array, starts: Indices, page_bits: int, size: int) -> bool:
    """Whether the pages of each range were delivered.

    Args:
        delivered: how many pages from each one on were delivered, int32, one axis.
        starts: first byte of each range, in the pages.
        page_bits: binary logarithm of the size of a page.
        size: bytes of each range.
    """
    for i in range(len(starts)):
        first = starts[i] >> page_bits
        if delivered[first] <= ((starts[i] + size - 1) >> page_bits) - first:
            return False
    return True
