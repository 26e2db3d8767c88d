"""Stable sorting by integer keys, digit by digit, in slices.

A sort of millions of keys takes a second, and must end with whoever asked for it: so the kernel
sorts some items at a time, and the budget is asked in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ._jit import kernel, subkernel
from .arrays import Array, Indices
from .budget import current
from .slices import SLICE, slices, touched

_ZERO = cast("int", np.int64(0))
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


@subkernel
def lower_bound(ordered: Array, value: int, begin: int, end: int) -> int:
    """First index in [begin, end) of an ascending array whose element is at or above a value."""
    while begin < end:
        middle = (begin + end) >> 1
        if ordered[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@subkernel
def place_of(ident: int, ids: npt.NDArray[np.int32]) -> int:
    """Index of an id in ascending ones; -1 if it is not among them."""
    low = lower_bound(ids, ident, _ZERO, len(ids))
    return low if low < len(ids) and ids[low] == ident else -1


PROGRESS = 3
"""Length of the progress of a sort; zeros before it begins."""
_PASS = 0
"""Index in the progress: 0 while digits are counted, then 1 more than the digit to sort by; after
the last digit, the result is brought back where it is not in its place."""
_ITEM = 1
"""First item that the pass has not come to."""
_OUTSIDE = 2
"""Whether the items are in the spare arrays."""


@subkernel
def _sort_few(keys: Indices, values: Indices) -> None:
    paired = len(values) > 0
    for i in range(1, len(keys)):
        key = keys[i]
        value = values[i] if paired else _ZERO
        j = i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            if paired:
                values[j] = values[j - 1]
            j -= 1
        keys[j] = key
        if paired:
            values[j] = value


@subkernel
def _count(keys: Indices, counts: Indices) -> None:
    """Count each digit of keys."""
    for i in range(len(keys)):
        key = keys[i]
        for d in range(_DIGITS):
            counts[d * _SIZE + ((key >> (d * _BITS)) & (_SIZE - 1))] += 1


@subkernel
def _begin_digit(of_digit: Indices, digit: int, count: int) -> bool:
    """Turn counts into first places; return False if all keys have the same digit."""
    if of_digit[digit] == count:
        return False
    begin = _ZERO
    for k in range(_SIZE):
        counted = of_digit[k]
        of_digit[k] = begin
        begin += counted
    return True


@subkernel
def _move(
    keys: Indices,
    values: Indices,
    shift: int,
    of_digit: Indices,
    to_keys: Indices,
    to_values: Indices,
) -> None:
    """Bring items to their places by one digit."""
    paired = len(values) > 0
    for i in range(len(keys)):
        key = keys[i]
        k = (key >> shift) & (_SIZE - 1)
        to_keys[of_digit[k]] = key
        if paired:
            to_values[of_digit[k]] = values[i]
        of_digit[k] += 1


@kernel
def sort_slice(
    keys: Indices,
    values: Indices,
    spare_keys: Indices,
    spare_values: Indices,
    counts: Indices,
    progress: Indices,
    most: int,
) -> bool:
    """Sort pairs by key, ascending; pairs of equal keys stay in their order. Or keys alone.

    A radix sort from the least digit on. Digits that all keys share cost nothing, so that
    narrow keys sort in a pass or two.

    Args:
        keys: not negative, shape (n,).
        values: shape (n,); empty to sort keys alone.
        spare_keys: scratch, shape (n,) or more.
        spare_values: scratch, shape (n,) or more.
        counts: scratch, shape (COUNTS,).
        progress: where the last call stopped, shape (PROGRESS,).
        most: items after which a pass stops.

    Returns:
        Whether it has to be called again, as it is not sorted yet.
    """
    n = len(keys)
    if n <= _FEW:
        _sort_few(keys, values)
        return False
    if progress[_PASS] == 0 and progress[_ITEM] == 0:
        counts[:] = 0
    while progress[_PASS] <= _DIGITS + 1:
        begin = progress[_ITEM]
        end = min(begin + most, n)
        first, last = min(begin, len(values)), min(end, len(values))
        of_pass = progress[_PASS]
        shift = (of_pass - 1) * _BITS
        of_digit = counts[(of_pass - 1) * _SIZE : of_pass * _SIZE]
        outside = progress[_OUTSIDE] != 0
        source, target = (spare_keys, keys) if outside else (keys, spare_keys)
        moved, to = (spare_values, values) if outside else (values, spare_values)
        if of_pass == 0:
            _count(keys[begin:end], counts)
        elif of_pass > _DIGITS:
            if outside:
                copy(source[begin:end], target[begin:end])
                copy(moved[first:last], to[first:last])
        elif begin == 0 and not _begin_digit(of_digit, (keys[0] >> shift) & (_SIZE - 1), n):
            progress[_PASS] += 1
            continue
        else:
            _move(source[begin:end], moved[first:last], shift, of_digit, target, to)
        if end < n:
            progress[_ITEM] = end
            return True
        progress[_ITEM] = 0
        progress[_PASS] += 1
        if 0 < of_pass <= _DIGITS:
            progress[_OUTSIDE] = int(not outside)
    return False


def sort_pairs(keys: Indices, values: Indices, stage: str) -> None:
    """Sort pairs by key in place, ascending; pairs of equal keys stay in their order.

    Args:
        keys: not negative, shape (n,).
        values: shape (n,); empty to sort keys alone.
        stage: what is working, for the message.

    Raises:
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    spare_keys, spare_values = touched(len(keys), stage), touched(len(values), stage)
    counts = np.zeros(COUNTS, np.int64)
    progress = np.zeros(PROGRESS, np.int64)
    budget = current()
    budget.check(stage)
    while sort_slice(keys, values, spare_keys, spare_values, counts, progress, SLICE):
        budget.check(stage)


