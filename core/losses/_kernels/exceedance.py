"""EPT and PSEPT of summaries: which losses make each curve, and its points.

======  ==================  ===============================================  ==========
EPCalc  name                losses of the curve, for each summary            years M
======  ==================  ===============================================  ==========
1       mean damage         numerical mean of each period                    P
2       full uncertainty    every sample of every period                     P x samples
3       per-sample mean     mean over samples of their curves                P
4       sample mean         mean over samples of each period                 P
(PSEPT)                     one sample of every period: a curve each         P
======  ==================  ===============================================  ==========

Each is drawn twice: of the largest loss of a period (OEP), and of the sum of its losses (AEP).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from .curves import (
    Places,
    Points,
    Work,
    append,
    find_places,
    put,
    put_all,
    put_read,
    read_places,
    read_weighted,
    sort_descending,
)
from .groups import Cells
from .layout import ZERO
from .ordering import copy

OEP = 1
AEP = 3

MEAN_DAMAGE = 1
FULL = 2
PER_SAMPLE_MEAN = 3
SAMPLE_MEAN = 4
PER_SAMPLE = 5
"""Column of the choice for PSEPT."""


class Inputs(NamedTuple):
    """What the curves are computed with; constant over a run."""

    samples: int
    weights: Floats
    """Of the periods, shape (periods,); empty if they are equally likely."""
    by_period: Places
    """Of curves of periods."""
    by_sample: Places
    """Of curves of every sample of every period."""
    by_weight: bool
    """TVaR by weight rather than by count."""
    choice: npt.NDArray[np.uint8]
    """Requested curves: row 0 OEP, row 1 AEP; by EPCalc, and PER_SAMPLE; shape (2, 6)."""


class Curve(NamedTuple):
    """Scratch for the curves of samples and means."""

    starts: Indices
    """First loss of each sample, shape (samples + 2,)."""
    seen: npt.NDArray[np.uint8]
    """1 for each sample that has a row, shape (samples + 1,)."""
    values: Floats
    """Losses by sample; as long as the most cells of a summary, as those that follow."""
    years: Indices
    """Period of each, if years have weights; else empty."""
    means: Floats
    """Sums over samples: of the losses of a rank, or at the return periods."""
    levels: Floats
    """Shape (return periods,), as those that follow."""
    befores: Floats
    totals: Floats
    counts: Indices
    unused: npt.NDArray[np.uint8]
    """1 for each period; 0 for those of a curve while it is drawn. Shape (periods,)."""


@subkernel
def _draw(
    n: int,
    places: Places,
    scale: float,
    inputs: Inputs,
    label: int,
    kind: int,
    points: Points,
    tails: Points,
    work: Work,
    unused: npt.NDArray[np.uint8],
) -> None:
    """Write the curve of the first n values."""
    weights = inputs.weights
    if len(places.returns) == 0:
        sort_descending(n, work, len(weights) > 0)
        by_weight = inputs.by_weight
        put_all(n, places.years, scale, weights, by_weight, label, kind, points, tails, work)
        return
    if len(weights):
        sort_descending(n, work, True)
        read_weighted(n, places.returns, scale, weights, unused, inputs.by_weight, work)
    else:
        find_places(n, places, work)
        read_places(places, inputs.by_weight, work)
    put_read(places, label, kind, points, tails, work)


@subkernel
def _value(cells: Cells, k: int, kind: int) -> float:
    return cells.largest[k] if kind == OEP else cells.sums[k]


@subkernel
def _keep(n: int, loss: float, period: int, keeps_zero: bool, weighted: bool, work: Work) -> int:
    """Take a loss into the values of a curve; return how many there are."""
    if not (loss > 0.0 or keeps_zero):
        return n
    work.values[n] = max(loss, 0.0)
    if weighted:
        work.years[n] = period
    return n + 1


@subkernel
def _gather(
    cells: Cells,
    begin: int,
    end: int,
    kind: int,
    calculation: int,
    inputs: Inputs,
    work: Work,
    unused: npt.NDArray[np.uint8],
) -> int:
    """Collect the losses of a curve of the groups [begin, end); -1 if there is not even a row.

    A row is a loss above 0 or, at return periods, any loss of the stream: zeros count as
    years used where years have weights.
    """
    weighted = len(inputs.weights) > 0
    at_returns = len(inputs.by_period.returns) > 0
    keeps_zero = weighted and at_returns
    n = ZERO
    rows = ZERO
    for group in range(begin, end):
        period = int(cells.periods[group])
        first = cells.starts[group]
        last = cells.starts[group + 1]
        if last > first and cells.samples[first] == 0:
            if calculation == MEAN_DAMAGE:
                last = first + 1
            else:
                first += 1
        elif calculation == MEAN_DAMAGE:
            continue
        before = n
        if calculation == SAMPLE_MEAN:
            total = 0.0
            for k in range(first, last):
                total += max(_value(cells, k, kind), 0.0)
            if last > first:
                n = _keep(n, total / inputs.samples, period, keeps_zero, weighted, work)
        else:
            for k in range(first, last):
                loss = _value(cells, k, kind)
                n = _keep(n, loss, period, keeps_zero, weighted, work)
        if n > before or (at_returns and last > first):
            rows += 1
            if keeps_zero:
                unused[period - 1] = 0
    return n if rows else -1


@subkernel
def _restore(cells: Cells, begin: int, end: int, unused: npt.NDArray[np.uint8]) -> None:
    if len(unused):
        for group in range(begin, end):
            unused[cells.periods[group] - 1] = 1


@subkernel
def _draw_one(
    cells: Cells,
    begin: int,
    end: int,
    kind: int,
    calculation: int,
    inputs: Inputs,
    points: Points,
    tails: Points,
    work: Work,
    unused: npt.NDArray[np.uint8],
) -> None:
    """Write a curve of an EPCalc other than the mean of samples' curves."""
    n = _gather(cells, begin, end, kind, calculation, inputs, work, unused)
    if n >= 0:
        full = calculation == FULL
        places = inputs.by_sample if full else inputs.by_period
        scale = 1.0 / inputs.samples if full else 1.0
        _draw(n, places, scale, inputs, calculation, kind, points, tails, work, unused)
        append(points, tails)
    _restore(cells, begin, end, unused)


