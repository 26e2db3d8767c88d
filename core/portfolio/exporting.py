"""Rows of loss sets, in the columns and printed digits of the reports of streams.

What a stream knows besides its losses, the exposure, a loss set does not have: its column is left
out. Rows come in pieces of bounded size, or of one block or period that is larger.

An event loss table has the mean and the standard deviation of the samples of each block. Of that
deviation the part w is correlated, the same for all summaries of an event: with it, the variance of
the whole event is that of its samples, sum s² + w² ((sum s)² - sum s²). The exposed value is the
largest loss of the summary, or as little more as a beta distribution with the deviation needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ..arrays import Floats, Indices, Rows
from ..budget import Scope
from ..losses.inputs import Occurrence, calendar_dates
from ..losses.reports.event_tables import PIECE, SELT, SPLT
from ..losses.reports.report import EVENT_ID, SUMMARY_ID, Report, amount, as_rows, integer, number
from ..slices import grouped
from ..sorting import distinct, starts_of
from .assembling import ends_of, order_by, picked, places_of, spread, starts_by
from .joining import weights_of
from .losses import Calendar, LossTable


def _without_exposure(report: Report) -> Report:
    columns = tuple(c for c in report.columns if c.name != "ImpactedExposure")
    return replace(report, columns=columns)


_PER_BLOCK, _PER_OCCURRENCE = 40, 80
"""Bytes of the indices that rows are found by."""
_SELT, _SPLT = _without_exposure(SELT), _without_exposure(SPLT)
_IN_YEARS = ("Period", "PeriodWeight", "SummaryId", "SampleId", "Loss")
EXPORTS: Final[Mapping[str, Report]] = {
    "selt": _SELT,
    "splt": _SPLT,
    "ylt": replace(
        _SPLT,
        name="ylt",
        title="Year loss table",
        columns=tuple(c for c in _SPLT.columns if c.name in _IN_YEARS),
    ),
    "openquake": Report(
        name="openquake",
        title="OpenQuake losses of events",
        columns=(
            integer("event_id", "Event"),
            integer("year", "Period"),
            amount("loss", 6, "Loss of one sample"),
            SUMMARY_ID,
        ),
        scope="run",
    ),
    "climada": Report(
        name="climada",
        title="CLIMADA events of sampled years",
        columns=(
            integer("year", "Period"),
            integer("event_id", "Event"),
            amount("at_event", 6, "Loss of one sample, of all summaries", "f8"),
        ),
        scope="run",
    ),
    "elt": Report(
        name="elt",
        title="Event loss table",
        columns=(
            EVENT_ID,
            SUMMARY_ID,
            number("rate", 6, "Occurrences in a period, on average", "f8"),
            amount("mean", 6, "Mean of the samples", "f8"),
            amount("sd_independent", 6, "Standard deviation, of the summary alone", "f8"),
            amount("sd_correlated", 6, "Rest of it, common to the event", "f8"),
            amount("exposed_value", 6, "What the loss does not exceed", "f8"),
        ),
        scope="run",
    ),
}
"""Columns of the tables that a loss set can be written as, by the name of their form."""


OF_A_SAMPLE = ("openquake", "climada")
"""Forms that have one loss of an event, and not its samples."""
_ENOUGH = 1 + 1e-6
"""How far a deviation is below what the exposed value allows, beyond the digits of a csv."""


def export_rows(
    form: str, table: LossTable, calendar: Calendar, samples: int, sample: int = 1
) -> Iterator[Rows]:
    """Yield the rows of a table.

    Args:
        form: one of ``EXPORTS``: losses of events, of each of their occurrences in the order of
            the calendar, or added up by period, whose mean is sample -1; of one sample; or what is
            known of events by their samples.
        table: the losses.
        calendar: when they happen.
        samples: len_sample.
        sample: which one, where the form has one; 0 for the mean.

    Returns:
        Pieces, of the dtype of the report for the width of the losses.

    Raises:
        WorkStoppedError: nobody waits for the result.
    """
    if form in {"selt", "elt"}:
        rows = _of_events(table) if form == "selt" else _of_rates(table, calendar, samples)
    else:
        rows = _of_occurrences(table, calendar)
    if form == "ylt":
        rows = map(_added_up, rows)
    elif form in OF_A_SAMPLE:
        chosen = (some[some["SampleId"] == (sample or -1)] for some in rows)
        rows = map(_lines if form == "openquake" else _years, chosen)
    return _charged(table, calendar, rows)


def _charged(table: LossTable, calendar: Calendar, rows: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows, while what finds them is held."""
    indices = _PER_BLOCK * len(table.counts) + _PER_OCCURRENCE * len(calendar.occurrences.dates)
    with Scope("export", indices):
        yield from rows


