"""Loss sets from tables that others have made.

======== ============================================================ =========================
form     columns (those in brackets may be missing)                    a row is
======== ============================================================ =========================
splt     Period EventId SummaryId SampleId Loss [PeriodWeight Year     a sample in a period, of
         Month Day Hour Minute ImpactedExposure]                       Open Results Data
selt     EventId SummaryId SampleId Loss [ImpactedExposure]            a sample of an event; with
                                                                       an occurrence
ylt      Period Loss [EventId SampleId Year Month Day, or Date; Hour   a loss in a period
         Minute PeriodWeight, SummaryId or dimensions]
openquake event_id year loss [loss_type rup_id, SummaryId or           a line of risk_by_event
          dimensions]
climada  year event_id at_event                                        an event of a sampled year
======== ============================================================ =========================

A table of periods says when events happen, by the rows that it has. A loss set has the losses of
an event once, so they have to be the same wherever it happens; where they are not, each occurrence
can be made an event of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from ..arrays import Array, Floats, Indices
from ..budget import current
from ..errors import InputError
from ..losses.inputs import Occurrence, SummaryInfo, parse_occurrence
from ..losses.inputs.rows import INT_MAX
from ..slices import slices
from .assembling import (
    LossRows,
    calendar_of,
    check_weights,
    occurrences_of,
    order_by,
    picked,
    places_of,
    starts_by,
    table_of,
)
from .columns import Field, Kind, Table
from .losses import Calendar, LossTable, Occurrences

_LOWEST_SPECIAL = -5
_WEIGHT_DIGITS = 5e-7
"""Error of a weight that a csv has with six decimals."""
_RANK = 16
"""Bits below a date for its repetitions, while rows are sorted."""
_CLOCK = {"Month": (1, 12), "Day": (1, 31), "Hour": (0, 23), "Minute": (0, 59)}
_KEYS = ("Period", "EventId", "SummaryId", "SampleId")
"""Columns that rows are told apart by, besides dates and dimensions."""
Frequency = Literal["poisson", "negative-binomial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is said of a table besides it."""

    periods: int | None = None
    """Number of periods, those without a loss included; none for an occurrence, which has it."""
    samples: int | None = None
    """Number of samples; the largest there is if it is not given."""
    weights: Floats | None = None
    """Weights of the periods, which add up to 1; shape (periods,)."""
    occurrence: Occurrence | None = None
    info: SummaryInfo | None = None
    """What the summaries are, of tables with summaries."""
    apart: bool = False
    """Whether each occurrence is an event of its own, numbered from 1 on by period, date, event."""
    repeated: bool = False
    """Whether an event all of whose rows are there twice on a date, or in a period if there are no
    dates, happens twice; else rows that are there twice are refused."""
    seed: int = 0
    """Of what is simulated."""
    frequency: Frequency = "poisson"
    """Distribution of the number of events in a period, where that is simulated."""
    dispersion: float | None = None
    """Variance over mean of a negative binomial frequency, above 1."""


class Imported(NamedTuple):
    """A loss set."""

    table: LossTable
    calendar: Calendar
    dimensions: SummaryInfo | None
    samples: int
    """Number of samples, those without a loss included."""
    left_out: Mapping[str, int]
    """Rows that are not in it, by the reason."""
    currency: str | None = None
    """What a column of this name says."""
    notes: Sequence[str] = ()
    """What of it is likely a mistake."""


class Form(NamedTuple):
    """What a table has, and what becomes of it."""

    fields: Sequence[Field]
    make: Callable[[Table, Given], Imported]
    dimensions: bool = False
    """Whether it may have columns of any other name."""


class _Read(NamedTuple):
    """Rows with a loss, and what is told of all."""

    rows: LossRows
    dimensions: SummaryInfo | None
    samples: int
    left_out: dict[str, int]


