"""How far estimates can be trusted: bands on the AAL and on points of curves.

Two things are random in a loss set. Its *periods* are a draw of all that could happen: replicates
draw as many periods again, with replacement and with all their samples and their weights. Its
*samples* are a draw of what each event could do: their noise is told apart, from estimates that
leave one of up to 20 groups of samples out (the jackknife).

A band of a VaR has the quantiles of the replicates. Means of heavy tails need more: those of
the AAL and of a TVaR are studentised, each replicate by its own standard error (bootstrap-t).
Both use the quantiles of Student's t for the number of periods in the tail, as few periods know
their own spread badly. Beyond a tenth of the periods replicates tell nothing: a VaR has the
interval between two order statistics, as far as there are such, which holds whatever the
distribution, and a TVaR has none. There are few order statistics in a tail, so the interval
mostly reaches more than the confidence asked for, and is the same for several.

The band is of the periods, with the samples that there are. As far as samples of all periods err
alike, their noise is not in it: the variance of an estimate is at most that of the band plus the
square of the noise.

Periods with weights count as 1 / sum of squared weights equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Floats, Rows
from ..budget import Scope, current
from ..losses._kernels.cells import Cells
from ..losses.finishing import ParallelMap
from ..losses.reports.exceedance import AEP, OEP
from ..losses.reports.report import SUMMARY_ID, Report, amount, as_rows, integer, number
from ..rng import Key, below, derive
from ..sorting import order_of
from ._kernels.resampling import resample
from .assembling import picked
from .combining import Subject
from .joining import check_return_periods, weights_of
from .losses import Calendar, Int32s

RESAMPLED, ORDERED, NONE = 1, 2, 0
BANDS = Report(
    name="bands",
    title="Uncertainty of averages and curves",
    columns=(
        SUMMARY_ID,
        integer("EPType", "0 AAL, 1 OEP, 2 OEP TVaR, 3 AEP, 4 AEP TVaR"),
        number("ReturnPeriod", 6, "Years in which the loss is exceeded once; 0 for the AAL"),
        amount("Loss", 6, "Estimate, of all samples"),
        amount("Low", 6, "Lower end of the band; NaN if it is not determined"),
        amount("High", 6, "Upper end; NaN if it is not determined"),
        integer("Method", "1 periods resampled, 2 order statistics, 0 not determined"),
        amount(
            "SampleError",
            6,
            "Standard error due to the samples, by the jackknife; NaN of a single one",
        ),
        number("SamplesNeeded", 1, "For the tolerance; NaN if it is not determined"),
        number("Confidence", 6, "That of the band: of order statistics, what it reaches"),
    ),
    scope="run",
)
_GROUPS = 20
"""Groups of samples, of which one is left out."""
_ENOUGH = 10
"""Periods in a tail from which on replicates tell its band."""
_STEP = 1 << 21
"""Cells of replicates that a kernel reads at a time."""
_CELL_BYTES = 80
_PERIOD_BYTES = 72
"""What the draws of one replicate, and what is read of them, take for each period."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Which bands are wanted."""

    return_periods: tuple[int, ...] = ()
    """Years, from 1 on."""
    confidence: float = 0.95
    """Between 0 and 1."""
    tolerance: float = 0.05
    """Part of the estimate by which noise of samples may move it, at this confidence."""
    replicates: int = 400
    seed: int = 0


class _Curve(NamedTuple):
    """Cells of a group with a loss, from the largest on."""

    values: Floats
    periods: Int32s
    """Index of the period of each."""
    groups: Int32s
    """Group of its sample."""
    masses: Floats


class _Estimates(NamedTuple):
    """AAL and points, each of every replicate."""

    averages: Floats
    """AAL and its standard error, shape (replicates, 2)."""
    points: list[Floats]
    """Of OEP and AEP, each of shape (replicates, 3, return periods)."""


def bands(
    subject: Subject,
    doubt: Doubt,
    apply: ParallelMap[Any, Any] = map,
    cells: Cells | None = None,
) -> Iterator[Rows]:
    """Yield the rows of ``BANDS`` of each group, in their order.

    Args:
        subject: what groups lose.
        doubt: bands wanted.
        apply: calls a function for each task, in any number of threads.
        cells: of all groups, in place of those of the subject, such as its net losses.

    Raises:
        InputError: a sum is beyond float64, or a return period beyond all periods.
        WorkStoppedError: a group does not fit, or nobody waits for the result.
    """
    for group in range(subject.groups):
        with Scope("bands"):
            if cells is None:
                of_group = subject.cells(group, group + 1, apply)
            else:
                of_group = _of_group(cells, group)
            current().hold("bands", _CELL_BYTES * len(of_group.samples))
            rows = bands_of(of_group, subject.calendar, subject.samples, doubt, apply)
        rows["SummaryId"] = group + 1
        yield rows


def _of_group(cells: Cells, group: int) -> Cells:
    a, b = np.searchsorted(cells.summaries, [group, group + 1])
    part = slice(cells.starts[a], cells.starts[b])
    starts, samples = cells.starts[a : b + 1] - part.start, cells.samples[part]
    of_periods = cells.summaries[a:b], cells.periods[a:b], starts
    return Cells(*of_periods, samples, cells.sums[part], cells.largest[part])