def occurrence_of(calendar: Calendar) -> Occurrence:
    """The occurrence file of a calendar, the inverse of ``calendar_of``."""
    periods, events, dates = calendar.occurrences
    return Occurrence(calendar.periods, events, periods, dates, calendar.dated, calendar.granular)


def _losses(table: LossTable, blocks: Indices, report: Report) -> Rows:
    """Rows of blocks, with summary, sample and loss."""
    counts = table.counts[blocks].astype(np.int64)
    rows = np.zeros(int(counts.sum()), report.dtype(table.losses.dtype.itemsize))
    samples = table.samples[spread(table.samples_at[blocks], counts)]
    rows["SampleId"] = np.where(samples == 0, -1, samples)
    rows["Loss"] = table.losses[spread(table.losses_at[blocks], counts)]
    rows["SummaryId"] = np.repeat(table.summary_ids[blocks], counts)
    return rows


def _of_events(table: LossTable) -> Iterator[Rows]:
    owners = np.repeat(table.event_ids, np.diff(table.event_starts))
    for first, last in grouped(ends_of(table.counts), "export", PIECE):
        rows = _losses(table, np.arange(first, last), _SELT)
        rows["EventId"] = np.repeat(owners[first:last], table.counts[first:last])
        yield rows


def _of_occurrences(table: LossTable, calendar: Calendar) -> Iterator[Rows]:
    """Rows of whole periods, in the order of occurrences."""
    happens = calendar.occurrences
    events = places_of(happens.event_ids, table.event_ids)
    with_loss = np.flatnonzero(events >= 0)
    events = picked(events, with_loss)
    lengths = np.diff(ends_of(table.counts)[table.event_starts])
    blocks = np.diff(table.event_starts)
    periods = starts_of(happens.periods[with_loss].astype(np.int64))
    for first, last in grouped(ends_of(lengths[events])[periods], "export", PIECE):
        some = slice(periods[first], periods[last])
        of_event = events[some]
        rows = _losses(table, spread(table.event_starts[of_event], blocks[of_event]), _SPLT)
        _stamp(rows, calendar, np.repeat(with_loss[some], lengths[of_event]))
        yield rows


def _stamp(rows: Rows, calendar: Calendar, occurrences: Indices) -> None:
    """Write period, weight, event and date of the occurrence of each row."""
    happens = calendar.occurrences
    rows["Period"] = happens.periods[occurrences]
    rows["EventId"] = happens.event_ids[occurrences]
    weights = calendar.weights
    rows["PeriodWeight"] = weights[rows["Period"] - 1] if len(weights) else 1 / calendar.periods
    # Ids of a model without a calendar would be read back as dates.
    dates = calendar_dates(happens.dates[occurrences] * calendar.dated, granular=calendar.granular)
    for name, values in dates._asdict().items():
        rows[name.capitalize()] = values


def _added_up(rows: Rows) -> Rows:
    """Losses of periods, added up in the order of occurrences."""
    order = order_by(
        rows["Period"].astype(np.int64) << 32 | rows["SummaryId"], rows["SampleId"] + 1
    )
    rows = rows[order]
    starts = starts_by(rows["Period"], rows["SummaryId"], rows["SampleId"])[:-1]
    added = np.empty(len(starts), EXPORTS["ylt"].dtype(rows.dtype["Loss"].itemsize))
    for name in _IN_YEARS:
        added[name] = rows[name][starts]
    added["Loss"] = np.add.reduceat(rows["Loss"].astype(np.float64), starts)
    return added


def _lines(rows: Rows) -> Rows:
    dtype = EXPORTS["openquake"].dtype(rows.dtype["Loss"].itemsize)
    return as_rows(dtype, [rows[name] for name in ("EventId", "Period", "Loss", "SummaryId")])


