"""Checks of stretches that come from outside, before any kernel trusts them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats, Indices
from .layout import ZERO
from .stretches import (
    HEAD,
    LISTED,
    PAIRED,
    bitmap_longs,
    cells_of,
    largest_at,
    stretch_size,
    values_at,
)

_KIND = 3


@subkernel
def _is_list(words: npt.NDArray[np.int32], at: int, count: int, samples: int) -> bool:
    """Whether sample ids ascend, in range."""
    before = -1
    for i in range(at, at + count):
        cell = words[i]
        if cell <= before or cell > samples:
            return False
        before = cell
    return True


@subkernel
def _is_bitmap(longs: Indices, at: int, count: int, samples: int) -> bool:
    """Whether as many cells are marked as there should be, and none beyond the last."""
    marked = ZERO
    for i in range(bitmap_longs(samples)):
        word = longs[at + i]
        for j in range(64):
            bit = (word >> j) & 1
            if bit and 64 * i + j > samples:
                return False
            marked += int(bit)
    return bool(marked == count)


@subkernel
def _are_finite(values: Array) -> bool:
    odd = ZERO
    for i in range(len(values)):
        odd += int(not abs(values[i]) < np.inf)
    return bool(odd == 0)


@kernel
def check_run(
    words: npt.NDArray[np.int32],
    longs: Indices,
    doubles: Floats,
    singles: Array,
    samples: int,
    width: int,
    periods: int,
) -> int:
    """Check a sequence of stretches; return 0, or the word of the first bad one as -1 - word.

    Args:
        words: the sequence, and the same memory as the next three.
        longs: for bitmaps.
        doubles: for sums.
        singles: for largest losses of four bytes.
        samples: len_sample.
        width: bytes of a loss.
        periods: number of periods.
    """
    at = ZERO
    stop = len(words)
    while at < stop:
        if at + HEAD > stop:
            return -1 - at
        code = int(words[at + 2])
        count = int(words[at + 3])
        if (
            not 1 <= words[at] <= periods
            or words[at + 1] < 1
            or not 0 <= code < 2 * LISTED
            or code & _KIND > PAIRED
            or not 0 <= count <= samples + 1
        ):
            return -1 - at
        size = stretch_size(code, count, samples, width)
        if at + size > stop:
            return -1 - at
        if code & LISTED:
            good = _is_list(words, at + HEAD, count, samples)
        else:
            good = _is_bitmap(longs, (at + HEAD) >> 1, count, samples)
        cells = cells_of(code, count, samples)
        values = (at + values_at(code, count, samples)) >> 1
        first = at + largest_at(code, count, samples)
        good = good and _are_finite(doubles[values : values + (code & _KIND) * cells])
        if width == 4:
            good = good and _are_finite(singles[first : first + cells])
        else:
            good = good and _are_finite(doubles[first >> 1 : (first >> 1) + cells])
        if not good:
            return -1 - at
        at += size
    return 0
