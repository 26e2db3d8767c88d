"""Occurrences, from csv or packed records with a header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ...errors import InputError
from .event_rates import EventRates
from .rows import INT_MAX, PACKED_HINT, Rows, csv_rows, packed_rows, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _layout(ids: str, date: str, *dates: str) -> np.dtype[np.void]:
    """Layout of an occurrence: two columns of type ``ids``, then dates of type ``date``."""
    columns = [(name, ids) for name in ("event_id", "period_no")]
    return np.dtype(columns + [(name, date) for name in dates])


_DAY: Final = ("occ_year", "occ_month", "occ_day")
_CSV: Final = (
    _layout("<i8", "<i8", *_DAY),
    _layout("<i8", "<i8", *_DAY, "occ_hour", "occ_minute"),
    _layout("<i8", "<i8", "occ_date_id"),
)
_BIN: Final = {
    False: _layout("<i4", "<i4", "occ_date_id"),
    True: _layout("<i4", "<i8", "occ_date_id"),
}
"""Layout of a packed occurrence by whether its date is granular."""

_HEADER_SIZE: Final = 8
_DATE_ALGORITHM: Final = 1
_GRANULAR: Final = 2

_MAX_YEAR: Final = 5_879_609
"""Last whole year whose date ids fit the four bytes they have in a packed file."""
_MINUTES_PER_DAY: Final = 1440


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """In which periods and when the events happen, in the order of the file."""

    periods: int
    """Number of periods, those without events included."""
    event_ids: NDArray[np.int32]
    """At least 1; shape (occurrences,)."""
    period_numbers: NDArray[np.int32]
    """From 1 to ``periods``; shape (occurrences,)."""
    dates: NDArray[np.int64]
    """Date ids: days, minutes if granular, or the model's own; shape (occurrences,)."""

    def event_rates(self) -> EventRates:
        """Occurrences of each event over the number of periods."""
        event_ids, counts = np.unique(self.event_ids, return_counts=True)
        return EventRates(event_ids, counts / self.periods)


def parse_occurrence(
    data: bytes, periods: int | None = None, source: str | None = None
) -> Occurrence:
    """Read occurrences from csv or from a packed file with its header.

    Csv has the columns ``event_id,period_no`` and then either
    ``occ_year,occ_month,occ_day``, the same and ``occ_hour,occ_minute``, or the
    ``occ_date_id`` of a model without calendar. A row may come twice: an event can
    happen twice on one date.

    Args:
        data: the whole file.
        periods: number of periods; csv does not have it, a packed file does.
        source: name of the file, for messages.

    Returns:
        The occurrences in the order of the file.

    Raises:
        InputError: the file is neither of the two, is empty, has an id, period or date
            out of range, or another number of periods than ``periods``;
            with ``parameter`` set if ``periods`` itself is missing or below 1.
    """
    if periods is not None and not 1 <= periods <= INT_MAX:
        message = f"the number of periods, {periods}, is not in 1 to {INT_MAX}"
        raise InputError(
            message, parameter="periods", hint="Correct --no-of-periods", source=source
        )
    text = text_of(data, source)
    if text is None:
        return _packed_occurrence(data, periods, source)
    if periods is None:
        message = "occurrences in csv do not tell the number of periods"
        raise InputError(
            message, parameter="periods", hint="Give it with --no-of-periods", source=source
        )
    rows = csv_rows(text, _CSV, source)
    return _checked_occurrence(rows, periods, _csv_dates(rows))


def _packed_occurrence(data: bytes, periods: int | None, source: str | None) -> Occurrence:
    if len(data) < _HEADER_SIZE:
        message = f"an occurrence header has 8 bytes, and here are {len(data)}"
        raise InputError(message, offset=len(data), hint=PACKED_HINT, source=source)
    options, declared = np.frombuffer(data, "<i4", count=2).tolist()
    if options & ~(_DATE_ALGORITHM | _GRANULAR):
        message = f"date options {options} have bits beyond 1 (calendar) and 2 (granular)"
        raise InputError(message, offset=0, hint=PACKED_HINT, source=source)
    if options == _GRANULAR:
        message = "date options 2 say granular dates without a calendar"
        raise InputError(message, offset=0, hint=PACKED_HINT, source=source)
    if declared < 1:
        message = f"the number of periods, {declared}, is below 1"
        raise InputError(message, offset=4, hint=PACKED_HINT, source=source)
    if periods not in {None, declared}:
        message = f"the file is of {declared} periods, and {periods} were given"
        hint = "Leave --no-of-periods out: the file has it"
        raise InputError(message, offset=4, hint=hint, source=source)
    layout = _BIN[bool(options & _GRANULAR)]
    rows = packed_rows(data, layout, _HEADER_SIZE, source)
    dates: NDArray[np.int64] = rows.data["occ_date_id"].astype(np.int64)
    rows.require(dates >= 0, "occ_date_id", "is negative")
    return _checked_occurrence(rows, declared, dates)


def _checked_occurrence(rows: Rows, periods: int, dates: NDArray[np.int64]) -> Occurrence:
    event_ids = rows.integers("event_id", 1).astype(np.int32)
    period_numbers = rows.integers("period_no", 1, periods).astype(np.int32)
    return Occurrence(periods, event_ids, period_numbers, dates)


def _csv_dates(rows: Rows) -> NDArray[np.int64]:
    if "occ_date_id" in rows.names:
        return rows.integers("occ_date_id", 0)
    years = rows.integers("occ_year", 1, _MAX_YEAR)
    months = rows.integers("occ_month", 1, 12)
    days = rows.integers("occ_day", 1, 31)
    dates = day_ids(years, months, days)
    next_month = day_ids(years + months // 12, months % 12 + 1, np.ones_like(days))
    rows.require(dates < next_month, "occ_day", "is beyond the end of its month")
    if "occ_hour" not in rows.names:
        return dates
    minutes = rows.integers("occ_hour", 0, 23) * 60 + rows.integers("occ_minute", 0, 59)
    return dates * _MINUTES_PER_DAY + minutes


def day_ids(
    years: NDArray[np.int64], months: NDArray[np.int64], days: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Date ids of days of the proleptic Gregorian calendar; 0 is 1 March of year 0.

    Args:
        years: from 1, shape (n,).
        months: 1 to 12, shape (n,).
        days: from 1 to the length of the month, shape (n,).

    Returns:
        Days since day 0, shape (n,).
    """
    # A year that begins in March has its leap day at the end.
    month = (months + 9) % 12
    year = years - month // 10
    before_year = 365 * year + year // 4 - year // 100 + year // 400
    ids: NDArray[np.int64] = before_year + (306 * month + 5) // 10 + days - 1
    return ids
