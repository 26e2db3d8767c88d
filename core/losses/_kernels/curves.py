"""Exceedance curves: losses at return periods, and the mean of the losses above them.

A curve is of M equally likely years (or of years with weights), of which n have a loss. Sorted
from the largest, loss i is exceeded once in M/i years. At a requested return period r the curve
is read at the first i with M/i <= r: the loss there, or the straight line from the one before.
TVaR is the mean of the losses down to there.

Without weights i is known before any loss is (:class:`Places`), so a curve at return periods
needs two order statistics for each of them, and the sum above: it is selected, not sorted
(``quantiles.select``). With weights it depends on which years have the large losses, so the
curve is sorted, by loss and then in the order of periods and samples: ties have an order.

Which rows there are, and what they hold beyond the last loss, follows OasisLMF's ``lecpy``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Floats, Indices
from .layout import ZERO
from .ordering import copy, sort_pairs
from .quantiles import select

_SIGN = 0x7FFFFFFFFFFFFFFF
LIFT = 0.0001
"""Return periods this much above that of the largest loss are still read, as the peer does."""


class Places(NamedTuple):
    """Where the curves of M equally likely years are read; constant over a run."""

    years: int
    """M."""
    returns: Floats
    """Requested return periods, descending, shape (k,); empty for every point."""
    first: Indices
    """The first i with M/i at or below each; 0 where it is above M. Shape (k,)."""
    follows: Indices
    """How many of those before are read at the same i, shape (k,)."""


class Points(NamedTuple):
    """Points of curves, as they are written."""

    labels: npt.NDArray[np.int32]
    """Calculation, or sample."""
    types: npt.NDArray[np.int32]
    periods: Floats
    losses: Floats
    count: Indices
    """Points written, shape (1,)."""


class Work(NamedTuple):
    """Scratch for the losses of a curve."""

    values: Floats
    """Losses of the curve; as long as the most losses of a summary, as those that follow."""
    spare: Floats
    keys: Indices
    """The same memory as ``values``."""
    spare_keys: Indices
    """The same memory as ``spare``."""
    years: Indices
    """Period of each loss, if years have weights; else empty."""
    spare_years: Indices
    counts: Indices
    """Shape (ordering.COUNTS,)."""
    ranks: Indices
    """Shape (2 * return periods,)."""
    stack: Indices
    """Shape (4 * quantiles.STACK,)."""
    levels: Floats
    """Loss i of each return period, shape (return periods,), as those that follow."""
    befores: Floats
    """Loss i - 1."""
    totals: Floats
    """Sum of the losses before i."""
    at: Floats
    """Loss at each return period."""
    tails: Floats
    """TVaR there."""
    present: Indices
    """Whether there is a loss, bit 0, and a TVaR, bit 1."""


@subkernel
def put(points: Points, label: int, kind: int, period: float, loss: float) -> None:
    """Write a point."""
    k = points.count[0]
    points.labels[k] = label
    points.types[k] = kind
    points.periods[k] = period
    points.losses[k] = loss
    points.count[0] = k + 1


@subkernel
def interpolate(
    wanted: float, before: float, loss_before: float, period: float, loss: float
) -> float:
    """Loss at a return period between two points; there is none beside a loss of 0."""
    if loss == 0.0 or period == wanted:
        return loss
    return (wanted - period) * (loss_before - loss) / (before - period) + loss


@subkernel
def sort_descending(n: int, work: Work, paired: bool) -> None:
    """Sort the first n values, not negative, from the largest; with their years if paired."""
    keys = work.keys[:n]
    for i in range(n):
        keys[i] = _SIGN - keys[i]
    if paired:
        sort_pairs(keys, work.years[:n], work.spare_keys, work.spare_years, work.counts)
    else:
        sort_pairs(keys, work.years[:0], work.spare_keys, work.spare_years, work.counts)
    for i in range(n):
        keys[i] = _SIGN - keys[i]


@subkernel
def select_places(n: int, places: Places, work: Work) -> None:
    """Bring the first n values where a full sort would, as far as the places need it."""
    k = ZERO
    for j in range(len(places.first) - 1, -1, -1):
        i = places.first[j]
        if 0 < i <= n:
            work.ranks[k] = n - i
            k += 1
        if 1 < i <= n + 1:
            work.ranks[k] = n - i + 1
            k += 1
    select(work.values[:n], work.ranks, ZERO, k, work.spare, work.stack)


@subkernel
def find_places(n: int, places: Places, work: Work) -> None:
    """Find the losses around each place among the first n values, and the sums above."""
    select_places(n, places, work)
    total = 0.0
    added = ZERO
    for k in range(len(places.first)):
        i = places.first[k]
        while added < min(i - 1, n):
            added += 1
            total += work.values[n - added]
        work.levels[k] = work.values[n - i] if 0 < i <= n else 0.0
        work.befores[k] = work.values[n - i + 1] if 1 < i <= n + 1 else 0.0
        work.totals[k] = total


@subkernel
def read_places(places: Places, by_weight: bool, work: Work) -> None:
    """Read the curve at the return periods, from the losses around each place."""
    tail = 0.0
    years = np.float64(places.years)
    for k in range(len(places.first)):
        i = places.first[k]
        work.present[k] = 3 if i > 0 else 0
        if i == 0:
            continue
        wanted = places.returns[k]
        loss = work.levels[k]
        before = years / max(i - 1, 1)
        work.at[k] = interpolate(wanted, before, work.befores[k], years / i, loss)
        if by_weight:
            exact = years / wanted
            tail = (work.totals[k] + (exact - (i - 1)) * loss) / exact
        else:
            if places.follows[k] == 0:
                tail = work.totals[k] / max(i - 1, 1)
            tail -= (tail - work.at[k]) / (i + places.follows[k])
        work.tails[k] = tail


@subkernel
def read_weighted(
    n: int,
    returns: Floats,
    scale: float,
    weights: Floats,
    unused: npt.NDArray[np.uint8],
    by_weight: bool,
    work: Work,
) -> None:
    """Read the sorted curve of the first n values, in years with weights.

    Args:
        n: values, with their years, largest first.
        returns: requested return periods, descending.
        scale: of the weights of years.
        weights: of the years, shape (periods,).
        unused: 1 for each year in which the summary has no loss, shape (periods,).
        by_weight: TVaR by weight rather than by count.
        work: receives the losses and tails.
    """
    work.present[: len(returns)] = 0
    k = ZERO
    i = 1
    mass = 0.0
    highest = 0.0
    before = 0.0
    loss_before = 0.0
    mean = 0.0
    weighted = 0.0
    for j in range(n):
        weight = weights[work.years[j] - 1] * scale
        if weight == 0.0:
            continue
        loss = work.values[j]
        above = mass
        mass += weight
        period = 1.0 / mass
        if highest == 0.0:
            highest = period + LIFT
        tail = mean
        count = i
        while k < len(returns) and period <= returns[k]:
            if returns[k] <= highest:
                at = interpolate(returns[k], before, loss_before, period, loss)
                tail -= (tail - at) / count
                count += 1
                work.at[k] = at
                work.tails[k] = tail
                if by_weight:
                    target = 1.0 / returns[k]
                    work.tails[k] = (weighted + (target - above) * loss) / target
                work.present[k] = 3
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
        _read_beyond(rest, returns, scale, weights, unused, by_weight, work)


@subkernel
def _read_beyond(
    rest: tuple[int, int, float, float, float, float],
    returns: Floats,
    scale: float,
    weights: Floats,
    unused: npt.NDArray[np.uint8],
    by_weight: bool,
    work: Work,
) -> None:
    """Read return periods below that of the last loss: 0, with a TVaR while years are left."""
    k, i, mass, highest, mean, weighted = rest
    for year in range(len(unused)):
        if k == len(returns):
            return
        if not unused[year]:
            continue
        mass += weights[year] * scale
        tail = mean
        count = i
        while k < len(returns) and 1.0 / mass <= returns[k]:
            if returns[k] <= highest:
                tail -= tail / count
                count += 1
                work.at[k] = 0.0
                work.tails[k] = weighted * returns[k] if by_weight else tail
                work.present[k] = 3
            k += 1
        mean -= mean / i
        i += 1
    while k < len(returns):
        if returns[k] <= highest:
            work.at[k] = 0.0
            work.tails[k] = weighted * returns[k]
            work.present[k] = 3 if by_weight else 1
        k += 1


@subkernel
def put_read(
    places: Places, label: int, kind: int, points: Points, tails: Points, work: Work
) -> None:
    """Write what has been read at the return periods; tails apart."""
    for k in range(len(places.returns)):
        if work.present[k] & 1:
            put(points, label, kind, places.returns[k], work.at[k])
        if work.present[k] & 2:
            put(tails, label, kind + 1, places.returns[k], work.tails[k])


@subkernel
def put_all(
    n: int,
    years: int,
    scale: float,
    weights: Floats,
    by_weight: bool,
    label: int,
    kind: int,
    points: Points,
    tails: Points,
    work: Work,
) -> None:
    """Write every point of the sorted curve of the first n values; tails apart."""
    mean = 0.0
    mass = 0.0
    weighted = 0.0
    i = 1
    for j in range(n):
        loss = work.values[j]
        period = np.float64(years) / i
        if len(weights):
            weight = weights[work.years[j] - 1] * scale
            if weight == 0.0:
                continue
            mass += weight
            weighted += weight * loss
            period = 1.0 / mass
        mean -= (mean - loss) / i
        put(points, label, kind, period, loss)
        tail = weighted / mass if by_weight and len(weights) else mean
        put(tails, label, kind + 1, period, tail)
        i += 1


@subkernel
def append(points: Points, tails: Points) -> None:
    """Move the tails to the end of the points."""
    begin = points.count[0]
    count = tails.count[0]
    end = begin + count
    copy(tails.labels[:count], points.labels[begin:end])
    copy(tails.types[:count], points.types[begin:end])
    copy(tails.periods[:count], points.periods[begin:end])
    copy(tails.losses[:count], points.losses[begin:end])
    points.count[0] = end
    tails.count[0] = 0
