"""Order statistics of a block's samples by selection; absent samples are 0.

QELT asks for a few quantiles of each block: a dozen of perhaps a thousand samples. Sorting
them all would compute far more than is asked for, and even a quickselect, which follows only
the parts in which a requested rank lies, moves every value several times and mispredicts a
branch at each step. Losses that are not negative have a shortcut: their bit patterns order
like the losses, so integer arithmetic can tell roughly where a loss belongs::

    bits      least |......................................................| largest
    buckets         [ 12 | 31 | 50 | 61 | 44 | 30 | 17 | 9 | 4 | 2 | 0 | 1 ]   counts
    ranks                           r0 r1           r2                   r3
    kept                           [ 61 ]         [ 17 ]               [ 1 ]

1. :func:`_count_buckets` counts the values in ``_BUCKETS`` buckets of equal width.
2. :func:`_choose_buckets` finds the buckets with a requested rank, and what a rank becomes
   among the values of these buckets alone. Bits grow with the logarithm of a loss, so even
   heavy-tailed losses spread over the buckets.
3. :func:`_keep_chosen` packs these values, a twentieth of all, without a branch.
4. :func:`_sort_by_rank` counts for each of them how many are below, in loops that vectorise.

If too many remain, as where most losses are equal, or if some are negative, :func:`select`
does the rest: a quicksort that follows only the segments in which a requested rank lies.
Parts that wait are on an explicit stack, because kernels cannot recurse. Three details make
it fast and safe:

* Partitioning has no branch that depends on the data (:func:`_split_below`): on
  random losses half of such branches would be mispredicted, at 15 cycles each.
* Segments of ``_SMALL`` values are insertion-sorted.
* An order made to defeat the median of three costs a bounded number of moves
  (``_PATIENCE``); after that, segments are heap-sorted.

A few ranks of losses that are not negative are found faster yet, by counting alone: see
``separating``.

Every step only compares and moves values, so all ways give the same result.

A stream leaves out samples whose loss is zero. They are not put back: all of them
sort between the negative losses and the others, so a rank falls before, among or
after them, and :func:`order_statistics` shifts it accordingly.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ...sorting import lower_bound
from .layout import ZERO, Bits, Losses, Ranks, Scratch, Sidx
from .separating import FEW, pick_few

# See unpacking.py.
_U = np.uintp

BUCKETS = 256
"""Enough to leave a twentieth of a thousand losses, few enough to go through."""

TALLIES = 4
"""Tables that counts are spread over, so that equal buckets in a row do not wait for each other."""

RANKED = 64
"""Up to this many values are sorted by their ranks."""

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

    Both targets are written for every value and only the counter depends on the
    comparison, so that there is no branch to mispredict.
    """
    segment = values[low:high]
    front = ZERO
    for i in range(high - low):
        x = segment[i]
        segment[_U(front)] = x
        spare[_U(i - front)] = x
        front += int(x < pivot)
    others = segment[front:]
    for i in range(len(others)):
        others[i] = spare[i]
    return low + front


@subkernel
def _median_of_three(values: Losses, low: int, high: int) -> float:
    a = values[low]
    b = values[(low + high) >> 1]
    c = values[high - 1]
    return max(min(a, b), min(max(a, b), c))  # type: ignore[no-any-return]


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
                begin = lower_bound(ranks, low, begin, end)
                continue
            cut = lower_bound(ranks, middle, begin, end)
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


@inlined
def _place_in_buckets(bits: Bits, buckets: Sidx) -> None:
    """Tell the bucket of each value; all are of one sign."""
    least = bits[0]
    largest = bits[0]
    for i in range(len(bits)):
        least = min(least, bits[i])
        largest = max(largest, bits[i])
    spread = np.int64(largest) - np.int64(least)
    shift = 0
    while (spread >> shift) >= BUCKETS:
        shift += 1
    by = least - least + shift
    for i in range(len(bits)):
        buckets[i] = (bits[i] - least) >> by