def _read(table: Table, details: Given, periods: Indices | None = None) -> _Read:
    """Read the rows of a table; without events, a period is one."""
    losses = table.amounts("Loss")
    _check_set(table)
    samples, count = _samples(table, details)
    summaries, dimensions = summaries_of(table, details)
    numbers, zeros = np.arange(table.rows), np.zeros(table.rows, np.int64)
    times = zeros if periods is None else periods
    events = table.integers("EventId", 0) if "EventId" in table else times
    rows = LossRows(numbers, events, summaries, samples, losses, times, zeros)
    added = samples >= 0
    kept = (losses > 0) & added
    if not kept.any():
        hint = "A loss set has losses above 0"
        raise InputError("no row has a loss", hint=hint, source=table.source)
    special = len(added) - int(added.sum())
    left_out = {"special samples": special, "no loss": len(kept) - special - int(kept.sum())}
    return _Read(rows.take(kept), dimensions, count, left_out)


def _check_set(table: Table) -> None:
    """Losses of two sets are the same loss, cut twice."""
    if "SummarySetId" in table:
        sets = table.columns["SummarySetId"]
        hint = "Losses of different sets are never added: import each of them as a loss set"
        table.require("SummarySetId", sets == sets[0], f"is not {sets[0]}, as before", hint)


def _samples(table: Table, details: Given) -> tuple[Indices, int]:
    """Sample of each row, 0 for the mean and below 0 for what is not added; and their number."""
    if "SampleId" not in table:
        return np.ones(table.rows, np.int64), 1
    ids = table.columns["SampleId"].astype(np.int64)
    most = INT_MAX if details.samples is None else details.samples
    good = (ids != 0) & (ids >= _LOWEST_SPECIAL) & (ids <= most)
    table.require("SampleId", good, f"is not in 1 to {most} or {_LOWEST_SPECIAL} to -1")
    count = details.samples or int(max(ids.max(), 0))
    return np.where(ids == -1, 0, ids), count


def require_unique(table: Table, rows: LossRows, keys: Sequence[Array]) -> None:
    """Raise ``InputError`` about the first of ordered rows whose keys came before."""
    repeats = np.flatnonzero(np.all([key[1:] == key[:-1] for key in keys], axis=0)) + 1
    if len(repeats):
        at = repeats[np.argmin(rows.numbers[repeats])]
        row, earlier = int(rows.numbers[at]), table.place(int(rows.numbers[at - 1]))
        columns = {name: table.columns[name] for name in _KEYS if name in table}
        cell = [f"{name} {values[row]}" for name, values in {**columns, **table.dimensions}.items()]
        hint = "Add up what belongs together"
        if "Period" in table:
            hint += ", or say with repeated=true that an event happens as often as it is there"
        text = f"the loss of {', '.join(cell)[:200]} is already in {earlier}"
        raise table.refuse(row, text, hint)


def _of_events(table: Table, details: Given) -> Imported:
    """A SELT, whose events happen as an occurrence says."""
    if details.occurrence is None:
        raise InputError(
            "a table of events does not tell when they happen",
            hint="Give an occurrence, or the table of periods",
            source=table.source,
        )
    rows, dimensions, samples, left_out = _read(table, details)
    rows = rows.take(order_by(rows.events << 32 | rows.summaries, rows.samples))
    require_unique(table, rows, (rows.events, rows.summaries, rows.samples))
    happens = places_of(rows.events, details.occurrence.events()) >= 0
    if not happens.any():
        hint = "Give the occurrence of the same model"
        raise InputError("no event of the table happens", hint=hint, source=table.source)
    rows = rows.take(happens)
    losses = table_of(rows.events, rows.summaries, rows.samples, rows.losses)
    left_out["events that never happen"] = len(happens) - len(rows.events)
    calendar = calendar_of(details.occurrence, details.weights)
    return Imported(losses, calendar, dimensions, samples, left_out)


