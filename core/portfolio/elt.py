"""Loss sets simulated from an event loss table: rate, mean, standard deviations, exposed value.

**Severity.** The loss of a row is beta distributed between 0 and the exposed value, with the mean
of the row and the standard deviation sd_independent + sd_correlated. Its parameters are those of
moments (Analyze Re, "ELT Simulation Methodology"), with m and s over the exposed value::

    n = m (1 - m) / s² - 1,  a = m n,  b = (1 - m) n

A beta distribution exists where s² < m (1 - m); other rows are refused, not bent. Rows of an event
depend on each other through a Gaussian copula of one factor: the normal score of a row is
w Z + sqrt(1 - w²) e, where Z is common to the event in a sample, e is the row's own, and w is the
share of sd_correlated in the standard deviation. So rows that are all correlated are large
together, and independent rows know nothing of each other. Sample 0 has the means of the table.

**Frequency.** The number of events in a period is Poisson distributed with the sum of the rates as
its mean, or negative binomial with the same mean and ``dispersion`` times as large a variance; each
of them is an event by its share of the rates. There are no dates.

Random numbers are functions of the seed and of event and sample, or of the period; those of a row
are of its labels (or SummaryId) and amounts, too. So no row changes the losses of another, tables
of the same events and rates share their occurrences, and rows of two tables are as independent as
those of one: a table cut in two by its labels has the losses of the whole.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Indices, Words
from ..budget import current
from ..errors import InputError
from ..losses.inputs import SummaryInfo
from ..losses.inputs.rows import INT_MAX
from ..rng import Key, bits, derive, uniform
from ..slices import slices
from ._kernels.beta import beta_losses
from .assembling import LossRows, check_weights, occurrences_of, order_by, picked, starts_by
from .columns import Field, Table
from .losses import Calendar, LossTable
from .tables import Given, Imported, count_periods, require_unique, summaries_of

_AMOUNTS = ("rate", "mean", "sd_independent", "sd_correlated", "exposed_value")
FIELDS = (
    Field("EventId", needed=True),
    Field("SummaryId"),
    *(Field(name, "number", needed=True) for name in _AMOUNTS),
)
"""Columns of an event loss table; others are dimensions."""
MAX_SAMPLES = 100_000
"""Samples that are simulated."""
SAMPLES = ((100, 1000), (10_000, 100), (INT_MAX, 10))
"""Rows up to which there are so many samples, if their number is not given: few events do not even
out what the samples of one are off by, so that there are at least 100,000 losses."""
_OFF = 0.01
"""Part of the AAL by which that of what is drawn may be off unsaid."""
_DRAWS = 1 << 12
"""Losses that are drawn in some ten milliseconds."""
_PERIODS = 1 << 18
MAX_COUNTS = 1 << 20
"""Events of a period at the most."""
_NEGLIGIBLE = 42
"""Logarithm of one over a chance that no random number tells from 0."""
_OCCURRENCE_BYTES = 120
_DRAW_BYTES = 32
_HALF = 2.0**-54
_LEAST_SUM = 1e-9
"""a + b below which a loss is all or nothing, up to rounding."""


class _Shapes(NamedTuple):
    """What is drawn of each row, shape (rows,)."""

    ratios: Floats
    """Mean over exposed value."""
    sums: Floats
    """a + b; 0 where the loss is certain."""
    shared: Floats
    """Weight of what is common to the event."""
    exposed: Floats


def of_rates(table: Table, details: Given) -> Imported:
    """Simulate a loss set.

    Args:
        table: with ``FIELDS``.
        details: periods, samples, seed, frequency and dispersion.

    Raises:
        InputError: a row has no beta distribution, an event has two rates, or what is given is
            out of range.
    """
    periods, samples = count_periods(table, details), _count_samples(details, table.rows)
    weights = check_weights(details.weights, periods)
    shapes = _shapes(table)
    summaries, dimensions = summaries_of(table, details)
    rows = _rows(table, summaries)
    starts = starts_by(rows.events)
    key = derive(details.seed, "event loss table")
    rates = _rates(table, rows, starts)
    happening, events = _happen(details, rates, periods, key)
    drawn = np.zeros(len(starts) - 1, np.bool_)
    drawn[events] = True
    dates = np.zeros_like(happening)
    occurrences = occurrences_of(happening, picked(rows.events[starts[:-1]], events), dates)
    chosen = np.repeat(drawn, np.diff(starts)) & (rows.losses > 0)
    kept = rows.take(chosen)
    if not len(kept.events):
        hint = "Simulate more periods, or look at rates and means"
        raise InputError("no event with a loss happens", hint=hint, source=table.source)
    left_out = {"events that never happen": int((~drawn).sum())}
    places = _places(table, kept, dimensions, key.child("rows"))
    sampled = _draw(kept, _Shapes(*(v[kept.numbers] for v in shapes)), samples, places, key)
    calendar = Calendar(periods, occurrences, weights, dated=False)
    shares = weights[happening - 1] if len(weights) else np.full(len(events), 1 / periods)
    often = (rates, np.bincount(events, shares, len(rates)))
    expected, happens = (np.repeat(of_event, np.diff(starts)) for of_event in often)
    sums = np.add.reduceat(sampled.losses, sampled.losses_at) - kept.losses
    with np.errstate(all="ignore"):
        aals = [expected @ rows.losses, happens @ rows.losses, happens[chosen] @ sums / samples]
    notes = [*_often(rates), *_off(*map(float, aals), samples=samples)]
    return Imported(sampled, calendar, dimensions, samples, left_out, notes=notes)


def _count_samples(details: Given, rows: int) -> int:
    usual = next(samples for most, samples in SAMPLES if rows <= most)
    samples = usual if details.samples is None else details.samples
    if not 1 <= samples <= MAX_SAMPLES:
        message = f"the number of samples, {samples}, is not in 1 to {MAX_SAMPLES}"
        raise InputError(message, hint="Ten to a hundred are usual")
    return samples


def _rows(table: Table, summaries: Indices) -> LossRows:
    """Rows in order of event and summary, with their means as losses."""
    zeros = np.zeros(table.rows, np.int64)
    events, means = table.integers("EventId", 0), table.amounts("mean")
    rows = LossRows(np.arange(table.rows), events, summaries, zeros, means, zeros, zeros)
    rows = rows.take(order_by(events << 32 | summaries))
    require_unique(table, rows, (rows.events, rows.summaries))
    return rows


def _rates(table: Table, rows: LossRows, starts: Indices) -> Floats:
    """Rate of each event."""
    rates = picked(table.amounts("rate"), rows.numbers)
    first = np.repeat(rates[starts[:-1]], np.diff(starts))
    if (rates != first).any():
        row = int(np.argmax(rates != first))
        text = f"event {rows.events[row]} has the rate {rates[row]}, and {first[row]} before"
        hint = "A rate is that of the event, whatever the row"
        raise table.refuse(int(rows.numbers[row]), text, hint)
    return rates[starts[:-1]]


def _shapes(table: Table) -> _Shapes:
    """Parameters of the distributions, in the order of the file."""
    means, exposed = table.amounts("mean"), table.amounts("exposed_value")
    independent, correlated = table.amounts("sd_independent"), table.amounts("sd_correlated")
    hint = "A loss is at most the exposed value"
    table.require("mean", means <= exposed, "is above exposed_value", hint)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratios = np.nan_to_num(means / exposed)
        spread = independent / exposed + correlated / exposed
        certain = independent + correlated == 0
        sums = np.where(certain, 0.0, ratios * (1 - ratios) / spread / spread - 1)
        shared = np.where(certain, 0.0, correlated / exposed / spread)
    usable = certain | ((sums > _LEAST_SUM) & np.isfinite(sums))
    if not usable.all():
        row = int(np.argmin(usable))
        spread_of_row = float(independent[row]) + float(correlated[row])
        most = math.sqrt(ratios[row] * (1 - ratios[row])) * float(exposed[row])
        text = f"no beta distribution has the mean {means[row]:.9g} and the standard deviation"
        hint = f"sd_independent + sd_correlated has to be below {most:.9g}, and above 1e-150 or 0"
        raise table.refuse(row, f"{text} {spread_of_row:.9g} on {exposed[row]:.9g}", hint)
    return _Shapes(ratios, sums, shared, exposed)


def _happen(details: Given, rates: Floats, periods: int, key: Key) -> tuple[Indices, Indices]:
    """Period and index of the event of each occurrence."""
    reach = np.cumsum(rates)
    total = float(reach[-1])
    if not 0 < total * periods <= INT_MAX:
        message = f"{total * periods:.9g} events are expected in {periods} periods"
        raise InputError(message, hint="Simulate another number of periods, or correct the rates")
    budget = current()
    budget.hold("event loss table", int(_OCCURRENCE_BYTES * total * periods))
    counts_below = count_table(details, total)
    last = int(np.flatnonzero(rates)[-1])
    periods_key, events_key = key.child("periods"), key.child("events")
    found, happening, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for a, b in slices(periods, "event loss table", _PERIODS):
        draws = uniform(periods_key, np.arange(a, b, dtype=np.uint64))
        counts = np.searchsorted(counts_below, draws, side="right")
        happening.append(np.repeat(np.arange(a + 1, b + 1), counts))
        for c, d in slices(len(happening[-1]), "event loss table", _PERIODS):
            draws = uniform(events_key, np.arange(count + c, count + d, dtype=np.uint64))
            found.append(np.minimum(np.searchsorted(reach, draws * total, side="right"), last))
        count += len(happening[-1])
    return np.concatenate(happening), np.concatenate(found)


def count_table(details: Given, mean: float) -> Floats:
    """Chance that a period has at most 0, 1, 2 ... events."""
    dispersion = 1.0 if details.frequency == "poisson" else details.dispersion or 0.0
    binomial = details.frequency != "poisson"
    if binomial and not (1 < dispersion < np.inf):
        message = f"the dispersion of a negative binomial frequency is {details.dispersion}"
        raise InputError(message, hint="It is variance over mean, above 1; of 1 it is Poisson")
    most = mean + 12 * np.sqrt(mean * dispersion) + _NEGLIGIBLE * dispersion + 50
    if not most <= MAX_COUNTS:
        message = f"a period may have {most:.3g} events"
        raise InputError(message, hint=f"It may have {MAX_COUNTS}: correct the rates")
    counts = np.arange(1, int(most) + 1)
    if binomial:
        size = mean / (dispersion - 1)
        steps = np.log((counts - 1 + size) / counts * (mean / (mean + size)))
        first = -size * np.log1p(mean / size)
    else:
        steps, first = np.log(mean / counts), -mean
    chances = np.exp(np.concatenate(([first], first + np.cumsum(steps))))
    below: Floats = np.cumsum(chances) / chances.sum()
    return below


def _off(table: float, periods: float, drawn: float, *, samples: int) -> list[str]:
    """Tell of an AAL that is another one than that of the table."""
    parts = (("periods", periods - table), ("samples", drawn - periods))
    more = " and ".join(name for name, part in parts if abs(part) > _OFF * table)
    if not more:
        return []
    figures = f"{table:.6g} by rates and means, {periods:.6g} with the events that the periods have"
    outcome = f"{drawn:.6g} ({drawn / table - 1:+.1%}) with their {samples} samples"
    return [f"The AAL is {figures}, and {outcome}: more {more} come nearer"]


def _often(rates: Floats) -> list[str]:
    """Tell of events that happen more often than any of a catalogue does."""
    if not (often := int(np.count_nonzero(rates > 1))):
        return []
    many = f"{often} of {len(rates)} events have a rate above 1, up to {rates.max():.6g}, so that"
    return [f"{many} {rates.sum():.6g} happen in a period on average: is rate a return period?"]


def _places(table: Table, rows: LossRows, dimensions: SummaryInfo | None, key: Key) -> Words:
    """Where the random numbers of each row are, by what it is and not where it is; shape (n,)."""
    own = rows.summaries.astype(np.uint64)
    if table.dimensions and dimensions is not None:
        # Columns come in any order, and summaries are numbered as they come.
        columns = sorted(dimensions.columns.items(), key=lambda pair: pair[0].lower())
        named = np.empty(len(dimensions.summary_ids), np.uint64)
        for a, b in slices(len(named), "event loss table", _DRAWS):
            for k, labels in enumerate(zip(*(c[a:b].tolist() for _, c in columns), strict=True), a):
                text = repr(
                    [(n.lower(), each) for (n, _), each in zip(columns, labels, strict=True)]
                )
                octets = hashlib.blake2b(text.encode(), digest_size=8).digest()
                named[k] = int.from_bytes(octets, "little")
        own = named[rows.summaries - 1]
    amounts = [table.amounts(name) for name in _AMOUNTS[1:]]
    for a, b in slices(len(own), "event loss table", _DRAWS):
        of_row = [column[rows.numbers[a:b]].view(np.uint64) for column in amounts]
        for values in (rows.events[a:b].astype(np.uint64), *of_row):
            own[a:b] = bits(key, own[a:b]) ^ values
        own[a:b] = bits(key, own[a:b])
    return own


def _draw(rows: LossRows, shapes: _Shapes, samples: int, places: Words, key: Key) -> LossTable:
    """Losses of rows, each with its mean as sample 0."""
    width = samples + 1
    current().hold("event loss table", _DRAW_BYTES * width * len(rows.events))
    losses = np.empty((len(rows.events), width))
    losses[:, 0] = rows.losses
    common = _scores(key.child("events of samples"))
    own = _scores(key.child("rows of samples"))
    for a, b in slices(len(rows.events) * samples, "event loss table", _DRAWS):
        at, sample = np.divmod(np.arange(a, b), samples)
        numbers = (sample + 1).astype(np.uint64)
        share = shapes.shared[at]
        scores = share * common((rows.events[at] << 32).astype(np.uint64) | numbers)
        scores += np.sqrt((1 - share) * (1 + share)) * own(places[at] ^ numbers)
        out = np.empty(b - a)
        beta_losses(shapes.ratios[at], shapes.sums[at], shapes.exposed[at], scores, out)
        losses[at, sample + 1] = out
    return _without_zeros(rows, losses)


def _scores(key: Key) -> Callable[[Words], Floats]:
    """Draws of a standard normal distribution by index (Box and Muller)."""
    radius, angle = key.child("radius"), key.child("angle")

    def draw(indices: Words) -> Floats:
        # In the middle of its interval, a random number is above 0.
        lengths = np.sqrt(-2 * np.log(uniform(radius, indices) + _HALF))
        scores: Floats = lengths * np.cos(2 * np.pi * uniform(angle, indices))
        return scores

    return draw


def _without_zeros(rows: LossRows, losses: Floats) -> LossTable:
    """Losses above 0 of rows in order, shape (rows, samples + 1), as a table."""
    above = losses > 0
    counts = np.count_nonzero(above, axis=1)
    starts = np.concatenate(([0], np.cumsum(counts)))
    first = starts_by(rows.events)
    return LossTable(
        rows.events[first[:-1]].astype(np.int32),
        first,
        rows.summaries.astype(np.int32),
        starts[:-1],
        starts[:-1].copy(),
        counts.astype(np.int32),
        np.broadcast_to(np.arange(losses.shape[1], dtype=np.int32), losses.shape)[above],
        losses[above],
    )
