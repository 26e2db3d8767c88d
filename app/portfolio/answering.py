"""Answers to questions about loss sets: rows of reports, and what goes with them.

An answer is a function of the content of the sets and the query, which its entity tag digests. What
of it costs most is kept: open sets, which losses of them happen when, and the losses of each
occurrence that a programme is applied to. So another programme, as of a slider, begins with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np

from app.engine.ledger import Kept
from app.engine.workers import Workers
from app.errors import InvalidOptionError
from app.http.identity import Identity
from app.losses.analyses import OrderedCalls
from core.arrays import Floats, Rows
from core.budget import current
from core.errors import InputError
from core.portfolio.combining import Subject as Whole
from core.portfolio.contributions import (
    CONTRIBUTIONS,
    KEYS,
    Amounts,
    contribute,
    contribute_amounts,
)
from core.portfolio.curves import REPORTED, report_cells, roll_up
from core.portfolio.inuring import Subject, run_programme
from core.portfolio.layers import Recoveries, cells_of
from core.portfolio.noting import notes_of, notes_on
from core.portfolio.tails import Aim
from core.portfolio.uncertainty import BANDS, Doubt, bands
from core.slices import slices

from .asking import Asked, kinds_of, question_of, years_of
from .contents import OpenSet, SetSource
from .encoding import Table
from .files import STAGE
from .grouping import Grouping, check_some_pass, group
from .layering import (
    LAYERS,
    RECOVERIES,
    check_hours,
    insured_values,
    join,
    layer_rows,
    losses_of,
    lossless,
    names_of,
    read_programme,
    recovery_rows,
)
from .noting import apart, beyond, idle, lacking, noisy, of_losses, of_sets, shortened
from .perils import read_perils
from .query import Query

T = TypeVar("T")
_WIDEST = 8
_MEANS = {"SampleType": 1, "EPCalc": 1, "SampleId": 0}
"""Columns, and the value in them of rows of numerical means."""
_NO_MEANS = "The loss set {} has no numerical means, so rows of means are left out"
_NO_SAMPLES = "There are numerical means only, so rows of samples are left out"


class Prepared(NamedTuple):
    """Losses that count, by group, and when they happen."""

    grouping: Grouping
    whole: Whole


class Layered(NamedTuple):
    """What a programme makes of the losses of all groups."""

    subject: Subject
    recoveries: Recoveries
    run: Callable[[Subject], Recoveries]
    """Makes the same of other losses."""


class Answer(NamedTuple):
    """Tables, and what is said of them."""

    tables: Sequence[Table]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers questions about loss sets."""

    source: SetSource
    prepared: Kept[Any]
    engine: Workers
    max_groups: int

    def ask(self, caller: Identity, values: Mapping[str, Any]) -> Asked:
        """Parse a question, and find its sets.

        Raises:
            InvalidOptionError: a member is unknown, missing, invalid or contradicts another.
            NotFoundError: the caller has no such set.
        """
        query = Query.parse(values)
        return Asked(query, [self.source.sets.find(caller, part.id) for part in query.loss_sets])

    def answer(self, request: Asked) -> Answer:
        """Answer a question.

        Raises:
            CoreError, ServiceError: it contradicts the sets, or there is no memory for it.
        """
        try:
            notes = [_NO_MEANS.format(ident) for ident in request.without_means]
            notes += of_sets(request.query, request.sets)
            if not request.has_samples:
                _check_report(request.query.report)
                notes.append(_NO_SAMPLES)
            tables = list(self._tables(request, notes))
        except InputError as e:
            option = e.parameter or "loss_sets"
            raise InvalidOptionError(e.message, hint=e.hint, option=option) from e
        if request.without_means or not request.has_samples:
            tables = [_some_rows(table, means=not request.has_samples) for table in tables]
        return Answer(_named(tables, request.query.table), notes + lacking(request.query, tables))

    def _tables(self, request: Asked, notes: list[str]) -> Iterator[Table]:
        query = request.query
        sets = [self.source.open(record) for record in request.sets]
        prepared = self._prepared(request, sets)
        layered = None
        if query.programme is not None:
            try:
                layered = self._layered(replace(request, query=query.of_parts), sets)
            except InvalidOptionError as e:
                if query.programme_by and e.members.get("option") == "group_by":
                    e.members["option"] = "programme_by"
                raise
            notes += notes_of(layered.recoveries.programme)
            notes += notes_on(layered.recoveries)
            notes += idle(layered.recoveries.programme, layered.subject)
        notes += of_losses(query, sets)
        notes += beyond(query, prepared.whole)
        notes += apart(query)
        if query.report == "contributions":
            found = list(self._contributions(request, prepared, sets, layered))
            notes += shortened(found[1].pieces)
            yield from found
        elif query.report == "uncertainty":
            doubts = self._uncertainty(request, prepared, layered)
            notes += noisy(doubts.pieces)
            yield doubts
        else:
            yield from self._roll(request, prepared, layered)
        if layered is not None:
            rows = {"layers": layer_rows, "summary": layer_rows, "recoveries": recovery_rows}
            if query.report in rows:
                report = RECOVERIES if query.report == "recoveries" else LAYERS
                pieces = list(rows[query.report](layered.recoveries))
                yield Table(report, pieces, names_of(layered.recoveries.programme), request.width)
        self.source.check(sets)

    def _roll(self, request: Asked, prepared: Prepared, layered: Layered | None) -> Iterator[Table]:
        """Yield the tables of groups, of the losses that are asked for."""
        grouping, whole = prepared
        query, question = request.query, question_of(request, whole)
        if not question.reports:
            return
        if layered is None or query.of == "gross":
            rolled = roll_up(whole, question, OrderedCalls(self.engine))
        else:
            losses, joined = losses_of(layered.recoveries, query.of)
            cells = cells_of(losses, layered.subject.parts, whole.groups, joined)
            of_cells = report_cells(cells, whole, (0, whole.groups), question)
            rolled = chain(*zip(*of_cells, strict=True))
        found: dict[str, list[Rows]] = {name: [] for name in question.reports}
        for report, rows in rolled:
            found[report].append(_numbered(rows, grouping))
        for name, pieces in found.items():
            yield Table(REPORTED[name], pieces, grouping.info, request.width)

    def _contributions(
        self, request: Asked, prepared: Prepared, sets: Sequence[OpenSet], layered: Layered | None
    ) -> Iterator[Table]:
        """Yield what groups contribute to the points of the whole, and what is behind them."""
        query, (grouping, subject) = request.query, prepared
        years = tuple(years_of(query, subject) or ())
        aims = [
            Aim(years, kind, band=query.band, leave_one_out=query.leave_one_out)
            for kind in kinds_of(query)
        ]
        if layered is None or query.of == "gross":
            losses = self._kept(request, sets, "whole", lambda: subject.whole().occurrence_losses())
            found = [contribute(subject, losses, aim) for aim in aims]
        else:
            amounts = _amounts(layered, query.of)
            found = [contribute_amounts(subject, amounts, aim) for aim in aims]
        rows = [_numbered(each.rows, grouping) for each in found]
        yield Table(CONTRIBUTIONS, rows, grouping.info, _WIDEST)
        yield Table(KEYS, [each.keys for each in found], None, _WIDEST)

    def _uncertainty(self, request: Asked, prepared: Prepared, layered: Layered | None) -> Table:
        """Return the bands of averages and points of groups."""
        query, (grouping, subject) = request.query, prepared
        years = tuple(years_of(query, subject) or ())
        doubt = Doubt(years, query.confidence, query.tolerance, seed=query.seed)
        cells = None
        if layered is not None and query.of != "gross":
            losses, joined = losses_of(layered.recoveries, query.of)
            cells = cells_of(losses, layered.subject.parts, subject.groups, joined)
        pieces = bands(subject, doubt, OrderedCalls(self.engine), cells)
        rows = [_numbered(piece, grouping) for piece in pieces]
        return Table(BANDS, rows, grouping.info, _WIDEST)

    def _kept(self, request: Asked, sets: Sequence[OpenSet], kind: str, make: Callable[[], T]) -> T:
        """Return something of the losses that count, which costs what it holds."""

        def measured() -> tuple[T, int]:
            before = current().held
            result = make()
            # Nothing is kept that was computed of missing pages.
            self.source.check(sets)
            return result, current().held - before

        found: T = self.prepared.get((kind, request.subject), measured)
        return found

    def _layered(self, request: Asked, sets: Sequence[OpenSet]) -> Layered:
        """Run the programme over all groups."""
        grouping, whole = self._prepared(request, sets)
        programme = read_programme(request.query, sets)
        perils = read_perils(request.query.perils, programme, whole.joint)
        check_hours(request.query, programme, sets)
        values = insured_values(request.query, sets, grouping.labels)

        def make() -> Subject:
            losses = [whole.occurrence_losses(number) for number in range(whole.groups)]
            return join(losses, grouping.labels, whole.calendar, whole.samples, values)

        subject = self._kept(request, sets, f"layers {request.query.insured_value}", make)
        without = lossless(request.query, programme, sets, grouping.labels)
        subject = subject._replace(names=(*subject.names, *without), perils=perils)

        def run(subject: Subject) -> Recoveries:
            calls: OrderedCalls[Any, Any] = OrderedCalls(self.engine)
            return run_programme(programme, subject, whole.calendar, whole.samples, calls)

        return Layered(subject, run(subject), run)

    def _prepared(self, request: Asked, sets: Sequence[OpenSet]) -> Prepared:
        """Return which losses count, by group, and when they happen."""

        def prepare() -> Prepared:
            grouping = group(request.query, sets, self.max_groups)
            pairing = request.query.pairing_seed, request.query.filter.periods
            whole = Whole(grouping.members, len(grouping.keys), *pairing)
            check_some_pass(request.query.filter, whole.joint)
            return Prepared(grouping, whole)

        return self._kept(request, sets, "groups", prepare)


