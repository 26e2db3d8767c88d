"""What is said of an answer beside its tables, of points that are not there or tell less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from core.arrays import Rows
from core.portfolio.combining import Subject as Whole
from core.portfolio.contributions import MOST_KEYS
from core.portfolio.inuring import Perils, Subject
from core.portfolio.joining import are_parts, longest_return_period
from core.portfolio.labels import apart_notes
from core.portfolio.losses import Int32s
from core.portfolio.programme import Programme
from core.slices import slices

from .contents import OpenSet
from .encoding import Table
from .files import STAGE
from .grouping import absent
from .query import Query
from .records import LossSet

_NONE = np.zeros(0, np.int32)
_NAMED = 10
"""Return periods that a note has."""
_ROUNDING = 1e-6
"""Years by which weights may make a return period too short, and part of a sum of shares."""
_BOTH_SIDES = 3.92
"""Width of an interval of 95 %, in standard errors."""


def of_sets(query: Query, sets: Sequence[LossSet]) -> Iterator[str]:
    """Say how sets go together, and what was said when each was made."""
    first: dict[str, str] = {}
    for each in sets:
        first.setdefault(each.value["catalogue"], each.id)
    if len(first) > 1 and not query.blend:
        yield (
            f"The years of {' and '.join(first.values())} are of other catalogues, and paired at"
            f" random by pairing_seed={query.pairing_seed}: another seed gives other tails"
        )
        if any(part.weight != 1 for part in query.loss_sets):
            yield "Weights multiply losses, and years are added: blend makes a mixture of models"
        undated = [each.id for each in sets if not each.value["dated"]]
        if query.programme and 0 < len(undated) < len(sets):
            yield (
                f"The occurrences of {' and '.join(undated)} have no dates, and come before the"
                " dated ones of their period"
            )
    known = {each.value["perspective"] for each in sets} - {None}
    if known and (unknown := [each.id for each in sets if each.value["perspective"] is None]):
        fault = f"The perspective of {' and '.join(unknown)} is not known"
        yield f"{fault}, and others have {', '.join(known)}: do they go together?"
    if query.filter.periods is not None:
        low, high = query.filter.periods
        yield f"Losses of periods {low} to {high} count, and means and points are of all periods"
    for each in sets:
        yield from (f"The loss set {each.id}: {note}" for note in each.value.get("notes", ()))


def of_losses(query: Query, sets: Sequence[OpenSet]) -> Iterator[str]:
    """Say what the losses of sets and their labels show to be likely a mistake."""
    yield from _unheard(query, sets)
    yield from _unlike(query, sets)
    yield from _cut(query, sets)


def _unheard(query: Query, sets: Sequence[OpenSet]) -> Iterator[str]:
    """Say which values and events that the filter and perils name one by one have no loss."""
    for name, value in absent(query.filter, sets):
        yield f"Of filter.dimensions.{name} no loss set has a loss of {value}"
    known = [each.losses.table.event_ids for each in sets]
    for place, text in (
        ("filter.events", query.filter.events or ""),
        ("perils", ",".join(query.perils.values())),
    ):
        names = [part.strip() for part in text.split(",")]
        ids = np.array([int(name) for name in names if name.isdecimal()], np.int64)
        if missing := ids[~np.isin(ids, np.concatenate(known))].tolist():
            yield f"Of {place} no loss set has a loss of {_listed(missing)}"


def shortened(keys: Sequence[Rows]) -> Iterator[str]:
    """Say of how many points the events or periods in table keys are not all."""
    rows = np.concatenate(keys)
    points = [rows["EPType"], rows["ReturnPeriod"], rows["Catalogue"] > 0]
    lists, of_rows = np.unique(np.column_stack(points), axis=0, return_inverse=True)
    shares = np.bincount(of_rows.ravel(), rows["Share"])
    if count := int(np.count_nonzero(shares < 1 - _ROUNDING)):
        yield (
            f"Table keys has the {MOST_KEYS} largest events, and periods, of each point: {count} of"
            f" {len(lists)} such lists leave some out, and their Share is less than 1 together"
        )


def _cut(query: Query, sets: Sequence[OpenSet]) -> Iterator[str]:
    """Say which sets of several catalogues are likely parts of one."""
    calendars = {each.record.value["catalogue"]: each for each in sets}
    for one, other in combinations([] if query.blend else calendars.values(), 2):
        if are_parts(one.calendar, other.calendar):
            yield (
                f"Most events of {one.record.id} or {other.record.id} happen in the same periods as"
                " in the other: if both are parts of one catalogue, which lack events without a"
                " loss, import them as one table with a dimension that tells them apart (of an elt"
                " give each part all events, with a loss of 0 too): they are then added by event"
            )
            return


def idle(programme: Programme, subject: Subject) -> Iterator[str]:
    """Say of which labels and perils of layers no loss counts, and which perils no layer is of."""
    layers, losses = programme.layers, subject.losses
    names, of_occurrences = subject.perils or Perils((), _NONE)
    scopes = {label for layer in layers for label in layer.scope}
    perils = {name for layer in layers for name in layer.perils}
    for field, named, known in (
        ("Scope", scopes, _with_loss(subject.names, subject.parts) if scopes else set()),
        ("ReinsPeril", perils, _with_loss(names, losses.occurrences, of_occurrences)),
    ):
        if lossless := sorted(named - known):
            yield f"Of {_listed(lossless)} in {field} no loss counts: nothing is recovered of them"
    # The windows of a layer of all perils are of one each.
    is_windowed = any(layer.hours and not layer.perils for layer in layers)
    if unnamed := [] if is_windowed else sorted({*names} - {"", *perils}):
        yield f"No layer is of {_listed(unnamed)} in perils: their events count as of no peril"


def _with_loss(names: Sequence[str], numbers: Int32s, owners: Int32s | None = None) -> set[str]:
    """The names whose numbers rows have, by way of another table where there is one."""
    found = np.zeros(len(names), np.bool_)
    for a, b in slices(len(numbers) if names else 0, STAGE):
        found[numbers[a:b] if owners is None else owners[numbers[a:b]]] = True
    return {name for name, is_found in zip(names, found, strict=True) if is_found}


def _unlike(query: Query, sets: Sequence[OpenSet]) -> Iterator[str]:
    """Say which labels of several sets are nearly alike, where losses are told apart by them."""
    infos = [each.info.columns for each in sets if each.info is not None]
    names = [*query.group_by, *query.programme_by, *query.filter.dimensions, *query.filter.exclude]
    for name in dict.fromkeys(names) if len(infos) > 1 else ():
        columns = [columns[name] for columns in infos if name in columns]
        yield from apart_notes(name, np.concatenate(columns)) if columns else ()


def beyond(query: Query, whole: Whole) -> Iterator[str]:
    """Say which return periods are longer than the periods can tell."""
    longest = longest_return_period(whole.calendar)
    if years := sorted(y for y in query.return_periods or () if y > longest):
        yield (
            f"Return periods of more than {longest} years ({_listed(years)}) are beyond what the"
            " periods tell: points there come of other samples of the same periods"
        )


def apart(query: Query) -> Iterator[str]:
    """Say why points are not those of the curves."""
    if query.report in {"contributions", "uncertainty"}:
        yield (
            "A loss at a return period is that of one period and sample, where curves interpolate"
            " between two; TVaR is the mean of the tail, as in curves with tvar=weight"
        )


def lacking(query: Query, tables: Sequence[Table]) -> list[str]:
    """Say which return periods no curve has a point at, and that averages have no losses."""
    curves = [table for table in tables if table.report.name in {"ept", "psept"}]
    points = {
        y for table in curves for rows in table.pieces for y in np.unique(rows["ReturnPeriod"])
    }
    years = sorted(set(query.return_periods or ()) - points) if curves else []
    fault = f"No curve has a point at the return periods {_listed(years)}"
    notes = [f"{fault}: no loss, or no weight of a period, reaches them"] if years else []
    averages = [rows["MeanLoss"] for t in tables if t.report.name == "aal" for rows in t.pieces]
    if averages and not np.concatenate(averages).any():
        notes.append("All averages are 0: of the events and summaries that count none has a loss")
    return notes


def _listed(years: Sequence[int] | Sequence[str]) -> str:
    return ", ".join(map(str, years[:_NAMED])) + ", …" * (len(years) > _NAMED)


def noisy(pieces: Sequence[Rows]) -> Iterator[str]:
    """Say how many bands are narrower than the noise of samples beside them."""
    error, low, high = (
        np.concatenate([rows[name] for rows in pieces]) for name in ("SampleError", "Low", "High")
    )
    if count := int(np.count_nonzero(_BOTH_SIDES * error > high - low)):
        yield (
            f"{count} bands are narrower than the noise of the samples beside them (SampleError):"
            " a band is of the periods, with the samples that there are. More samples help"
        )
