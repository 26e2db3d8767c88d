"""Reports of events, and of the periods in which they happen.

SELT, MELT and QELT have the columns and formats of OasisLMF's ``eltpy``. EVENTS is our own, of any
kind of stream: the totals of an event over its items or summaries, always float64, as totals over
many items may not fit a float32. All four are tables that the kernels write, as they are.

SPLT, MPLT and QPLT are those of ``pltpy``: rows of an event, once for each of its occurrences. The
rules of MPLT are not those of MELT: summaries without exposure have rows, means without a loss have
none, and the chance of loss is a sum in the float type of the stream. Unlike QELT, QPLT has rows of
summaries without exposure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...arrays import Rows
from ...budget import current
from .._kernels.expand import DATE_WORDS, NEXT, Calendar, expand
from ..format import SIDX_MEAN
from ..inputs import Occurrence, Periods
from .report import (
    ANY_KIND,
    EVENT_ID,
    EVENT_RATES,
    OCCURRENCE,
    PERIODS,
    QUANTILES,
    SAMPLE_TYPE,
    SUMMARY_ID,
    Column,
    Expander,
    Input,
    Report,
    Setting,
    amount,
    integer,
    number,
)

PIECE = 1 << 15
"""Rows of a piece: one or two megabytes."""
_WINDOW = 1 << 12
"""Occurrences of an event whose dates are computed at a time."""
_ALL = int(np.iinfo(np.int32).min)


class Occurrences(Expander):
    """Repeats the rows of events for each of their occurrences.

    Rows of an event without occurrence are left out.

    Args:
        setting: with the inputs ``occurrence`` and, unless they are equal, ``periods``.
        group: rows that are repeated together.
        least: rows whose third column, an integer, is below this are left out; only for
            groups of one row.
    """

    def __init__(self, setting: Setting, group: int = 1, least: int = _ALL) -> None:
        occurrence: Occurrence = setting.inputs["occurrence"]
        periods: Periods | None = setting.inputs.get("periods")
        self._dtype = setting.dtype
        self._group = group
        self._least = least
        self._granular = int(occurrence.granular)
        width = setting.header.float_width
        self._calendar = _calendar(occurrence, periods, width)
        stamp = 1 + width // 4 + DATE_WORDS
        self._stamps = np.zeros((_WINDOW, stamp), np.int32)
        self._out = np.zeros((max(PIECE, group), self._dtype.itemsize // 4), np.int32)

    def take(self, rows: Rows) -> Iterator[Rows]:
        """Repeat rows of whole blocks, all occurrences of a group one after the other."""
        words = np.ascontiguousarray(rows).view(np.int32).reshape(len(rows), -1)
        words.flags.writeable = False  # one compiled signature, whoever owns the rows
        progress = np.zeros(4, np.int64)
        progress[NEXT] = -1
        calendar = (self._calendar, self._granular, self._stamps)
        while count := expand(words, self._group, self._least, *calendar, progress, self._out):
            yield self._out[:count].reshape(-1).view(self._dtype)


def _calendar(occurrence: Occurrence, periods: Periods | None, float_width: int) -> Calendar:
    index = occurrence.by_event()
    numbers, dates = occurrence.period_numbers, occurrence.dates
    if not (np.diff(index.order) > 0).all():
        budget = current()
        budget.check("calendar")
        numbers = numbers[index.order]
        budget.check("calendar")
        dates = dates[index.order]
    # A file of a few bytes may declare billions of periods: equal weights are a single one.
    weights = np.array([1 / occurrence.periods]) if periods is None else periods.weights
    words = weights.astype(f"<f{float_width}").view(np.int32)
    return Calendar(
        index.event_ids.astype(np.int32),
        index.starts.astype(np.int64),
        numbers,
        dates,
        words.reshape(len(weights), -1),
    )


def _moments(decimals_of_chance: int, decimals: int) -> tuple[Column, ...]:
    return (
        number("ChanceOfLoss", decimals_of_chance, "Share of samples with a loss"),
        amount("MeanLoss", decimals, "Mean loss over all samples"),
        amount("SDLoss", decimals, "Sample standard deviation of the loss"),
        amount("MaxLoss", decimals, "Largest loss possible (sidx -5)"),
        amount("FootprintExposure", decimals, "Exposure in the footprint of the event"),
        amount("MeanImpactedExposure", decimals, "Mean over all samples of the impacted exposure"),
        amount("MaxImpactedExposure", decimals, "Largest impacted exposure of a sample"),
    )


def _quantiles(decimals: int) -> tuple[Column, ...]:
    quantile = number("Quantile", decimals, "Quantile of the samples, 0 to 1")
    return EVENT_ID, SUMMARY_ID, quantile, amount("Loss", decimals, "Loss")


EVENTS = Report(
    name="events",
    title="Event totals",
    columns=(
        EVENT_ID,
        integer("Blocks", "Items or summaries the event has"),
        amount("AnalyticalMean", 6, "Sum of the numerical means of the event's blocks", "f8"),
        amount("SampleMean", 6, "Mean of the event's total over all samples", "f8"),
        amount("SampleSD", 6, "Sample standard deviation of the event's total", "f8"),
        amount("SampleMin", 6, "Smallest total of a sample", "f8"),
        amount("SampleMax", 6, "Largest total of a sample", "f8"),
        number("ChanceOfLoss", 6, "Share of samples with a loss", "f8"),
        amount("MaxLoss", 6, "Largest loss possible (sidx -5)", "f8"),
        amount("Exposure", 6, "Exposure of the event's blocks", "f8"),
    ),
    kinds=ANY_KIND,
    buffer_rows=1 << 12,
)
SELT = Report(
    name="selt",
    title="Sample event loss table",
    columns=(
        EVENT_ID,
        SUMMARY_ID,
        integer("SampleId", "Sample; -1 is the numerical mean, -4 the number of affected risks"),
        amount("Loss", 2, "Loss"),
        amount("ImpactedExposure", 2, "Exposure if there is a loss, else 0"),
    ),
    buffer_rows=1 << 16,
)
MELT = Report(
    name="melt",
    title="Moment event loss table",
    columns=(
        EVENT_ID,
        SUMMARY_ID,
        SAMPLE_TYPE,
        number("EventRate", 6, "Annual rate of occurrence of the event"),
        *_moments(6, 6),
    ),
    takes=(EVENT_RATES, OCCURRENCE),
    buffer_rows=1 << 14,
)
QELT = Report(
    name="qelt",
    title="Quantile event loss table",
    columns=_quantiles(6),
    needs=(QUANTILES,),
    buffer_rows=1 << 15,
)


class _Samples(Occurrences):
    """Samples and the mean for each occurrence."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, least=SIDX_MEAN)

    def take(self, rows: Rows) -> Iterator[Rows]:
        """Repeat rows of a SELT; those with a negative loss have no impacted exposure."""
        negative = rows["Loss"] < 0
        if negative.any():
            rows = rows.copy()
            rows["ImpactedExposure"][negative] = 0
        return super().take(rows)