def _amounts(layered: Layered, kind: str) -> Amounts:
    """Return what contributions to net or ceded losses are of."""
    subject, recoveries, run = layered
    gross = subject.losses

    def without(group: int) -> Floats:
        rest = np.zeros(len(gross.losses))
        for a, b in slices(len(subject.parts), STAGE):
            rest[a:b] = np.where(subject.parts[a:b] == group, 0.0, gross.losses[a:b])
        try:
            recoveries = run(subject._replace(losses=gross._replace(losses=rest)))
        except InputError as e:
            left = f"with leave_one_out, of all but the group {subject.names[group]}"
            e.args = (f"{left}, {e.message}",)
            raise
        return losses_of(recoveries, kind)[0].losses

    losses, joined = losses_of(recoveries, kind)
    return Amounts(losses, subject.parts, joined, without)


def _named(tables: Sequence[Table], name: str | None) -> Sequence[Table]:
    """Return the table of a name; all without one."""
    found = [table for table in tables if name in {None, table.report.name}]
    if not found:
        names = ", ".join(table.report.name for table in tables)
        raise InvalidOptionError(
            f"the answer has no table {name!r:.80}", hint=f"It has {names}", option="table"
        )
    return found


def _numbered(rows: Rows, grouping: Grouping) -> Rows:
    """Name summaries by their ids, where groups are summaries."""
    if grouping.is_by_summary and len(rows):
        rows = rows.copy()
        rows["SummaryId"] = np.array(grouping.keys, np.int32)[:, 0][rows["SummaryId"] - 1]
    return rows


def _check_report(name: str) -> None:
    """Refuse a report of samples where there are none."""
    if name in {"contributions", "uncertainty"}:
        fault = f"the report {name} is of samples, and there are numerical means only"
        raise InvalidOptionError(fault, hint="Ask for averages, curves or periods", option="report")


def _some_rows(table: Table, *, means: bool) -> Table:
    """Leave out the rows of samples or, which would be those of some sets alone, those of means."""
    pieces = table.pieces
    for name in _MEANS.keys() & {column.name for column in table.report.columns}:
        pieces = [rows[(rows[name] == _MEANS[name]) == means] for rows in pieces]
    return table._replace(pieces=pieces)
