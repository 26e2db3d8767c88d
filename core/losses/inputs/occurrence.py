"""Occurrences, event rates, which follow from them, and weights of periods.

Occurrences are read from csv or packed records with a header, the others from csv
(``period_no,weighting``) or packed records.

A date id counts days of the proleptic Gregorian calendar whose years begin in March, from
1 March of year 0; or, if dates are granular, minutes. A model without calendar has ids of its
own, which mean nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats
from ...errors import InputError
from ...slices import slices
from ...sorting import distinct, order_of, starts_of
from .rows import (
    INT_MAX,
    PACKED_HINT,
    Data,
    Form,
    Rows,
    column_rows,
    csv_rows,
    decode_rows,
    encode_rows,
    packed_rows,
    text_of,
)

_RATES_CSV: Final = np.dtype([("EventIds", "<i8"), ("Event_rates", "<f8")])
_RATES_BIN: Final = np.dtype([("EventIds", "<i4"), ("Event_rates", "<f4")])


@dataclass(frozen=True, slots=True, eq=False)
class EventRates:
    """How often each event happens in one period."""

    event_ids: NDArray[np.int32]
    """Ascending and unique, at least 1; shape (events,)."""
    rates: NDArray[np.float64]
    """Finite and not negative; shape (events,)."""


def parse_event_rates(data: Data, source: str | None = None) -> EventRates:
    """Read event rates from csv (``EventIds,Event_rates``) or packed (i4, f4).

    Args:
        data: the whole file, or its columns; under a header, csv columns may come in either order.
        source: name of the file, for messages.

    Returns:
        Rates by ascending event id; float32 values if the file is packed.

    Raises:
        InputError: the file is neither of the two, is empty, or has an event id below 1
            or twice, or a rate that is negative or not finite.
    """
    rows = decode_rows(data, (_RATES_CSV,), _RATES_BIN, source)
    event_ids = rows.ids("EventIds")
    rates = rows.weights("Event_rates")
    rows.require_unique(event_ids, "EventIds")
    ids, order = order_of(event_ids, "input")
    ordered = np.empty_like(rates)
    for a, b in slices(len(order), "input"):
        event_ids[a:b] = ids[a:b]
        ordered[a:b] = rates[order[a:b]]
    return EventRates(event_ids, ordered)


def encode_event_rates(rates: EventRates, form: Form) -> bytes:
    """Write event rates as the peer's file of this form; a packed one has float32."""
    rows = np.empty(len(rates.event_ids), _RATES_BIN if form == "bin" else _RATES_CSV)
    rows["EventIds"] = rates.event_ids
    rows["Event_rates"] = rates.rates
    return encode_rows(rows, form)


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
_DATED: Final = 1 << 17
"""Dates that are computed between two checks of the budget."""
_LAST_MINUTE: Final = (INT_MAX + 1) * _MINUTES_PER_DAY - 1
"""Date id of the last minute whose day fits four bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class EventIndex:
    """Occurrences by event.

    Those of ``event_ids[i]`` are the rows ``order[starts[i] : starts[i + 1]]`` of the
    occurrences, in the order of the file.
    """

    event_ids: NDArray[np.int32]
    """Ascending and unique; shape (events,)."""
    starts: NDArray[np.int64]
    """Shape (events + 1,)."""
    order: NDArray[np.int64]
    """Rows of the occurrences, shape (occurrences,)."""


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
    calendar: bool = True
    """Whether date ids are those of the calendar, not the model's own."""
    granular: bool = False
    """Whether date ids count minutes instead of days."""

    def by_event(self) -> EventIndex:
        """Index the occurrences by event."""
        ids, order = order_of(self.event_ids, "occurrence")
        starts = starts_of(ids)
        return EventIndex(ids[starts[:-1]].astype(np.int32), starts, order)

    def event_rates(self) -> EventRates:
        """Occurrences of each event over the number of periods."""
        event_ids, counts = distinct(self.event_ids, "occurrence")
        return EventRates(event_ids.astype(np.int32), counts / self.periods)

    def events(self) -> NDArray[np.int32]:
        """Ids of the events, ascending."""
        return distinct(self.event_ids, "occurrence")[0].astype(np.int32)


