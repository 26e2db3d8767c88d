"""Programmes of reinsurance, run over groups of losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from app.errors import InvalidOptionError
from app.losses.selection import parse_ids
from core.arrays import Rows
from core.errors import names_hint
from core.losses.inputs import SummaryInfo
from core.losses.reports import Report
from core.losses.reports.report import SAMPLE_TYPE, amount, as_rows, check_width, integer, number
from core.portfolio.inuring import Subject, join_parts
from core.portfolio.layers import Recoveries
from core.portfolio.losses import Calendar, Int32s, OccurrenceLosses
from core.portfolio.programme import Programme, parse_programme
from core.slices import slices

from .contents import OpenSet
from .files import STAGE
from .grouping import described, rate_of
from .query import SUMMARY, Query

_LAYER = integer("Layer", "ReinsNumber of the layer")
_money, _share = partial(amount, decimals=6, dtype="f8"), partial(number, decimals=6, dtype="f8")
LAYERS = Report(
    name="layers",
    title="Layers",
    columns=(
        _LAYER,
        SAMPLE_TYPE,
        _money("ExpectedLoss", description="Mean of what the placed share recovers in a period"),
        _money("SDLoss", description="Standard deviation of that"),
        _share("Attachment", description="Probability that it recovers anything in a period"),
        _share(
            "Exhaustion",
            description="Probability that a period takes its annual limit, AggLimit or that of all"
            " reinstatements, or, if it has none, an occurrence its limit",
        ),
        _money("Premium", description="Premium of the placed share"),
        _money("ReinstatementPremium", description="Expected premium of reinstatements"),
        _share(
            "RateOnLine",
            description="Premium over OccLimit (but of AXL and SL), else RiskLimit (of FAC and PR),"
            " else AggLimit",
        ),
        _share("LossOnLine", description="Expected loss over the placed part of this limit"),
    ),
    scope="run",
    key="Layer",
)
RECOVERIES = Report(
    name="recoveries",
    title="Recoveries by period and sample",
    columns=(
        _LAYER,
        integer("Period", "Period"),
        integer("SampleId", "Sample; 0 is the numerical mean"),
        _money("CededLoss", description="What the placed share recovers"),
        _money("ReinstatementPremium", description="Premium of reinstatements that is due"),
    ),
    scope="run",
    key="Layer",
)
_WIDTH = 8
_HOURS_PER_DAY = 24


def read_programme(query: Query, sets: Sequence[OpenSet]) -> Programme:
    """Parse the programme of a query.

    Raises:
        InputError: it contradicts itself.
        InvalidOptionError: its amounts are in another currency than the losses, or a layer covers
            some groups where there are none.
    """
    programme = parse_programme(query.programme)
    own = query.currency or sets[0].record.value["currency"]
    if programme.currency not in {None, own}:
        raise InvalidOptionError(
            f"the programme is in {programme.currency}, and losses are in"
            f" {own or 'a currency that is not known'}",
            hint="Answers are in the currency of the programme: give"
            f' {{"currency": "{programme.currency}"}}, and rates of the other currencies',
            option="programme",
        )
    for layer in programme.layers:
        is_surplus = layer.kind == "SS"
        lacks_values = is_surplus > bool(query.insured_value)
        if layer.of_risks and len(sets) > 1:
            fault = f"{layer.place} has terms of risks, which are the summaries of one loss set"
            raise InvalidOptionError(fault, hint="Ask about one loss set", option="programme")
        if layer.of_risks and (query.group_by != [SUMMARY] or lacks_values):
            values = ', "insured_value": …' * is_surplus
            fault = "and losses are not grouped by risk"
            if query.group_by == [SUMMARY]:
                fault = "which have no insured values"
            raise InvalidOptionError(
                f"{layer.place} has terms of risks, {fault}",
                hint=f'Give {{"group_by": ["{SUMMARY}"]{values}}}, of a loss set of risks; or'
                f" {SUMMARY} as programme_by, for the whole",
                option="programme",
            )
        if layer.scope and not query.group_by:
            label, hint = layer.scope[0], _grouped(layer.scope[0], sets)
            if query.report != "contributions":
                hint += "; or give it as programme_by, for the whole"
            fault = f"{layer.place}.Scope has {label!r}, and losses are those of one group"
            raise InvalidOptionError(fault, hint=hint, option="programme")
    if query.insured_value is not None and all(layer.kind != "SS" for layer in programme.layers):
        fault = "insured values are for surplus shares (SS), and no layer is one"
        raise InvalidOptionError(fault, hint="Leave insured_value out", option="insured_value")
    return programme


def lossless(
    query: Query, programme: Programme, sets: Sequence[OpenSet], labels: Sequence[str]
) -> list[str]:
    """Return labels in scopes that are no group's, as summaries that have them have no loss."""
    missing = {label for layer in programme.layers for label in layer.scope}.difference(labels)
    return sorted(missing & described(sets, query.group_by)) if missing else []