@subkernel
def _sort_by_sample(
    cells: Cells,
    begin: int,
    end: int,
    kind: int,
    inputs: Inputs,
    curve: Curve,
) -> None:
    """Collect the losses of each sample, in the order of periods."""
    weighted = len(inputs.weights) > 0
    at_returns = len(inputs.by_period.returns) > 0
    keeps_zero = weighted and at_returns
    starts = curve.starts
    starts[:] = 0
    curve.seen[:] = 0
    for k in range(cells.starts[begin], cells.starts[end]):
        sample = cells.samples[k]
        loss = _value(cells, k, kind)
        if at_returns or loss > 0.0:
            curve.seen[sample] = 1
        starts[sample + 1] += int(loss > 0.0 or keeps_zero)
    curve.seen[0] = 0
    for sample in range(1, len(starts)):
        starts[sample] += starts[sample - 1]
    for group in range(begin, end):
        period = int(cells.periods[group])
        for k in range(cells.starts[group], cells.starts[group + 1]):
            loss = _value(cells, k, kind)
            if keeps_zero and cells.samples[k] > 0:
                curve.unused[period - 1] = 0
            if loss > 0.0 or keeps_zero:
                sample = cells.samples[k]
                place = starts[sample]
                curve.values[place] = max(loss, 0.0)
                if weighted:
                    curve.years[place] = period
                starts[sample] = place + 1
    # Each start has moved to the next sample's.
    for sample in range(len(starts) - 1, 0, -1):
        starts[sample] = starts[sample - 1]
    starts[0] = 0


@subkernel
def _add_to_mean(n: int, inputs: Inputs, curve: Curve, work: Work) -> None:
    """Add the curve of a sample, as it has been drawn, to those of the mean."""
    if len(inputs.by_period.returns) == 0:
        for j in range(n):
            curve.means[j] += work.values[j]
        return
    for k in range(len(curve.levels)):
        if len(inputs.weights):
            if work.present[k] & 1:
                curve.means[k] += work.at[k]
                curve.counts[k] += 1
        else:
            curve.levels[k] += work.levels[k]
            curve.befores[k] += work.befores[k]
            curve.totals[k] += work.totals[k]


