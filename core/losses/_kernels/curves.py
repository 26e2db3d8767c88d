"""Exceedance curves: losses at return periods, and the mean of the losses above them.

A curve is of M equally likely years (or of years with weights), of which n have a loss. Sorted
from the largest, loss i is exceeded once in M/i years. At a requested return period r the curve
is read at the first i with M/i <= r: the loss there, or the straight line from the one before.
TVaR is the mean of the losses down to there.

Without weights i is known before any loss is, so a curve at return periods needs two order
statistics for each of them, and the sum above: it is selected, not sorted. Losses are brought
into buckets by their bits first, which grow with the logarithm of a loss; only the few buckets in
which a rank lies are looked into (``quantiles.select``).
With weights it depends on which years have the large losses, so the curve is sorted: by loss and
then as the losses came, by period and sample, so that ties have an order.

Kernels take many curves at once: ``starts`` says where the losses of each begin. Which rows
there are, and what they hold beyond the last loss, follows OasisLMF's ``lecpy``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from ...sorting import sort_slice
from .layout import ZERO
from .quantiles import select
from .spreading import spread
from .tails import EXPONENTS, FRACTION, LOWER, SPLIT, add_losses, total_of

_SIGN = 0x7FFFFFFFFFFFFFFF
_LIFT = 0.0001
"""Return periods this much above that of the largest loss are still read, as the peer does."""

_SLACK = 1e-9
"""Part of a return period by which sums of weights may miss it, where TVaR, ours, is by weight."""
_WORTH_SPREADING = 100
"""Losses of a curve from which on they are brought into buckets first."""

# See unpacking.py.
_U = np.uintp

LEVEL = 0
BEFORE = 1
TOTAL = 2
"""Loss i, loss i - 1 and the sum of the losses before i."""

LOSS = 1
TAIL = 2
"""Bits: there is a loss at a return period, and a TVaR."""


class Weighing(NamedTuple):
    """Years with weights; constant over a run, but for ``unused``."""

    weights: Floats
    """Weights of the periods, shape (periods,)."""
    scale: float
    """Scale of the weights."""
    by_weight: bool
    """TVaR by weight rather than by count."""
    unused: npt.NDArray[np.uint8]
    """All 1 between summaries, shape (periods,)."""


class Sorting(NamedTuple):
    """Losses and their years, and scratch to sort them."""

    keys: Indices
    """The bits of losses, none below 0; they order as the losses do."""
    years: Indices
    """Period of each loss; empty without weights."""
    spare_keys: Indices
    spare_years: Indices
    counts: Indices
    """Shape (sorting.COUNTS,)."""
    progress: Indices
    """Shape (sorting.PROGRESS,)."""


@kernel
def flip(keys: Indices) -> None:
    """Reverse the order of the bits of losses; twice is once too many."""
    for i in range(len(keys)):
        keys[i] = _SIGN - keys[i]


@subkernel
def _sort_curve(sorting: Sorting, begin: int, end: int) -> None:
    """Sort the losses [begin, end) from the largest, with their years if there are any."""
    keys = sorting.keys[begin:end]
    n = len(keys)
    i = 1
    while i < n and keys[i - 1] >= keys[i]:
        i += 1
    if i >= n:
        # A long curve has been sorted in slices before.
        return
    flip(keys)
    years = sorting.years[begin:end] if len(sorting.years) else sorting.years[:0]
    sorting.progress[:] = 0
    sort_slice(
        keys, years, sorting.spare_keys, sorting.spare_years, sorting.counts, sorting.progress, n
    )
    flip(keys)


@subkernel
def _select_in_buckets(
    values: Floats, ranks: Indices, count: int, counts: Indices, spare: Floats, stack: Indices
) -> None:
    """Select among losses in the order of buckets, of which few hold a rank."""
    bucket = ZERO
    begin = ZERO
    k = ZERO
    while k < count:
        while counts[bucket] <= ranks[k]:
            begin = counts[bucket]
            bucket += 1
        first = k
        while k < count and ranks[k] < counts[bucket]:
            ranks[k] -= begin
            k += 1
        select(values[begin : counts[bucket]], ranks, first, k, spare, stack)


@subkernel
def _select_places(
    values: Floats,
    bits: Indices,
    first: Indices,
    ranks: Indices,
    counts: Indices,
    spare: Floats,
    stack: Indices,
    progress: Indices,
    is_spread: bool,
) -> bool:
    """Bring losses where a full sort would put them, as far as they are read; if many, to spare."""
    n = len(values)
    k = ZERO
    for j in range(len(first) - 1, -1, -1):
        i = first[j]
        if 0 < i <= n:
            ranks[k] = n - i
            k += 1
        if 1 < i <= n + 1:
            ranks[k] = n - i + 1
            k += 1
    if n < _WORTH_SPREADING:
        select(values, ranks, ZERO, k, spare, stack)
        return False
    if not is_spread:
        progress[:] = 0
        spread(values, bits, counts, spare, progress, n)
    _select_in_buckets(spare[:n], ranks, k, counts, values, stack)
    return True


@kernel
def find_levels(
    values: Floats,
    bits: Indices,
    starts: Indices,
    first: Indices,
    ranks: Indices,
    counts: Indices,
    spare: Floats,
    spare_bits: Indices,
    stack: Indices,
    progress: Indices,
    is_spread: bool,
    parts: Indices,
    found: Floats,
) -> None:
    """Find what curves of equally likely years are read from.

    Args:
        values: losses above 0; overwritten.
        bits: the same memory as integers, which order as the losses do.
        starts: first loss of each curve, shape (curves + 1,).
        first: the i that belongs to each return period, 0 where it is above M; ascending.
        ranks: scratch, shape (2 * return periods,).
        counts: scratch, shape (BUCKETS,).
        spare: scratch, as long as the longest curve.
        spare_bits: the same memory as integers.
        stack: scratch, shape (4 * quantiles.STACK,).
        progress: scratch, shape (SPREADING,).
        is_spread: whether ``spare`` has the only curve in the order of ``counts``, its buckets.
        parts: zeros, shape (2, tails.EXPONENTS).
        found: receives LEVEL, BEFORE and TOTAL; shape (curves, 3, return periods).
    """
    for curve in range(len(starts) - 1):
        losses = values[starts[curve] : starts[curve + 1]]
        n = len(losses)
        of_curve = bits[starts[curve] : starts[curve + 1]]
        scratch = (ranks, counts, spare, stack, progress, is_spread)
        if _select_places(losses, of_curve, first, *scratch):
            losses = spare[:n]
            of_curve = spare_bits[:n]
        added = ZERO
        least = EXPONENTS - 1
        most = 0
        total = 0.0
        for k in range(len(first)):
            i = first[k]
            begin, end = n - min(max(i - 1, 0), n), n - added
            for x in of_curve[begin:end]:
                least = min(least, x >> 52)
                most = max(most, x >> 52)
                add_losses(parts, x >> 52, 1, (x & FRACTION) >> SPLIT, x & LOWER)
            if begin < end:
                added = n - begin
                total = total_of(parts, least, most)
            found[curve, LEVEL, k] = losses[n - i] if 0 < i <= n else 0.0
            found[curve, BEFORE, k] = losses[n - i + 1] if 1 < i <= n + 1 else 0.0
            found[curve, TOTAL, k] = total
        parts[:, least : most + 1] = 0


@subkernel
def _interpolate(
    wanted: float, before: float, loss_before: float, period: float, loss: float
) -> float:
    """Loss at a return period between two points; there is none beside a loss of 0."""
    if loss == 0.0 or period == wanted:
        return loss
    return (wanted - period) * (loss_before - loss) / (before - period) + loss


@subkernel
def _read_beyond(
    rest: tuple[int, int, float, float, float, float],
    returns: Floats,
    weighing: Weighing,
    read: Floats,
    present: npt.NDArray[np.uint8],
) -> None:
    """Read return periods below that of the last loss: 0, with a TVaR while years are left."""
    k, i, mass, highest, mean, weighted = rest
    for year in range(len(weighing.unused)):
        if k == len(returns):
            return
        if not weighing.unused[year]:
            continue
        mass += weighing.weights[year] * weighing.scale
        tail = mean
        count = i
        while k < len(returns) and 1.0 / mass <= returns[k]:
            if returns[k] <= highest:
                tail -= tail / count
                count += 1
                read[0, k] = 0.0
                read[1, k] = weighted * returns[k] if weighing.by_weight else tail
                present[k] = LOSS | TAIL
            k += 1
        mean -= mean / i
        i += 1
    while k < len(returns):
        if returns[k] <= highest:
            read[0, k] = 0.0
            read[1, k] = weighted * returns[k]
            present[k] = LOSS | TAIL if weighing.by_weight else LOSS
        k += 1


@subkernel
def _read_curve(
    values: Floats,
    years: Indices,
    returns: Floats,
    weighing: Weighing,
    read: Floats,
    present: npt.NDArray[np.uint8],
) -> None:
    """Read a sorted curve of years with weights at the return periods."""
    k = ZERO
    i = ZERO + 1
    mass = 0.0
    highest = 0.0
    before = 0.0
    loss_before = 0.0
    mean = 0.0
    weighted = 0.0
    reach = 1.0 + _SLACK if weighing.by_weight else 1.0
    for j in range(len(values)):
        weight = weighing.weights[years[j] - 1] * weighing.scale
        if weight == 0.0:
            continue
        loss = values[j]
        above = mass
        mass += weight
        period = 1.0 / mass
        if highest == 0.0:
            highest = period + _LIFT
        tail = mean
        count = i
        while k < len(returns) and period <= returns[k] * reach:
            if returns[k] <= highest:
                at = _interpolate(max(returns[k], period), before, loss_before, period, loss)
                tail -= (tail - at) / count
                count += 1
                read[0, k] = at
                read[1, k] = tail
                if weighing.by_weight:
                    target = 1.0 / returns[k]
                    read[1, k] = (weighted + (target - above) * loss) / target
                present[k] = LOSS | TAIL
            k += 1
        if k == len(returns):
            return
        before = period
        loss_before = loss
        mean -= (mean - loss) / i
        weighted += weight * loss
        i += 1
    if highest > 0.0:
        rest = (k, i, mass, highest, mean, weighted)
        _read_beyond(rest, returns, weighing, read, present)


@subkernel
def _mark_years(periods: npt.NDArray[np.int32], unused: npt.NDArray[np.uint8], mark: int) -> None:
    for i in range(len(periods)):
        unused[periods[i] - 1] = mark


@kernel
def read_weighted(
    values: Floats,
    sorting: Sorting,
    starts: Indices,
    owners: Indices,
    used_starts: Indices,
    used: npt.NDArray[np.int32],
    returns: Floats,
    weighing: Weighing,
    read: Floats,
    present: npt.NDArray[np.uint8],
) -> None:
    """Read curves of years with weights at return periods.

    Args:
        values: losses, not negative; sorted within each curve.
        sorting: the same losses, and their years.
        starts: first loss of each curve, shape (curves + 1,).
        owners: summary of each curve, ascending, shape (curves,).
        used_starts: first of the periods of each summary, shape (summaries + 1,).
        used: periods of the summaries, whose weights a curve does not get again.
        returns: requested return periods, descending.
        weighing: of the years.
        read: receives loss and TVaR, shape (curves, 2, return periods).
        present: receives LOSS and TAIL, shape (curves, return periods); zero.
    """
    owner = -1
    for curve in range(len(starts) - 1):
        begin = starts[curve]
        end = starts[curve + 1]
        _sort_curve(sorting, begin, end)
        if owners[curve] != owner:
            if owner >= 0:
                _mark_years(used[used_starts[owner] : used_starts[owner + 1]], weighing.unused, 1)
            owner = owners[curve]
            _mark_years(used[used_starts[owner] : used_starts[owner + 1]], weighing.unused, 0)
        years = sorting.years[begin:end]
        _read_curve(values[begin:end], years, returns, weighing, read[curve], present[curve])
    if owner >= 0:
        _mark_years(used[used_starts[owner] : used_starts[owner + 1]], weighing.unused, 1)


@kernel
def list_points(
    values: Floats,
    sorting: Sorting,
    starts: Indices,
    years: int,
    weighing: Weighing,
    points: Floats,
) -> None:
    """Sort curves, and find return period and TVaR of each point.

    Args:
        values: losses above 0; sorted within each curve.
        sorting: the same losses and, if they have weights, their years.
        starts: first loss of each curve, shape (curves + 1,).
        years: M, without weights.
        weighing: of the years; without weights if its weights are empty.
        points: receives return period and TVaR, shape (2, losses); a return period of 0 is
            that of a year without weight, which is no point.
    """
    weighted_years = len(weighing.weights) > 0
    for curve in range(len(starts) - 1):
        begin = starts[curve]
        end = starts[curve + 1]
        _sort_curve(sorting, begin, end)
        mean = 0.0
        mass = 0.0
        weighted = 0.0
        i = 1
        for j in range(begin, end):
            loss = values[j]
            period = np.float64(years) / i
            if weighted_years:
                weight = weighing.weights[sorting.years[j] - 1] * weighing.scale
                if weight == 0.0:
                    points[0, j] = 0.0
                    continue
                mass += weight
                weighted += weight * loss
                period = 1.0 / mass
            mean -= (mean - loss) / i
            points[0, j] = period
            points[1, j] = weighted / mass if weighted_years and weighing.by_weight else mean
            i += 1


@kernel
def add_ranks(values: Floats, starts: Indices, sums: Floats) -> int:
    """Add the losses of equal rank of several sorted curves; return the ranks there are."""
    ranks = ZERO
    for curve in range(len(starts) - 1):
        begin = starts[curve]
        n = starts[curve + 1] - begin
        ranks = max(ranks, n)
        for j in range(n):
            sums[j] += values[begin + j]
    return ranks