def bands_of(
    cells: Cells, calendar: Calendar, samples: int, doubt: Doubt, apply: ParallelMap[Any, Any] = map
) -> Rows:
    """Return the rows of ``BANDS`` of one group, whose number is 0.

    Args:
        cells: of the group.
        calendar: periods and their weights.
        samples: len_sample.
        doubt: bands wanted.
        apply: calls a function for each task, in any number of threads.

    Raises:
        InputError: a return period is beyond all periods and samples.
        WorkStoppedError: nobody waits for the result.
    """
    check_return_periods(doubt.return_periods, calendar, samples)
    current().hold("bands", _PERIOD_BYTES * calendar.periods)
    weights = weights_of(calendar)
    returns = np.array(sorted(set(doubt.return_periods), reverse=True), np.float64)
    groups = min(_GROUPS, samples)
    curves = [_sorted(cells, v, weights, samples, groups) for v in (cells.largest, cells.sums)]
    count = calendar.periods
    base = _estimate(curves, weights, returns, np.ones((1, count)))
    key = derive(doubt.seed, "portfolio", "bands")
    most = max(len(curves[0].values), count)
    step = max(_STEP // most, 1)

    def draw(first: int) -> _Estimates:
        multiples = _drawn(key, first, min(first + step, doubt.replicates), count)
        return _estimate(curves, weights, returns, multiples)

    drawn = list(apply(draw, range(0, doubt.replicates, step)))
    replicates = _Estimates(
        np.concatenate([part.averages for part in drawn]),
        [np.concatenate(parts) for parts in zip(*(part.points for part in drawn), strict=True)],
    )
    noise = _sample_errors(curves, samples, groups, returns)
    return _rows(curves, weights, returns, base, replicates, noise, samples, doubt)


def _sorted(cells: Cells, losses: Floats, weights: Floats, samples: int, groups: int) -> _Curve:
    kept = np.flatnonzero(cells.samples > 0)
    # The bits of losses order as they do.
    _, order = order_of(_HIGHEST - picked(losses, kept, "bands").view(np.int64), "bands")
    kept = picked(kept, order, "bands")
    periods = np.repeat(cells.periods - np.int32(1), np.diff(cells.starts))
    periods = picked(periods, kept, "bands")
    of_samples = ((picked(cells.samples, kept, "bands") - 1) % groups).astype(np.int32)
    masses = picked(weights, periods, "bands") / samples
    return _Curve(picked(losses, kept, "bands"), periods, of_samples, masses)


_HIGHEST = 0x7FFFFFFFFFFFFFFF


def _drawn(key: Key, first: int, last: int, periods: int) -> Floats:
    """How often replicates draw each period, shape (replicates, periods)."""
    multiples = np.empty((last - first, periods))
    for k in range(last - first):
        current().check("bands")
        begin = (first + k) * periods
        indices = np.arange(begin, begin + periods, dtype=np.uint64)
        multiples[k] = np.bincount(below(key, indices, periods), minlength=periods)
    return multiples


def _estimate(
    curves: list[_Curve], weights: Floats, returns: Floats, multiples: Floats
) -> _Estimates:
    """AAL and points of replicates of the periods."""
    annual = curves[1]
    means = np.bincount(annual.periods, annual.values * annual.masses, len(weights))
    totals = multiples @ weights
    averages = multiples @ means / totals
    squares = multiples @ np.square(means)
    squares -= 2 * averages * (multiples @ (means * weights))
    squares += np.square(averages) * (multiples @ np.square(weights))
    errors = np.sqrt(np.maximum(squares, 0.0)) / totals
    points = [_read(c, c.periods, multiples, weights, returns) for c in curves]
    return _Estimates(np.stack([averages, errors], axis=1), points)


def _read(
    curve: _Curve, owners: Int32s, multiples: Floats, shares: Floats, returns: Floats
) -> Floats:
    points = np.empty((len(multiples), 3, len(returns)))
    count = multiples.shape[1]
    above, listed = np.zeros(2 * count), np.empty(count, np.int64)
    for k in range(len(multiples)):
        current().check("bands")
        row = slice(k, k + 1)
        inputs = (curve.values, owners, curve.masses, multiples[row], shares, returns)
        resample(*inputs, above, listed, points[row])
    return points


class _Noise(NamedTuple):
    """Standard errors due to the samples; NaN of a single one."""

    average: float
    points: list[Floats]
    """Of VaR and TVaR, of OEP and AEP; each of shape (2, return periods)."""


def _sample_errors(curves: list[_Curve], samples: int, groups: int, returns: Floats) -> _Noise:
    """Jackknife over groups of samples, whose sizes differ by one at the most."""
    if samples == 1:
        return _Noise(math.nan, [np.full((2, len(returns)), math.nan)] * 2)
    shares = np.bincount(np.arange(samples) % groups, minlength=groups) / samples
    multiples = 1.0 - np.eye(groups)
    annual = curves[1]
    parts = np.bincount(annual.groups, annual.values * annual.masses, groups)
    average = _jackknife(((multiples @ parts) / (multiples @ shares))[:, None])
    points = [_read(c, c.groups, multiples, shares, returns)[:, :2] for c in curves]
    return _Noise(float(average[0]), [_jackknife(p) for p in points])


def _jackknife(estimates: Floats) -> Floats:
    groups = len(estimates)
    return np.sqrt((groups - 1) * np.var(estimates, axis=0))  # type: ignore[no-any-return]


def _rows(  # noqa: PLR0913, PLR0917 - all that is known of a group
    curves: list[_Curve],
    weights: Floats,
    returns: Floats,
    base: _Estimates,
    replicates: _Estimates,
    noise: _Noise,
    samples: int,
    doubt: Doubt,
) -> Rows:
    effective = round(1 / float(np.square(weights).sum()), 6)
    average = float(base.averages[0, 0])
    ends = _studentised(base.averages[0], replicates.averages.T, effective, doubt.confidence)
    confidence = doubt.confidence
    found: list[tuple[float, ...]] = [(0, 0, average, *ends, confidence, RESAMPLED, noise.average)]
    for curve, kind, points, drawn, errors in zip(
        curves, (OEP, AEP), base.points, replicates.points, noise.points, strict=True
    ):
        for k, years in enumerate(returns.tolist()):
            level, tail, error = points[0, :, k].tolist()
            exceeding = effective / years
            if exceeding >= _ENOUGH:
                of_level = (*_between(drawn[:, 0, k], exceeding, confidence), confidence, RESAMPLED)
                pairs = drawn[:, 1:, k].T
                studentised = _studentised((tail, error), pairs, exceeding, confidence)
                of_tail = (*studentised, confidence, RESAMPLED)
            else:
                of_level = _ordered(curve, effective, years, confidence)
                of_tail = (math.nan, math.nan, math.nan, NONE)
            found.append((kind, years, level, *of_level, errors[0, k]))
            found.append((kind + 1, years, tail, *of_tail, errors[1, k]))
    columns: list[Any] = [np.array(column) for column in zip(*found, strict=True)]
    reached = columns.pop(5)
    needed = _samples_needed(columns[2], columns[6], samples, doubt)
    return as_rows(BANDS.dtype(8), [0, *columns, needed, reached])


def _between(values: Floats, count: float, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, _levels(count, confidence))
    return float(low), float(high)


def _studentised(
    base: Sequence[float] | Floats, drawn: Floats, count: float, confidence: float
) -> tuple[float, float]:
    """Bootstrap-t, of an estimate and its standard error and those of replicates."""
    estimate, error = float(base[0]), float(base[1])
    estimates, errors = drawn
    if not (error > 0 and (errors > 0).all()):
        # Without a spread, as where a limit caps all losses, the replicates say what there is.
        return _between(estimates, count, confidence)
    low, high = np.quantile((estimates - estimate) / errors, _levels(count, confidence))
    return max(estimate - float(high) * error, 0.0), estimate - float(low) * error


def _levels(count: float, confidence: float) -> Floats:
    """Levels of quantiles that a band of so many observations is between."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    degrees = max(count - 1, 1.0)
    # Student's quantile, by the expansion of Cornish and Fisher.
    t = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    low = NormalDist().cdf(-t * math.sqrt(1 + 1 / degrees))
    return np.array([low, 1 - low])


def _ordered(
    curve: _Curve, periods: float, years: float, confidence: float
) -> tuple[float, float, float, int]:
    """Interval between two order statistics of so many periods, and the confidence it reaches.

    The number of periods above the true loss is binomial. Cells of a period are not independent
    of each other: as if they were all alike, which makes the interval too wide if anything.
    """
    count, rare = max(round(periods), 1), (1 - confidence) / 2
    rank, reached, missed = 0, 0.0, 0.0
    log_odds = -math.log(years - 1) if years > 1 else math.inf
    high = math.nan
    if not math.isfinite(log_odds):
        return math.nan, math.nan, math.nan, NONE
    while reached < 1 - rare and rank <= count:
        logs = math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1)
        reached += math.exp(logs + rank * log_odds + count * math.log1p(-1 / years))
        rank += 1
        if reached <= rare:
            # Fewer than so many periods above it are rare.
            high, missed = _at(curve, rank / count), reached
    low = _at(curve, rank / count)
    return low, high, min(reached, 1.0) - missed, ORDERED


def _at(curve: _Curve, mass: float) -> float:
    """Loss down to which cells have a probability."""
    place = int(np.searchsorted(np.cumsum(curve.masses), mass * (1 - 1e-12)))
    return float(curve.values[place]) if place < len(curve.values) else 0.0


def _samples_needed(estimates: Floats, errors: Floats, samples: int, doubt: Doubt) -> Floats:
    z = NormalDist().inv_cdf((1 + doubt.confidence) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = samples * np.square(z * errors / (doubt.tolerance * estimates))
    needed[~np.isfinite(needed)] = np.nan
    rounded: Floats = np.ceil(np.maximum(needed, 1.0))
    return rounded
