"""Order statistics of a block's samples by selection; absent samples are 0.

QELT asks for a few quantiles of each block: a dozen of perhaps a thousand samples.
Sorting them all would compute far more than is asked for, so :func:`select` is a
quicksort that follows only the segments in which a requested rank lies::

    values   [ ........ | ....................... | ...... ]
    ranks        r0              r1  r2               r3
               segment         segment             segment

A partition splits a segment, and the ranks in it, in two; a part without ranks is
left as it is. Parts that wait are on an explicit stack, because kernels cannot
recurse. Three details make it fast and safe:

* Partitioning has no branch that depends on the data (:func:`_split_below`): on
  random losses half of such branches would be mispredicted, at 15 cycles each.
* Segments of ``_SMALL`` values are insertion-sorted.
* An order made to defeat the median of three costs a bounded number of moves
  (``_PATIENCE``); after that, segments are heap-sorted.

A stream leaves out samples whose loss is zero. They are not put back: all of them
sort between the negative losses and the others, so a rank falls before, among or
after them, and :func:`order_statistics` shifts it accordingly.
"""

from __future__ import annotations

import numpy as np

from ..._jit import subkernel
from .layout import ZERO, Losses, Ranks, Scratch

_SMALL = 20
"""Below this many values insertion sort beats another partition."""

_PATIENCE = 32
"""Moves per value before a segment is heap-sorted: about twice what random data
takes for 20 ranks, and it keeps hostile orders at n log n."""

STACK = 256
"""Segments that can wait: each split of the ranks adds one, and there are fewer
splits than ranks; partitions that hold one rank do not nest."""


@subkernel
def _insertion_sort(values: Losses, low: int, high: int) -> None:
    for i in range(low + 1, high):
        x = values[i]
        j = i
        while j > low and values[j - 1] > x:
            values[j] = values[j - 1]
            j -= 1
        values[j] = x


@subkernel
def _sift_down(values: Losses, low: int, root: int, count: int) -> None:
    x = values[low + root]
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and values[low + child] < values[low + child + 1]:
            child += 1
        if values[low + child] <= x:
            break
        values[low + root] = values[low + child]
        root = child
    values[low + root] = x


@subkernel
def _heap_sort(values: Losses, low: int, high: int) -> None:
    count = high - low
    for root in range(count // 2 - 1, -1, -1):
        _sift_down(values, low, root, count)
    for last in range(count - 1, 0, -1):
        x = values[low]
        values[low] = values[low + last]
        values[low + last] = x
        _sift_down(values, low, ZERO, last)


@subkernel
def _split_below(values: Losses, low: int, high: int, pivot: float, spare: Losses) -> int:
    """Move values below the pivot to the front; return where the others begin.

    Both targets are written for every value and only the counters depend on the
    comparison, so that there is no branch to mispredict.
    """
    front = low
    back = 0
    for i in range(low, high):
        x = values[i]
        values[front] = x
        spare[back] = x
        below = int(x < pivot)
        front += below
        back += 1 - below
    for i in range(back):
        values[front + i] = spare[i]
    return front


@subkernel
def _median_of_three(values: Losses, low: int, high: int) -> float:
    a = values[low]
    b = values[(low + high) >> 1]
    c = values[high - 1]
    return max(min(a, b), min(max(a, b), c))  # type: ignore[no-any-return]


@subkernel
def _first_rank_from(ranks: Ranks, begin: int, end: int, place: int) -> int:
    """First index in [begin, end) whose rank is at or above ``place``."""
    while begin < end:
        middle = (begin + end) >> 1
        if ranks[middle] < place:
            begin = middle + 1
        else:
            end = middle
    return begin


@subkernel
def select(values: Losses, ranks: Ranks, begin: int, end: int, spare: Losses, stack: Ranks) -> None:
    """Reorder values so that each requested rank holds the value a full sort would put there.

    Args:
        values: shape (n,), no NaN; reordered.
        ranks: ascending, 0-based; those in [begin, end) are requested.
        begin: first requested.
        end: one past the last requested.
        spare: scratch, shape (n,) or more.
        stack: scratch, shape (4 * STACK,).
    """
    moves = _PATIENCE * len(values)
    stack[0], stack[1], stack[2], stack[3] = 0, len(values), begin, end
    depth = 1
    while depth > 0:
        depth -= 1
        low = stack[4 * depth]
        high = stack[4 * depth + 1]
        begin = stack[4 * depth + 2]
        end = stack[4 * depth + 3]
        while begin < end:
            if high - low <= _SMALL:
                _insertion_sort(values, low, high)
                break
            moves -= high - low
            if moves < 0 or depth + 1 >= STACK:
                _heap_sort(values, low, high)
                break
            pivot = _median_of_three(values, low, high)
            middle = _split_below(values, low, high, pivot, spare)
            if middle == low:
                # The pivot is the least value: put its equals in place.
                low = _split_below(values, low, high, np.nextafter(pivot, np.inf), spare)
                begin = _first_rank_from(ranks, begin, end, low)
                continue
            cut = _first_rank_from(ranks, begin, end, middle)
            if cut < end and cut > begin:
                stack[4 * depth] = middle
                stack[4 * depth + 1] = high
                stack[4 * depth + 2] = cut
                stack[4 * depth + 3] = end
                depth += 1
                high = middle
                end = cut
            elif cut == end:
                high = middle
            else:
                low = middle


@subkernel
def order_statistics(
    losses: Losses, negatives: int, samples: int, ranks: Ranks, scratch: Scratch
) -> None:
    """Fill ``scratch.picked`` with the values at the given ranks of a block's samples.

    Args:
        losses: samples that are present, shape (n,), n <= samples.
        negatives: how many of them are below zero; -0.0 may be counted.
        samples: how many there are with the absent ones, which are 0.
        ranks: requested ranks of the sorted whole, 0-based, ascending.
        scratch: its work, ranks, picked and stack are overwritten.
    """
    n = len(losses)
    values = scratch.work[:n]
    for i in range(n):
        values[i] = losses[i]
    absent = samples - n
    shifted = scratch.ranks
    for i in range(len(ranks)):
        # The absent zeros lie between the negatives and everything else.
        rank = ranks[i]
        if rank >= negatives + absent:
            rank -= absent
        elif rank >= negatives:
            rank = negatives - 1
        shifted[i] = rank
    begin = ZERO
    if negatives == 0:
        begin = _first_rank_from(ranks, begin, len(ranks), absent)
    select(values, shifted, begin, len(ranks), scratch.work[n:], scratch.stack)
    for i in range(len(ranks)):
        rank = ranks[i]
        if negatives <= rank < negatives + absent:
            scratch.picked[i] = 0.0
        else:
            scratch.picked[i] = values[shifted[i]]