@subkernel
def _draw_mean(
    most: int, kind: int, inputs: Inputs, points: Points, tails: Points, curve: Curve, work: Work
) -> None:
    """Write the mean of the samples' curves, of ``most`` losses at the most, and clear it."""
    places = inputs.by_period
    samples = inputs.samples
    if len(places.returns) == 0:
        if len(inputs.weights) == 0:
            for j in range(most):
                work.values[j] = curve.means[j] / samples
            _draw(
                most, places, 1.0, inputs, PER_SAMPLE_MEAN, kind, points, tails, work,
                curve.unused,
            )
        curve.means[:most] = 0.0
    elif len(inputs.weights):
        for k in range(len(places.returns)):
            if curve.counts[k]:
                loss = curve.means[k] / curve.counts[k]
                put(points, PER_SAMPLE_MEAN, kind, places.returns[k], loss)
            curve.means[k] = 0.0
            curve.counts[k] = 0
    else:
        for k in range(len(places.returns)):
            work.levels[k] = curve.levels[k] / samples
            work.befores[k] = curve.befores[k] / samples
            work.totals[k] = curve.totals[k] / samples
            curve.levels[k] = 0.0
            curve.befores[k] = 0.0
            curve.totals[k] = 0.0
        read_places(places, inputs.by_weight, work)
        put_read(places, PER_SAMPLE_MEAN, kind, points, tails, work)
    append(points, tails)


@subkernel
def _draw_samples(
    cells: Cells,
    begin: int,
    end: int,
    kind: int,
    inputs: Inputs,
    ept: Points,
    psept: Points,
    tails: Points,
    curve: Curve,
    work: Work,
) -> None:
    """Write the curves of the samples, and of their mean, as far as they are requested."""
    row = inputs.choice[kind >> 1]
    _sort_by_sample(cells, begin, end, kind, inputs, curve)
    weighted = len(inputs.weights) > 0
    most = ZERO
    rows = ZERO
    written = psept.count[0]
    for sample in range(1, inputs.samples + 1):
        if not curve.seen[sample]:
            continue
        first = curve.starts[sample]
        n = curve.starts[sample + 1] - first
        copy(curve.values[first : first + n], work.values)
        if weighted:
            copy(curve.years[first : first + n], work.years)
        _draw(n, inputs.by_period, 1.0, inputs, sample, kind, psept, tails, work, curve.unused)
        if not row[PER_SAMPLE]:
            psept.count[0] = written
            tails.count[0] = 0
        if row[PER_SAMPLE_MEAN]:
            _add_to_mean(n, inputs, curve, work)
        most = max(most, n)
        rows += 1
    append(psept, tails)
    if rows and row[PER_SAMPLE_MEAN]:
        _draw_mean(most, kind, inputs, ept, tails, curve, work)
    _restore(cells, begin, end, curve.unused)


@kernel
def draw_curves(
    cells: Cells,
    groups: Indices,
    inputs: Inputs,
    ept: Points,
    psept: Points,
    tails: Points,
    curve: Curve,
    work: Work,
    ept_ends: Indices,
    psept_ends: Indices,
) -> None:
    """Write the requested curves of some summaries.

    Args:
        cells: sums and largest losses of the summaries.
        groups: first group of each summary, shape (summaries + 1,).
        inputs: constant over the run.
        ept: receives points by EPCalc; large enough, as the others.
        psept: receives points by sample.
        tails: scratch for TVaR.
        curve: scratch.
        work: scratch.
        ept_ends: receives the end of each summary's points, shape (summaries,).
        psept_ends: the same of ``psept``.
    """
    ept.count[0] = 0
    psept.count[0] = 0
    tails.count[0] = 0
    for s in range(len(groups) - 1):
        begin = groups[s]
        end = groups[s + 1]
        for calculation in range(MEAN_DAMAGE, SAMPLE_MEAN + 1):
            for kind in (OEP, AEP):
                row = inputs.choice[kind >> 1]
                if calculation == PER_SAMPLE_MEAN:
                    if row[PER_SAMPLE_MEAN] or row[PER_SAMPLE]:
                        _draw_samples(
                            cells, begin, end, kind, inputs, ept, psept, tails, curve, work
                        )
                elif row[calculation]:
                    _draw_one(
                        cells, begin, end, kind, calculation, inputs, ept, tails, work,
                        curve.unused,
                    )
        ept_ends[s] = ept.count[0]
        psept_ends[s] = psept.count[0]
