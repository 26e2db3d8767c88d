"""Exact sums of 64-bit integers, which may need more than 64 bits.

Each value is split as ``high * 2**32 + low``, with a low half of 32 bits, and the halves are
summed separately in int64. Neither sum can overflow before 2**31 values, more than are ever
summed into one.
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
    """Split int64 or uint64 values into high and low halves, as int64 of shape (2, ...)."""
    out = np.empty((2, *values.shape), np.int64)
    np.right_shift(values, _HALF, out=out[0], casting="unsafe")
    np.bitwise_and(values, _LOW, out=out[1], casting="unsafe")
    return out


def joined(sums: Array, unsigned: bool, out: np.dtype[Any], casting: Casting) -> Array:
    """Join sums of halves to values that can be converted to ``out``.

    Args:
        sums: sums of the output of :func:`halves`, int64, shape (2, ...).
        unsigned: whether the summed values were uint64.
        out: dtype the sums will be converted to.
        casting: rule for sums of more than 64 bits; see :func:`core.tiles.convert.convert`.

    Returns:
        The sums, shape (...): float64 if ``out`` is floating, else int64 or uint64.

    Raises:
        CastingError: a sum needs more than 64 bits, and ``casting`` is safe.
    """
    high, low = sums[0] + (sums[1] >> _HALF), sums[1] & _LOW
    if out.kind in "fc":
        # Both halves are exact (the high one below 2**53), so only their sum is rounded.
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
            hint="Request a floating dtype, or casting=clip or wrap",
        )
    limits = np.iinfo(kind)
    return np.where(wide, np.where(high > 0, kind(limits.max), kind(limits.min)), total)