def check_hours(query: Query, programme: Programme, sets: Sequence[OpenSet]) -> None:
    """Refuse hours that are no whole days of losses whose dates are days.

    A calendar of several sets has minutes as soon as one has, so that it does not tell.

    Raises:
        InvalidOptionError: a set that has a peril of such a layer has no times of day.
    """
    for layer in programme.layers:
        if layer.hours % _HOURS_PER_DAY == 0:
            continue
        lists = [parse_ids(query.perils[name], f"perils.{name}", least=0) for name in layer.perils]
        for each in sets:
            happening = each.losses.table.event_ids
            concerned = not lists or any(np.isin(ids, happening).any() for ids in lists)
            if concerned and each.calendar.dated and not each.calendar.granular:
                fault = f"{layer.place}.HoursClause.Hours is {layer.hours:g}, and dates of the"
                fault += f" loss set {each.record.id} are days"
                hint = "Give a multiple of 24, or a loss set whose dates have times of day"
                raise InvalidOptionError(fault, hint=hint, option="programme")


def _grouped(label: str, sets: Sequence[OpenSet]) -> str:
    """Tell how a layer may cover the group of a label."""
    columns = [found for each in sets if each.info for found in each.info.columns.items()]
    names = [name for name, texts in columns if (texts == label).any()]
    hint = f': {{"group_by": ["{names[0]}"]}}' if names else ", if there is one"
    return f"Group by the dimension that has {label}{hint}"


def insured_values(
    query: Query, sets: Sequence[OpenSet], labels: Sequence[str]
) -> Mapping[str, float] | None:
    """Return the insured value of each risk, which groups are, if a dimension is asked for.

    They are in the currency of the answer, as losses are; weights are of losses alone.

    Raises:
        InvalidOptionError: there is no such dimension, or a value is no number.
    """
    name, info = query.insured_value, sets[0].info
    if name is None:
        return None
    columns = {} if info is None else info.columns
    if info is None or name not in columns:
        raise InvalidOptionError(
            f"the loss set {sets[0].record.id} has no dimension {name[:80]!r}",
            hint=names_hint(name, columns) if columns else "Give it a summary_info with it",
            option="insured_value",
        )
    texts = dict(zip(map(str, info.summary_ids.tolist()), columns[name].tolist(), strict=True))
    rate, values = rate_of(query, sets[0]), {}
    for label in labels:
        text = texts.get(label, "")
        try:
            values[label] = float(text) * rate
        except ValueError:
            raise InvalidOptionError(
                f"the {name[:80]} of summary {label} is {text[:80]!r}, and no number",
                hint="Give the dimension with the insured value of every risk",
                option="insured_value",
            ) from None
    return values


def join(
    losses: Sequence[OccurrenceLosses],
    labels: Sequence[str],
    calendar: Calendar,
    samples: int,
    values: Mapping[str, float] | None,
) -> Subject:
    """Return the losses of all groups as what a programme applies to.

    Raises:
        InvalidOptionError: two groups have the same label.
    """
    if len(set(labels)) < len(labels):
        repeat = next(label for label in labels if labels.count(label) > 1)
        raise InvalidOptionError(
            f"two groups have the label {repeat[:80]!r}, by which layers name them",
            hint="Group by fewer dimensions, or by values without ' / '",
            option="group_by",
        )
    if list(labels) == [""] and values is None:
        return Subject(losses[0])
    return join_parts(dict(zip(labels, losses, strict=True)), calendar, samples, values)


def layer_rows(recoveries: Recoveries) -> Iterator[Rows]:
    """Yield the rows of ``LAYERS``."""
    rows = [
        (result.number, 1 if result.mean else 2, *result[3:]) for result in recoveries.results()
    ]
    table = np.array(rows, LAYERS.dtype(_WIDTH))
    check_width(table)
    yield table


def names_of(programme: Programme) -> SummaryInfo:
    """Return names of layers, as a column to join."""
    layers = sorted(programme.layers, key=lambda layer: layer.number)
    numbers = np.array([layer.number for layer in layers], np.int32)
    return SummaryInfo(numbers, {"Name": np.array([layer.name for layer in layers], np.str_)})


def recovery_rows(recoveries: Recoveries) -> Iterator[Rows]:
    """Yield the rows of ``RECOVERIES`` that are not 0, layer by layer."""
    dtype, subject = RECOVERIES.dtype(_WIDTH), recoveries.subject
    for k, layer in enumerate(recoveries.programme.layers):
        ceded, premiums = recoveries.ceded(k), recoveries.reinstatement_premiums(k)
        for a, b in slices(len(ceded), STAGE, 1 << 17):
            some = a + np.flatnonzero(ceded[a:b] > 0)
            if len(some):
                columns: list[Any] = [subject.periods[some], subject.samples[some]]
                amounts = [ceded[some], premiums[some]]
                yield as_rows(dtype, [layer.number, *columns, *amounts])


def losses_of(recoveries: Recoveries, kind: str) -> tuple[OccurrenceLosses, Int32s | None]:
    """Return net or ceded losses, and with which occurrence each counts as one, if not its own."""
    if kind == "net":
        return recoveries.net_losses(), None
    return recoveries.ceded_losses(), recoveries.joined