def order_of(keys: npt.NDArray[np.integer[Any]], stage: str) -> tuple[Indices, Indices]:
    """Keys in order, and where each was; equal keys stay in their order.

    Args:
        keys: not negative, shape (n,).
        stage: what is working, for the message.

    Raises:
        WorkStoppedError: as :func:`sort_pairs`.
    """
    ordered, order = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    for a, b in slices(len(keys), stage):
        ordered[a:b], order[a:b] = keys[a:b], np.arange(a, b)
    sort_pairs(ordered, order, stage)
    return ordered, order


def starts_of(ordered: Indices) -> Indices:
    """Where each distinct value of ordered ones begins, and their number; ascending from 0."""
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return np.concatenate([np.zeros(min(len(ordered), 1), np.int64), changes, [len(ordered)]])


def _changes(ordered: Indices, stage: str) -> Iterator[tuple[int, int, npt.NDArray[np.bool_]]]:
    """Yield begin and end of slices of ordered values, and which differ from the one before."""
    for a, b in slices(len(ordered), stage):
        new = np.empty(b - a, np.bool_)
        new[0] = a == 0 or ordered[a] != ordered[a - 1]
        np.not_equal(ordered[a + 1 : b], ordered[a : b - 1], out=new[1:])
        yield a, b, new


def _joined(pieces: Sequence[Indices], stage: str) -> Indices:
    """Pieces that are no longer than a slice, one after the other."""
    joined = np.empty(sum(map(len, pieces)), np.int64)
    at = 0
    for piece in pieces:
        current().check(stage)
        joined[at : at + len(piece)] = piece
        at += len(piece)
    return joined


def distinct(values: npt.NDArray[np.integer[Any]], stage: str) -> tuple[Indices, Indices]:
    """Distinct values, ascending, and how often each is there.

    Args:
        values: not negative, shape (n,).
        stage: what is working, for the message.

    Raises:
        WorkStoppedError: as :func:`sort_pairs`.
    """
    ordered = np.empty(len(values), np.int64)
    for a, b in slices(len(values), stage):
        ordered[a:b] = values[a:b]
    sort_pairs(ordered, ordered[:0], stage)
    found, starts = [ordered[:0]], [ordered[:0]]
    for a, b, new in _changes(ordered, stage):
        found.append(ordered[a:b][new])
        starts.append(np.flatnonzero(new) + a)
    ends = _joined([*starts, np.array([len(ordered)])], stage)
    counts = np.empty(len(ends) - 1, np.int64)
    for a, b in slices(len(counts), stage):
        np.subtract(ends[a + 1 : b + 1], ends[a:b], out=counts[a:b])
    return _joined(found, stage), counts


def numbered(values: npt.NDArray[np.integer[Any]], stage: str) -> tuple[Indices, Indices]:
    """Distinct values, ascending, and the index of each value among them.

    Args:
        values: not negative, shape (n,).
        stage: what is working, for the message.

    Raises:
        WorkStoppedError: as :func:`sort_pairs`.
    """
    ordered, order = order_of(values, stage)
    numbers = touched(len(order), stage)
    found = [ordered[:0]]
    number = -1
    for a, b, new in _changes(ordered, stage):
        of_slice = number + np.cumsum(new)
        numbers[order[a:b]] = of_slice
        number = int(of_slice[-1])
        found.append(ordered[a:b][new])
    return _joined(found, stage), numbers
