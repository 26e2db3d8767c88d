"""Stable sorting by integer keys, digit by digit."""

from __future__ import annotations

from ..._jit import kernel, subkernel
from ...arrays import Array, Indices
from .layout import ZERO

_BITS = 11
_SIZE = 1 << _BITS
_DIGITS = 6
"""Enough for keys of 63 bits."""
COUNTS = _DIGITS * _SIZE
"""Length of the scratch for counts."""
_FEW = 24


@subkernel
def copy(source: Array, target: Array) -> None:
    """Copy an array over another of its length; numba's own way allocates."""
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def sort_pairs(
    keys: Indices, values: Indices, spare_keys: Indices, spare_values: Indices, counts: Indices
) -> None:
    """Sort pairs by key, ascending; pairs of equal keys stay in their order. Or keys alone.

    A radix sort from the least digit on. Digits that all keys share cost nothing, so that
    narrow keys sort in a pass or two.

    Args:
        keys: not negative, shape (n,).
        values: shape (n,); empty to sort keys alone.
        spare_keys: scratch, shape (n,) or more.
        spare_values: scratch, shape (n,) or more.
        counts: scratch, shape (COUNTS,).
    """
    n = len(keys)
    paired = len(values) > 0
    if n <= _FEW:
        for i in range(1, n):
            key = keys[i]
            value = values[i] if paired else ZERO
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                if paired:
                    values[j] = values[j - 1]
                j -= 1
            keys[j] = key
            if paired:
                values[j] = value
        return
    counts[:] = 0
    for i in range(n):
        key = keys[i]
        for d in range(_DIGITS):
            counts[d * _SIZE + ((key >> (d * _BITS)) & (_SIZE - 1))] += 1
    inside = True
    for d in range(_DIGITS):
        shift = d * _BITS
        of_digit = counts[d * _SIZE : (d + 1) * _SIZE]
        if of_digit[(keys[0] >> shift) & (_SIZE - 1)] == n:
            continue
        begin = 0
        for k in range(_SIZE):
            count = of_digit[k]
            of_digit[k] = begin
            begin += count
        from_keys, from_values = (keys, values) if inside else (spare_keys, spare_values)
        to_keys, to_values = (spare_keys, spare_values) if inside else (keys, values)
        for i in range(n):
            key = from_keys[i]
            k = (key >> shift) & (_SIZE - 1)
            to_keys[of_digit[k]] = key
            if paired:
                to_values[of_digit[k]] = from_values[i]
            of_digit[k] += 1
        inside = not inside
    if not inside:
        copy(spare_keys[:n], keys)
        copy(spare_values[: len(values)], values)
