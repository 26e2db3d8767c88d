"""Sums of 64-bit integers, which may need more than 64 bits.

Each value is ``high * 2**32 + low`` with a low half of 32 bits. The halves are summed apart:
neither sum can need its 64 bits before 2**31 values, and so many are never summed into one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import CastingError
from .view import Casting

_HALF = 32
_LOW = (1 << _HALF) - 1


def halves(values: Array) -> Array:
    """High and low halves of int64 or uint64 values, as a first axis of length 2, int64."""
    return np.stack([values >> _HALF, values & _LOW]).astype(np.int64)


def joined(sums: Array, unsigned: bool, out: np.dtype[Any], casting: Casting) -> Array:
    """Sums of halves as values that can be converted to ``out``.

    Args:
        sums: of what ``halves`` gave, int64, its first axis being the halves.
        unsigned: whether the values were uint64.
        out: type they will be converted to.
        casting: how; see :func:`core.tiles.convert.convert`.

    Returns:
        float64 if ``out`` is floating; else int64 or uint64.

    Raises:
        CastingError: a sum needs more than 64 bits, and ``casting`` is safe.
    """
    high, low = sums[0] + (sums[1] >> _HALF), sums[1] & _LOW
    if out.kind in "fc":
        # The low half is exact, and the high one too below 2**53: the sum alone is rounded.
        floats: Array = high * float(1 << _HALF) + low
        return floats
    bottom, top = (0, _LOW) if unsigned else (-(1 << _HALF - 1), (1 << _HALF - 1) - 1)
    wide = (high < bottom) | (high > top)
    kind = np.uint64 if unsigned else np.int64
    total: Array = (high.astype(kind) << kind(_HALF)) | low.astype(kind)
    if not wide.any() or casting == "wrap":
        return total
    if casting == "safe":
        raise CastingError(
            f"a sum of {np.dtype(kind).name} values does not fit in 64 bits",
            hint="Ask for a floating dtype, or for casting=clip or wrap",
        )
    limits = np.iinfo(kind)
    return np.where(wide, np.where(high > 0, kind(limits.max), kind(limits.min)), total)