def _of_periods(  # noqa: PLR0913 - what these reports differ in
    name: str,
    title: str,
    columns: tuple[Column, ...],
    expand: Callable[[Setting], Expander],
    *,
    table: str = "",
    needs: tuple[Input, ...] = (),
    buffer_rows: int = 0,
) -> Report:
    """A report of periods, from the columns of its table, the first of which is the event."""
    return Report(
        name=name,
        title=title,
        columns=(
            integer("Period", "Period in which the event happens"),
            number("PeriodWeight", 6, "Weight of the period in a mean over periods"),
            columns[0],
            integer("Year", "Date on which it happens"),
            integer("Month", "Month of the date, 1 to 12"),
            integer("Day", "Day of the month, 1 to 31"),
            integer("Hour", "Hour of the day, 0 to 23; 0 if the file has days only"),
            integer("Minute", "Minute of the hour, 0 to 59; 0 if the file has days only"),
            *columns[1:],
        ),
        scope="period",
        needs=(OCCURRENCE, *needs),
        takes=(PERIODS,),
        table=table,
        table_columns=columns,
        expand=expand,
        buffer_rows=buffer_rows,
    )


SPLT = _of_periods("splt", "Sample period loss table", SELT.columns, _Samples, table="selt")
MPLT = _of_periods(
    "mplt",
    "Moment period loss table",
    (EVENT_ID, SUMMARY_ID, SAMPLE_TYPE, *_moments(4, 2)),
    Occurrences,
    buffer_rows=1 << 14,
)
QPLT = _of_periods(
    "qplt",
    "Quantile period loss table",
    _quantiles(2),
    # All quantiles for one occurrence, then for the next.
    lambda setting: Occurrences(setting, group=len(setting.inputs["quantiles"])),
    needs=(QUANTILES,),
    buffer_rows=1 << 15,
)