@inlined
def _count_buckets(buckets: Sidx, counts: Sidx) -> None:
    """Count the values of each bucket in the first table of ``counts``."""
    for b in range(TALLIES * BUCKETS):
        counts[b] = 0
    first = counts[:BUCKETS]
    second = counts[BUCKETS : 2 * BUCKETS]
    third = counts[2 * BUCKETS : 3 * BUCKETS]
    fourth = counts[3 * BUCKETS : 4 * BUCKETS]
    n = len(buckets)
    whole = n - n % TALLIES
    for i in range(0, whole, TALLIES):
        first[_U(buckets[_U(i)])] += 1
        second[_U(buckets[_U(i) + _U(1)])] += 1
        third[_U(buckets[_U(i) + _U(2)])] += 1
        fourth[_U(buckets[_U(i) + _U(3)])] += 1
    for i in range(whole, n):
        first[_U(buckets[i])] += 1
    for b in range(BUCKETS):
        first[b] += second[b] + third[b] + fourth[b]


@inlined
def _choose_buckets(counts: Sidx, chosen: Sidx, ranks: Ranks, begin: int, end: int) -> None:
    """Set ``chosen`` for buckets that hold a rank in [begin, end), else clear it.

    These ranks become those among the values of chosen buckets.
    """
    for b in range(BUCKETS):
        chosen[b] = 0
    below = 0
    skipped = 0
    bucket = 0
    while begin < end:
        count = counts[bucket]
        if ranks[begin] < below + count:
            chosen[bucket] = 1
            while begin < end and ranks[begin] < below + count:
                ranks[begin] -= skipped
                begin += 1
        else:
            skipped += count
        below += count
        bucket += 1


@inlined
def _keep_chosen(bits: Bits, buckets: Sidx, chosen: Sidx) -> int:
    """Move the values of chosen buckets to the front; return how many they are."""
    k = ZERO
    for i in range(len(bits)):
        bits[_U(k)] = bits[i]
        k += chosen[_U(buckets[i])]
    return k


@inlined
def _narrow(bits: Bits, ranks: Ranks, begin: int, end: int, scratch: Scratch) -> int:
    """Move values to the front among which the requested ranks lie; return how many.

    ``ranks`` in [begin, end) become those among these values.
    """
    buckets = scratch.buckets[: len(bits)]
    counts = scratch.counts
    chosen = counts[TALLIES * BUCKETS :]
    _place_in_buckets(bits, buckets)
    _count_buckets(buckets, counts)
    _choose_buckets(counts, chosen, ranks, begin, end)
    return _keep_chosen(bits, buckets, chosen)


@inlined
def _sort_by_rank(bits: Bits, places: Sidx, spare: Bits) -> None:
    """Sort values of one sign: each goes where as many are below it as there are.

    Equal values count as below those after them, so that no two have the same place.
    """
    n = len(bits)
    for i in range(n):
        places[i] = 0
    for j in range(n):
        x = bits[j]
        for i in range(n):
            places[i] += np.int32(bits[i] > x) | (np.int32(bits[i] == x) & np.int32(i > j))
    for i in range(n):
        spare[_U(places[i])] = bits[i]
    for i in range(n):
        bits[i] = spare[i]


@inlined
def _select_from(n: int, negatives: int, begin: int, end: int, scratch: Scratch) -> None:
    """Put the values of ranks [begin, end) of scratch in place among n in its work memory."""
    ranks = scratch.ranks
    if negatives == 0 and begin < end:
        bits = scratch.work_bits
        if n > RANKED:
            n = _narrow(bits[:n], ranks, begin, end, scratch)
        if n <= RANKED:
            _sort_by_rank(bits[:n], scratch.buckets, bits[n : 2 * n])
            return
    select(scratch.work[:n], ranks, begin, end, scratch.work[n:], scratch.stack)


@inlined
def order_statistics(
    losses: Losses, negatives: int, samples: int, ranks: Ranks, scratch: Scratch
) -> None:
    """Fill ``scratch.picked`` with the values at the given ranks of a block's samples.

    Args:
        losses: samples that are present, shape (n,), n <= samples.
        negatives: how many of them are below zero, -0.0 counted.
        samples: how many there are with the absent ones, which are 0.
        ranks: requested ranks of the sorted whole, 0-based, ascending.
        scratch: all but its block, pairs and marks is overwritten.
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
        begin = lower_bound(ranks, absent, begin, len(ranks))
        for i in range(begin):
            scratch.picked[i] = 0.0
        if begin == len(ranks):
            return
        if len(ranks) - begin <= FEW and pick_few(n, ranks, begin, absent, scratch):
            return
    _select_from(n, negatives, begin, len(ranks), scratch)
    for i in range(len(ranks)):
        rank = ranks[i]
        if negatives <= rank < negatives + absent:
            scratch.picked[i] = 0.0
        else:
            scratch.picked[i] = values[shifted[i]]
