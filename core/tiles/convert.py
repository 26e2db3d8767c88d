"""Conversion between dtypes, by rules that never change a value silently.

Sums of 64-bit integers may need more than 64 bits. Each value is split as ``high * 2**32 + low``,
with a low half of 32 bits, and the halves are summed separately in int64. Neither sum can overflow
before 2**31 values, more than are ever summed into one.
"""

from __future__ import annotations

import math
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


_HINT = "Request a wider dtype, or casting=clip or wrap"


def convert(values: Array, out: Array, casting: Casting) -> None:
    """Convert values to the dtype of ``out``, an array of the same shape.

    Conversion to a floating dtype rounds to nearest, whatever ``casting``. Conversion to an
    integer dtype depends on it:

    * ``safe`` accepts only values the dtype holds exactly,
    * ``clip`` rounds towards zero and limits the result to the range of the dtype,
    * ``wrap`` rounds towards zero and keeps the lowest bits.

    None of them makes a number of NaN.

    Complex to real requires imaginary parts of zero if ``safe``, and drops them otherwise.

    Raises:
        CastingError: the dtype cannot hold a value, or wrapping is not defined for it.
    """
    if values.dtype.kind == "c" and out.dtype.kind != "c":
        values = _real(values, casting)
    if out.dtype.kind in "fc" or np.can_cast(values.dtype, out.dtype, "safe"):
        with np.errstate(over="ignore", invalid="ignore"):
            np.copyto(out, values, casting="unsafe")
        return
    if values.dtype.kind == "f" and values.dtype.itemsize == 2:  # noqa: PLR2004
        values = values.astype(np.float32)  # its range is smaller than that of most integers
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise CastingError(
            f"a value is NaN, which {out.dtype.name} cannot hold",
            hint="Request a floating dtype, such as <f4",
        )
    if out.dtype.kind == "b":
        _to_bool(values, out, casting)
        return
    if casting == "clip":
        _clip(values, out)
    elif values.dtype.kind == "f":
        _to_integers(values, out, casting)
    else:
        if casting == "safe":
            _check_range(values, out.dtype)
        np.copyto(out, values, casting="unsafe")


def _real(values: Array, casting: Casting) -> Array:
    if casting == "safe" and np.any(values.imag):
        raise CastingError(
            "a value has an imaginary part, which a real type cannot hold",
            hint="Request a complex dtype, or casting=clip to drop it",
        )
    return values.real


def _to_bool(values: Array, out: Array, casting: Casting) -> None:
    if casting == "safe" and not np.all((values == 0) | (values == 1)):
        raise CastingError("a value is neither 0 nor 1, which bool cannot hold", hint=_HINT)
    np.not_equal(values, 0, out=out)


def _check_range(values: Array, dtype: np.dtype[Any]) -> None:
    if not values.size:
        return
    limits = np.iinfo(dtype)
    low, high = int(values.min()), int(values.max())
    wrong = low if low < limits.min else high
    if low < limits.min or high > limits.max:
        raise CastingError(f"{dtype.str} cannot hold the value {wrong}", hint=_HINT)


def _clip(values: Array, out: Array) -> None:
    limits = np.iinfo(out.dtype)
    if values.dtype.kind != "f":
        np.copyto(out, _clipped_integers(values, limits), casting="unsafe")
        return
    # The largest integers have no exact float, so values at a limit are set, not cast.
    over, under = values >= float(limits.max), values <= float(limits.min)
    inside = np.where(over | under, 0, values)
    np.copyto(out, inside, casting="unsafe")
    out[over] = limits.max
    out[under] = limits.min


def _clipped_integers(values: Array, limits: np.iinfo[Any]) -> Array:
    own = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.iinfo(np.uint8)
    low, high = max(own.min, limits.min), min(own.max, limits.max)
    return np.clip(values, values.dtype.type(low), values.dtype.type(high))


def _to_integers(values: Array, out: Array, casting: Casting) -> None:
    """Convert floating values to integers: only exact ones if safe, else truncated, wrapped."""
    limits = np.iinfo(out.dtype)
    truncated = np.trunc(values)
    if casting == "safe":
        # 2**63 and 2**64 are exact floats; the largest integers below them are not.
        fits = (
            (truncated == values)
            & (truncated >= float(limits.min))
            & (truncated < float(limits.max) + 1.0)
        )
        if limits.bits < 53:  # noqa: PLR2004 - floats hold such integers exactly
            fits &= truncated <= float(limits.max)
        if not fits.all():
            wrong = values[~fits].flat[0]
            part = math.isfinite(wrong) and wrong != np.trunc(wrong)
            hint = (
                f"{_HINT.replace('wider', 'floating')}, which cut fractions off" if part else _HINT
            )
            raise CastingError(f"{out.dtype.str} cannot hold the value {wrong!s}", hint=hint)
        np.copyto(out, truncated, casting="unsafe")
        return
    if not (np.abs(truncated) < 2.0**63).all():
        raise CastingError(
            "a value is not finite or exceeds 64 bits, and cannot be wrapped",
            hint="Request casting=clip, or a floating dtype",
        )
    np.copyto(out, truncated.astype(np.int64), casting="unsafe")