def parse_occurrence(
    data: Data, periods: int | None = None, source: str | None = None
) -> Occurrence:
    """Read occurrences from csv, columns or a packed file with its header.

    Csv and columns are ``event_id,period_no`` and then either
    ``occ_year,occ_month,occ_day``, the same and ``occ_hour,occ_minute``, or the
    ``occ_date_id`` of a model without calendar. A row may come twice: an event can
    happen twice on one date.

    Args:
        data: the whole file, or its columns.
        periods: number of periods; only a packed file has it.
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
        raise InputError(message, parameter="periods", hint="Correct no_of_periods", source=source)
    text = None
    if isinstance(data, bytes):
        text = text_of(data, source)
        if text is None:
            return _packed_occurrence(data, periods, source)
    if periods is None:
        form = "columns" if text is None else "csv"
        message = f"occurrences in {form} do not tell the number of periods"
        raise InputError(
            message, parameter="periods", hint="Give it with no_of_periods", source=source
        )
    if isinstance(data, bytes):
        rows = csv_rows(text or "", _CSV, source)
    else:
        rows = column_rows(data, _CSV, source)
    calendar, granular = "occ_day" in rows.names, "occ_hour" in rows.names
    return _checked_occurrence(rows, periods, _csv_dates(rows), calendar, granular)


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
        hint = "Leave no_of_periods out: the file has it"
        raise InputError(message, offset=4, hint=hint, source=source)
    layout = _BIN[bool(options & _GRANULAR)]
    rows = packed_rows(data, layout, _HEADER_SIZE, source)
    column = rows.data["occ_date_id"]
    dates = np.empty(len(column), np.int64)
    for a, b in slices(len(column), "input"):
        dates[a:b] = column[a:b]
    rows.require(dates >= 0, "occ_date_id", "is negative")
    rows.require(dates <= _LAST_MINUTE, "occ_date_id", "is after the last day there is")
    calendar, granular = bool(options & _DATE_ALGORITHM), bool(options & _GRANULAR)
    return _checked_occurrence(rows, declared, dates, calendar, granular)


def _checked_occurrence(
    rows: Rows, periods: int, dates: NDArray[np.int64], calendar: bool, granular: bool
) -> Occurrence:
    event_ids = rows.ids("event_id")
    period_numbers = rows.ids("period_no", periods)
    return Occurrence(periods, event_ids, period_numbers, dates, calendar, granular)


def encode_occurrence(occurrence: Occurrence, form: Form) -> bytes:
    """Write occurrences as the peer's file of this form; csv lacks the number of periods."""
    dates: dict[str, NDArray[np.int64]] = {"occ_date_id": occurrence.dates}
    layout = _BIN[occurrence.granular]
    if form == "csv":
        if occurrence.calendar:
            parts = calendar_dates(occurrence.dates, granular=occurrence.granular)
            dates = {f"occ_{name}": values for name, values in parts._asdict().items()}
            if not occurrence.granular:
                del dates["occ_hour"], dates["occ_minute"]
        layout = _layout("<i8", "<i8", *dates)
    rows = np.empty(len(occurrence.event_ids), layout)
    rows["event_id"] = occurrence.event_ids
    rows["period_no"] = occurrence.period_numbers
    for name, values in dates.items():
        rows[name] = values
    body = encode_rows(rows, form)
    if form == "csv":
        return body
    options = _DATE_ALGORITHM * occurrence.calendar | _GRANULAR * occurrence.granular
    return np.array([options, occurrence.periods], "<i4").tobytes() + body