def _years(rows: Rows) -> Rows:
    """Losses of occurrences, whose summaries ascend, added up."""
    new = np.ones(len(rows), np.bool_)
    new[1:] = rows["SummaryId"][1:] <= rows["SummaryId"][:-1]
    for name in ("Period", "EventId"):
        new[1:] |= rows[name][1:] != rows[name][:-1]
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(rows["Loss"].astype(np.float64), starts) if len(starts) else starts
    keys = (rows[name][starts] for name in ("Period", "EventId"))
    return as_rows(EXPORTS["climada"].dtype(8), [*keys, sums])


def _of_rates(table: LossTable, calendar: Calendar, samples: int) -> Iterator[Rows]:
    rates, dtype = _rates(table, calendar), EXPORTS["elt"].dtype(8)
    ids, _ = distinct(table.summary_ids, "export")
    largest = np.zeros(len(ids))
    ends = ends_of(table.counts)
    for first, last in grouped(ends, "export", PIECE):
        rows = _losses(table, np.arange(first, last), _SELT)
        np.maximum.at(largest, np.searchsorted(ids, rows["SummaryId"]), rows["Loss"])
    for first, last in grouped(ends[table.event_starts], "export", PIECE):
        begin, end = table.event_starts[first], table.event_starts[last]
        owners = np.repeat(np.arange(first, last), np.diff(table.event_starts[first : last + 1]))
        moments = _moments(table, np.arange(begin, end), owners - first, samples)
        kept = np.flatnonzero(moments[0])
        summaries, owners = table.summary_ids[begin:end][kept], owners[kept]
        means, independent, correlated = (values[kept] for values in moments)
        needed = means + np.square(independent + correlated) / means * _ENOUGH
        exposed = np.maximum(largest[np.searchsorted(ids, summaries)], needed)
        named: list[Any] = [table.event_ids[owners], summaries, rates[owners]]
        yield as_rows(dtype, [*named, means, independent, correlated, exposed])


def _rates(table: LossTable, calendar: Calendar) -> Floats:
    """Weight of the periods of the occurrences of each event, shape (events,)."""
    happens, count = calendar.occurrences, len(table.event_ids)
    events = places_of(happens.event_ids, table.event_ids)
    places = np.flatnonzero(events >= 0)
    weights = picked(weights_of(calendar), picked(happens.periods, places) - 1)
    rates = np.zeros(count)
    rates += np.bincount(picked(events, places), weights, count)
    return rates


def _moments(
    table: LossTable, blocks: Indices, events: Indices, samples: int
) -> tuple[Floats, Floats, Floats]:
    """Mean, independent and correlated standard deviation of the samples of blocks.

    Args:
        table: the losses.
        blocks: of whole events.
        events: of each block, from 0 on.
        samples: len_sample.
    """
    rows = _losses(table, blocks, _SELT)
    drawn = rows["SampleId"] > 0
    slot = np.repeat(np.arange(len(blocks)), table.counts[blocks])[drawn]
    losses = rows["Loss"][drawn].astype(np.float64)
    count, degrees = len(blocks), max(samples - 1, 1)
    means = np.bincount(slot, losses, count) / samples
    absent = samples - np.bincount(slot, minlength=count)
    squares = np.bincount(slot, np.square(losses - means[slot]), count) + absent * np.square(means)
    deviations = np.sqrt(squares / degrees)
    keys, places = np.unique(
        events[slot] * (samples + 1) + rows["SampleId"][drawn], return_inverse=True
    )
    totals = np.square(np.bincount(places, losses, len(keys)))
    whole = np.bincount(keys // (samples + 1), totals, events[-1] + 1)
    whole = whole - samples * np.square(np.bincount(events, means))
    own = np.bincount(events, squares / degrees)
    joint = np.square(np.bincount(events, deviations)) - own
    # Of a single summary, rounding is all there is.
    shared = np.where(joint > _ROUNDING * own, whole / degrees - own, 0)
    part = np.sqrt(np.clip(shared / np.maximum(joint, _TINY), 0, 1))[events]
    return means, (1 - part) * deviations, part * deviations


_ROUNDING, _TINY = 1e-9, 5e-324
