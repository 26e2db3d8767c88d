"""Rows of loss sets, in the columns and printed digits of the reports of streams.

What a stream knows besides its losses, the exposure, a loss set does not have: its column is left
out. Rows come in pieces of bounded size, or of one block or period that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..arrays import Indices, Rows
from ..budget import Scope
from ..errors import OptionError, names_hint
from ..losses.inputs import Occurrence, calendar_dates
from ..losses.reports.event_tables import PIECE, SELT, SPLT
from ..losses.reports.report import Report
from ..slices import grouped
from ..sorting import starts_of
from .assembling import order_by, starts_by
from .losses import Calendar, LossTable


def _without_exposure(report: Report) -> Report:
    columns = tuple(c for c in report.columns if c.name != "ImpactedExposure")
    return replace(report, columns=columns)


_ZERO = np.zeros(1, np.int64)
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
}
"""Columns of the tables that a loss set can be written as, by the name of their form."""


def export_rows(form: str, table: LossTable, calendar: Calendar) -> Iterator[Rows]:
    """Yield the rows of a table.

    Args:
        form: one of ``EXPORTS``: losses of events, of each of their occurrences in the order of
            the calendar, or added up by period. The mean is sample -1.
        table: the losses.
        calendar: when they happen.

    Returns:
        Pieces, of the dtype of the report for the width of the losses.

    Raises:
        OptionError: there is no such form.
        WorkStoppedError: nobody waits for the result.
    """
    if form not in EXPORTS:
        raise OptionError(f"there is no export {form[:60]!r}", hint=names_hint(form, EXPORTS))
    rows = _of_events(table) if form == "selt" else _of_occurrences(table, calendar)
    return _charged(table, calendar, map(_added_up, rows) if form == "ylt" else rows)


def _charged(table: LossTable, calendar: Calendar, rows: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows, while what finds them is held."""
    indices = _PER_BLOCK * len(table.counts) + _PER_OCCURRENCE * len(calendar.occurrences.dates)
    with Scope("export", indices):
        yield from rows


def occurrence_of(calendar: Calendar) -> Occurrence:
    """The occurrence file of a calendar, the inverse of ``calendar_of``."""
    periods, events, dates = calendar.occurrences
    return Occurrence(calendar.periods, events, periods, dates, calendar.dated, calendar.granular)


def _ends(counts: npt.NDArray[np.integer[Any]]) -> Indices:
    """Sums of the first 0, 1, 2 ... counts."""
    return np.concatenate((_ZERO, np.cumsum(counts, dtype=np.int64)))


def _spread(firsts: Indices, counts: Indices) -> Indices:
    """All indices of ranges, one after the other."""
    ends = np.cumsum(counts)
    spread: Indices = np.repeat(firsts - (ends - counts), counts) + np.arange(counts.sum())
    return spread


def _losses(table: LossTable, blocks: Indices, report: Report) -> Rows:
    """Rows of blocks, with summary, sample and loss."""
    counts = table.counts[blocks].astype(np.int64)
    rows = np.zeros(int(counts.sum()), report.dtype(table.losses.dtype.itemsize))
    samples = table.samples[_spread(table.samples_at[blocks], counts)]
    rows["SampleId"] = np.where(samples == 0, -1, samples)
    rows["Loss"] = table.losses[_spread(table.losses_at[blocks], counts)]
    rows["SummaryId"] = np.repeat(table.summary_ids[blocks], counts)
    return rows


def _of_events(table: LossTable) -> Iterator[Rows]:
    owners = np.repeat(table.event_ids, np.diff(table.event_starts))
    for first, last in grouped(_ends(table.counts), "export", PIECE):
        rows = _losses(table, np.arange(first, last), _SELT)
        rows["EventId"] = np.repeat(owners[first:last], table.counts[first:last])
        yield rows


def _of_occurrences(table: LossTable, calendar: Calendar) -> Iterator[Rows]:
    """Rows of whole periods, in the order of occurrences."""
    happens = calendar.occurrences
    events = np.minimum(
        np.searchsorted(table.event_ids, happens.event_ids), len(table.event_ids) - 1
    )
    with_loss = np.flatnonzero(table.event_ids[events] == happens.event_ids)
    events = events[with_loss]
    lengths = np.diff(_ends(table.counts)[table.event_starts])
    blocks = np.diff(table.event_starts)
    periods = starts_of(happens.periods[with_loss].astype(np.int64))
    for first, last in grouped(_ends(lengths[events])[periods], "export", PIECE):
        some = slice(periods[first], periods[last])
        of_event = events[some]
        rows = _losses(table, _spread(table.event_starts[of_event], blocks[of_event]), _SPLT)
        _stamp(rows, calendar, np.repeat(with_loss[some], lengths[of_event]))
        yield rows


def _stamp(rows: Rows, calendar: Calendar, occurrences: Indices) -> None:
    """Write period, weight, event and date of the occurrence of each row."""
    happens = calendar.occurrences
    rows["Period"] = happens.periods[occurrences]
    rows["EventId"] = happens.event_ids[occurrences]
    weights = calendar.weights
    rows["PeriodWeight"] = weights[rows["Period"] - 1] if len(weights) else 1 / calendar.periods
    dates = calendar_dates(happens.dates[occurrences], granular=calendar.granular)
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