def _of_periods(table: Table, details: Given) -> Imported:
    """A table of periods, whose rows say when events happen."""
    count = count_periods(table, details)
    periods = table.integers("Period", 1, count)
    rows, dimensions, samples, left_out = _read(table, details, periods)
    dates, granular = _dates(table)
    if dates is not None:
        rows = replace(rows, dates=picked(dates, rows.numbers) << _RANK)
    if details.repeated:
        rows = replace(rows, dates=rows.dates | _repetitions(table, rows))
    losses, occurrences = _separated(table, rows, apart=details.apart)
    weights = _weights(table, details, count, periods)
    calendar = Calendar(count, occurrences, weights, dates is not None, granular)
    return Imported(losses, calendar, dimensions, samples, left_out)


def _repetitions(table: Table, rows: LossRows) -> Indices:
    """How often each row was there before, on its date."""
    keys = (rows.events, rows.periods, rows.dates, rows.summaries << 32 | rows.samples)
    order = order_by(*keys)
    starts = starts_by(*(picked(key, order) for key in keys))
    before = np.empty_like(order)
    before[order] = np.arange(len(order)) - np.repeat(starts[:-1], np.diff(starts))
    if before.max() >> _RANK:
        row = int(rows.numbers[np.argmax(before)])
        raise table.refuse(row, f"it is there more than {1 << _RANK} times in a period")
    return before


def _separated(table: Table, rows: LossRows, *, apart: bool) -> tuple[LossTable, Occurrences]:
    """The losses of events, and their occurrences."""
    if apart:
        rows = rows.take(order_by(rows.periods, rows.dates, rows.events))
        starts = starts_by(rows.periods, rows.dates, rows.events)
        rows = replace(rows, events=np.repeat(np.arange(1, len(starts)), np.diff(starts)))
    cells = rows.summaries << 32 | rows.samples
    order = order_by(rows.events, rows.periods, rows.dates, cells)
    rows, cells = rows.take(order), cells[order]
    keys = (rows.events, rows.periods, rows.dates)
    require_unique(table, rows, (*keys, cells))
    starts = starts_by(*keys)
    events, periods, dates = (key[starts[:-1]] for key in keys)
    first = _require_same(table, rows, cells, starts, events)
    kept = rows.take(np.repeat(first == np.arange(len(first)), np.diff(starts)))
    losses = table_of(kept.events, kept.summaries, kept.samples, kept.losses)
    return losses, occurrences_of(periods, events, dates >> _RANK)


def _require_same(
    table: Table, rows: LossRows, cells: Indices, starts: Indices, events: Indices
) -> Indices:
    """First occurrence of the event of each occurrence, which has to have the same losses."""
    of_event = starts_by(events)
    first = np.repeat(of_event[:-1], np.diff(of_event))
    lengths = np.diff(starts)
    wrong = starts[:-1][lengths != lengths[first]]
    at = int(wrong[0]) if len(wrong) else len(cells)
    shift = np.repeat(starts[:-1] - starts[first], lengths)
    for a, b in slices(at, "input"):
        model = np.arange(a, b) - shift[a:b]
        other = (cells[a:b] != cells[model]) | (rows.losses[a:b] != rows.losses[model])
        if other.any():
            at = a + int(np.argmax(other))
            break
    if at < len(cells):
        earlier = table.place(int(rows.numbers[at - shift[at]]))
        text = f"event {rows.events[at]} has other losses than where it happens first, {earlier}"
        hint = "Losses of an event are the same wherever it happens: make each occurrence an event"
        if "EventId" not in table:
            text = f"period {rows.events[at]} has other losses than in {earlier}, and without an"
            text += " EventId its losses are those of one event"
            hint = "Give each event an EventId, or make each date an event"
        raise table.refuse(int(rows.numbers[at]), text, f"{hint} of its own with apart=true")
    return first