def _csv_dates(rows: Rows) -> NDArray[np.int64]:
    if "occ_date_id" in rows.names:
        return rows.integers("occ_date_id", 0)
    years = rows.integers("occ_year", 1, _MAX_YEAR)
    months = rows.integers("occ_month", 1, 12)
    days = rows.integers("occ_day", 1, 31)
    dates, there_is = np.empty_like(days), np.empty(len(days), np.bool_)
    for a, b in slices(len(days), "input", _DATED):
        year, month = years[a:b], months[a:b]
        dates[a:b] = day_ids(year, month, days[a:b])
        next_month = day_ids(year + month // 12, month % 12 + 1, np.ones_like(month))
        there_is[a:b] = dates[a:b] < next_month
    rows.require(there_is, "occ_day", "is beyond the end of its month")
    if "occ_hour" not in rows.names:
        return dates
    hours, minutes = rows.integers("occ_hour", 0, 23), rows.integers("occ_minute", 0, 59)
    for a, b in slices(len(days), "input"):
        dates[a:b] = dates[a:b] * _MINUTES_PER_DAY + hours[a:b] * 60 + minutes[a:b]
    return dates


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
    ids: NDArray[np.int64] = _days_before(year) + (306 * month + 5) // 10 + days - 1
    return ids


class CalendarDates(NamedTuple):
    """Dates of occurrences, each part of shape (n,)."""

    year: NDArray[np.int64]
    month: NDArray[np.int64]
    """1 to 12."""
    day: NDArray[np.int64]
    """1 to 31."""
    hour: NDArray[np.int64]
    """0 to 23."""
    minute: NDArray[np.int64]
    """0 to 59."""


def calendar_dates(dates: NDArray[np.int64], *, granular: bool) -> CalendarDates:
    """Take date ids apart: the inverse of :func:`day_ids`.

    Args:
        dates: ids of days or, if ``granular``, minutes; not negative, shape (n,).
        granular: whether they count minutes.
    """
    minutes = dates % _MINUTES_PER_DAY if granular else np.zeros_like(dates)
    days = dates // _MINUTES_PER_DAY if granular else dates
    # 400 years have 146,097 days. Near 1 March the quotient may give the year that follows.
    year = (10_000 * days + 14_780) // 3_652_425
    year -= days < _days_before(year)
    rest = days - _days_before(year)
    month = (100 * rest + 52) // 3060  # from March
    day = rest - (306 * month + 5) // 10 + 1
    year += (month + 2) // 12
    return CalendarDates(year, (month + 2) % 12 + 1, day, minutes // 60, minutes % 60)


def _days_before(year: NDArray[np.int64]) -> NDArray[np.int64]:
    """Days from day 0 to 1 March of a year."""
    days: NDArray[np.int64] = 365 * year + year // 4 - year // 100 + year // 400
    return days


_PERIODS_CSV: Final = np.dtype([("period_no", "<i8"), ("weighting", "<f8")])
_PERIODS_BIN: Final = np.dtype([("period_no", "<i4"), ("weighting", "<f8")])

_TOLERANCE: Final = 1e-6
"""Weights printed with nine decimals sum to one within this, however many they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """How much each period counts in a mean over periods."""

    weights: Floats
    """Weight of period p at p - 1, finite and not negative; shape (periods,)."""

    @property
    def total(self) -> float:
        """Sum of the weights: 1 in a sound model."""
        return float(self.weights.sum())

    @property
    def sum_to_one(self) -> bool:
        """Whether the weights sum to 1, up to the rounding of a csv."""
        return abs(self.total - 1) <= _TOLERANCE


def parse_periods(data: Data, count: int | None = None, source: str | None = None) -> Periods:
    """Read the weight of every period, in any order.

    Args:
        data: the whole file, or its columns.
        count: number of periods of the occurrences, if known.
        source: name of the file, for messages.

    Raises:
        InputError: the file is of another form or empty, has a period below 1, above ``count``
            or twice, lacks one, or has a weight that is negative or not finite.
    """
    rows = decode_rows(data, (_PERIODS_CSV,), _PERIODS_BIN, source)
    numbers = rows.integers("period_no", 1, INT_MAX if count is None else count)
    weights = rows.weights("weighting")
    rows.require_unique(numbers, "period_no")
    expected = int(numbers.max()) if count is None else count
    if len(numbers) < expected:
        ordered = np.sort(numbers)
        gaps = np.flatnonzero(ordered != np.arange(1, len(ordered) + 1))
        missing = int(gaps[0]) + 1 if len(gaps) else len(ordered) + 1
        raise InputError(
            f"{expected - len(numbers)} of {expected} periods have no weight, the first is"
            f" period {missing}",
            hint="Give every period from 1 to the number of periods a weight, which may be 0",
            source=source,
        )
    ordered_weights = np.empty(expected)
    ordered_weights[numbers - 1] = weights
    return Periods(ordered_weights)


def encode_periods(periods: Periods, form: Form) -> bytes:
    """Write the weights as the peer's file of this form."""
    rows = np.empty(len(periods.weights), _PERIODS_BIN)
    rows["period_no"] = np.arange(1, len(rows) + 1)
    rows["weighting"] = periods.weights
    return encode_rows(rows, form)