def count_periods(table: Table, details: Given) -> int:
    """Number of periods that is given, which has to be."""
    if details.periods is None:
        raise InputError(
            "the table does not tell how many periods there are, as some have no loss",
            hint="Give their number",
            source=table.source,
        )
    if not 1 <= details.periods <= INT_MAX:
        message = f"the number of periods, {details.periods}, is not in 1 to {INT_MAX}"
        raise InputError(message, hint="Correct it", source=table.source)
    return details.periods


def _weights(table: Table, details: Given, count: int, periods: Indices) -> Floats:
    """Weights of the periods, empty if they are equal."""
    weights = check_weights(details.weights, count)
    if "PeriodWeight" in table:
        table.amounts("PeriodWeight")
        expected = weights[periods - 1] if len(weights) else 1 / count
        good = np.abs(table.columns["PeriodWeight"] - expected) <= _WEIGHT_DIGITS
        hint = "Give the weights of all periods as periods=, as a table has those with a loss alone"
        table.require("PeriodWeight", good, "is not the weight of its period", hint)
    return weights


def _dates(table: Table) -> tuple[Indices | None, bool]:
    """Dates of rows, None if there are none; and whether they are minutes."""
    current().check("input")
    if "Hour" in table and "Minute" not in table:
        full_hours = np.zeros(table.rows, np.int64)
        table = replace(table, columns={**table.columns, "Minute": full_hours})
    names = [name for name in ("Year", "Month", "Day", "Hour", "Minute") if name in table]
    if "Date" in table:
        return _timed(table, names)
    if len(names) not in {0, 3, 5}:
        hint = "Give Year, Month and Day, and Hour and Minute too if you have them"
        message = f"a date has {' and '.join(names)} only"
        raise InputError(message, hint=hint, source=table.source)
    # A model without a calendar has the ids of its dates written as if they were of year 0.
    if not names or not table.columns["Year"].any():
        return None, False
    for name, (low, high) in _CLOCK.items():
        if name in table:
            table.integers(name, low, high)
    granular = any(table.columns[name].any() for name in names[3:])
    parts = {f"occ_{n.lower()}": table.columns[n] for n in (names if granular else names[:3])}
    current().check("input")
    ones = np.ones(table.rows, np.int64)
    parts = {"event_id": ones, "period_no": ones, **parts}
    try:
        return parse_occurrence(parts, 1, table.source).dates, granular
    except InputError as e:
        # The columns of an occurrence have other names.
        hint = "A date has a Year, a Month and a Day that there is"
        raise InputError(e.message.replace("occ_", ""), hint=hint, source=table.source) from e


def _timed(table: Table, names: Sequence[str]) -> tuple[Indices, bool]:
    """Dates of rows, and whether they are minutes: of a Date, which may have these beside it."""
    dates, granular = table.moments("Date")
    if not names:
        return dates, granular
    if granular or names != ["Hour", "Minute"]:
        hint = "Give a Date alone, one without a time of day and Hour and Minute, or no Date"
        has = ", and Date has a time of day" if granular else ""
        message = f"beside Date there is {names[0]}{has}"
        raise InputError(message, hint=hint, source=table.source)
    hours, minutes = (table.integers(name, *_CLOCK[name]) for name in names)
    clock = hours * 60 + minutes
    return (dates * (24 * 60) + clock, True) if clock.any() else (dates, False)


def summaries_of(table: Table, details: Given) -> tuple[Indices, SummaryInfo | None]:
    """Summary of each row, and what the summaries are."""
    if "SummaryId" in table:
        if table.dimensions:
            hint = "Describe summaries in a summary info, or leave SummaryId out"
            message = f"it has SummaryId and {', '.join(table.dimensions)[:200]}"
            raise InputError(message, hint=hint, source=table.source)
        return _described(table.integers("SummaryId", 1), details, table), details.info
    if not table.dimensions:
        return _described(np.ones(table.rows, np.int64), details, table), details.info
    numbers: dict[tuple[str, ...], int] = {}
    summaries = np.empty(table.rows, np.int64)
    for a, b in slices(table.rows, "input", 1 << 14):
        keys = zip(*(texts[a:b].tolist() for texts in table.dimensions.values()), strict=True)
        summaries[a:b] = [numbers.setdefault(key, len(numbers) + 1) for key in keys]
    columns = zip(*numbers, strict=True)
    described = {n: np.array(c) for n, c in zip(table.dimensions, columns, strict=True)}
    return summaries, SummaryInfo(np.arange(1, len(numbers) + 1, dtype=np.int32), described)


def _described(summaries: Indices, details: Given, table: Table) -> Indices:
    """The same summaries, of which the summary info has to have each."""
    if details.info is not None:
        known = places_of(summaries, details.info.summary_ids) >= 0
        if not known.all():
            row = int(np.argmin(known))
            text = f"summary {summaries[row]} is not described in the summary info"
            raise table.refuse(row, text, "Describe it there")
    return summaries


def _renamed(table: Table, names: Mapping[str, str]) -> Table:
    columns = {names.get(name, name): values for name, values in table.columns.items()}
    return replace(table, columns=columns)


def _of_openquake(table: Table, details: Given) -> Imported:
    """Losses of events by loss type, each of which is a summary."""
    # A total has loss types that may be there too, and an insured loss is part of another.
    kinds = table.dimensions.get("loss_type")
    found = [] if kinds is None else sorted(set(kinds.tolist()))
    parts = [part for kind in found for part in kind.replace("_ins", "").split("+")]
    twice = sorted({part for part in parts if parts.count(part) > 1})
    alone = [kind for kind in found if kind.split("_")[0] in _ALONE]
    if twice or (alone and len(found) > 1):
        message = f"losses of the types {', '.join(found)[:200]} are not to be added"
        hint = f"Leave out lines, so that {(twice or alone)[0]} is there once and alone"
        raise InputError(message, hint=hint, source=table.source)
    return _of_periods(_renamed(table, {"year": "Period", "loss": "Loss"}), details)


def _of_climada(table: Table, details: Given) -> Imported:
    """Events of sampled years; sampled with replacement, one may happen twice in a year."""
    named = _renamed(table, {"year": "Period", "at_event": "Loss"})
    return _of_periods(named, replace(details, repeated=True))


_ALONE = frozenset(
    ("occupants", "residents", "affectedpop", "injured", "number", "area", "claim", "reinsurance")
)
"""Loss types of people and buildings, and what is part of other losses."""
_NUMBERS = frozenset(("Loss", "loss", "at_event", "PeriodWeight"))
_WHEN = "Year Month Day Hour Minute PeriodWeight"


def _fields(needed: str, others: str = "", ignored: str = "") -> list[Field]:
    """Columns by their names."""
    found = [Field(name, "ignored") for name in ignored.split()]
    for names, is_needed in ((needed, True), (others, False)):
        for name in names.split():
            kind: Kind = "number" if name in _NUMBERS else "date" if name == "Date" else "integer"
            found.append(Field(name, kind, is_needed))
    return found


_SPLT = "Period EventId SummaryId SampleId Loss"
_SELT = "EventId SummaryId SampleId Loss"
_YLT = f"EventId SummaryId SampleId SummarySetId Date {_WHEN}"
_ASIDE = "rup_id ses_id rlz_id variance pla_loss injured fatalities homeless non_operational"
FORMS: Final[Mapping[str, Form]] = {
    "splt": Form(_fields(_SPLT, f"SummarySetId {_WHEN}", "ImpactedExposure"), _of_periods),
    "selt": Form(_fields(_SELT, "SummarySetId", "ImpactedExposure"), _of_events),
    "ylt": Form(_fields("Period Loss", _YLT, "ImpactedExposure"), _of_periods, dimensions=True),
    "openquake": Form(
        _fields("EventId year loss", "SummaryId", _ASIDE), _of_openquake, dimensions=True
    ),
    "climada": Form(_fields("EventId year at_event"), _of_climada),
}
"""By name."""
