"""Answers to questions about loss sets: rows of reports, and what goes with them.

An answer is a function of the content of the sets and the query, which its entity tag digests. What
of it costs most is kept: open sets, which losses of them happen when, and the losses of each
occurrence that a programme is applied to. So another programme, as of a slider, begins with these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import orjson

from app.engine.ledger import Kept
from app.engine.workers import Workers
from app.errors import InvalidOptionError
from app.http.identity import Identity
from app.losses.analyses import OrderedCalls
from app.losses.pictures.options import PictureForm, PictureOptions, Theme
from app.losses.tables import packed_texts
from core.arrays import Floats, Rows
from core.budget import current
from core.errors import InputError
from core.losses.inputs import ReturnPeriods
from core.losses.reports.report import RunOptions
from core.portfolio.combining import Subject as Whole
from core.portfolio.contributions import (
    CONTRIBUTIONS,
    KEYS,
    Aim,
    Amounts,
    contribute,
    contribute_amounts,
)
from core.portfolio.curves import REPORTED, Question, report_cells, roll_up
from core.portfolio.inuring import Subject, run_programme
from core.portfolio.layers import Recoveries, cells_of
from core.portfolio.noting import notes_of, notes_on
from core.portfolio.uncertainty import BANDS, Doubt, bands
from core.slices import slices

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
    lossless,
    made,
    names_of,
    read_programme,
    recovery_rows,
)
from .noting import apart, beyond, idle, lacking, noisy, of_losses, of_sets, shortened
from .perils import read_perils
from .query import SUMMARY, Query
from .records import LossSet

T = TypeVar("T")
_ALGORITHM = b"portfolio 9"
"""Changes whenever an answer does, to equal questions."""
_FULL, _PER_SAMPLE = frozenset("Ff"), frozenset("Ww")
"""Letters of curves."""
_FULL_HINT = ", or for curves of F and f, where samples of the same periods reach further"
_WIDEST = 8
_USUAL = (1, 2, 5, 10, 20, 50, 100, 200, 250, 500, 1000, 5000, 10_000)
"""Return periods of a summary that names none."""


_MEANS = {"SampleType": 1, "EPCalc": 1, "SampleId": 0}
"""Columns, and the value in them of rows of numerical means."""
_MADE = {"net": "loss net of the programme", "ceded": "loss ceded to the programme"}
"""Words in titles."""
_NO_MEANS = "The loss set {} has no numerical means, so rows of means are left out"
_NO_SAMPLES = "There are numerical means only, so rows of samples are left out"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the sets that it is about."""

    query: Query
    sets: Sequence[LossSet]

    def etag(self, form: str) -> str:
        """Return the strong entity tag of the answer."""
        values = self.query.model_dump(exclude={"loss_sets": {"__all__": {"id"}}})
        digests = [each.digest for each in self.sets]
        text = orjson.dumps([digests, values, form], option=orjson.OPT_SORT_KEYS)
        hashed = hashlib.blake2b(_ALGORITHM + text, digest_size=16)
        return f'"{hashed.hexdigest()}"'

    @property
    def width(self) -> int:
        """Bytes of an amount: those of the sets, unless others are asked for."""
        own: int = max(each.value["float_width"] for each in self.sets)
        return self.query.float_width or own

    def about(self, notes: Sequence[str]) -> dict[str, Any]:
        """Return what is said of the answer besides its tables."""
        sets = [{"id": each.id, "digest": each.digest} for each in self.sets]
        query = self.query
        return {"report": query.report, "of": query.of, "loss_sets": sets, "notes": list(notes)}

    @property
    def without_means(self) -> list[str]:
        """Ids of the sets for which the answer can have no rows of numerical means."""
        if self.query.report in {"contributions", "uncertainty"}:
            return []
        parts = zip(self.query.loss_sets, self.sets, strict=True)
        # Of repeated losses the mean is known.
        lacking = [e for p, e in parts if not (p.samples or e.value.get("means", True))]
        return [each.id for each in lacking]

    @property
    def has_samples(self) -> bool:
        """Whether there are more than numerical means."""
        return any(each.value["samples"] for each in self.sets)

    def check_form(self, form: str) -> None:
        """Refuse a format that cannot say what groups are, before anything is computed."""
        of_layers = self.query.report in {"layers", "recoveries"}
        if form == "bin" and not of_layers and self.query.group_by not in ([], [SUMMARY]):
            raise packed_texts()

    def picture(self, form: PictureForm, theme: Theme) -> PictureOptions:
        """Return how its curves are drawn."""
        about = self.sets[0].value
        return PictureOptions(
            form=form,
            theme=theme,
            perspective=about["perspective"],
            made=_MADE.get(self.query.of),
            currency=self.query.currency or about["currency"],
            tail_means=True,
            labels={} if self.query.group_by else {1: ""},
        )

    @property
    def subject(self) -> bytes:
        """What identifies the losses that count, whatever is asked of them."""
        names = {"loss_sets", "currency", "rates", "filter", "group_by", "blend"}
        attempts = [each.value["attempt"] for each in self.sets]
        return orjson.dumps(
            [attempts, self.query.model_dump(include=names)], option=orjson.OPT_SORT_KEYS
        )


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

    def ask(self, who: Identity, values: Mapping[str, Any]) -> Asked:
        """Parse a question, and find its sets.

        Raises:
            InvalidOptionError: a member is unknown, missing, invalid or contradicts another.
            NotFoundError: the caller has no such set.
        """
        query = Query.parse(values)
        return Asked(query, [self.source.sets.find(who, part.id) for part in query.loss_sets])

    def answer(self, asked: Asked) -> Answer:
        """Answer a question.

        Raises:
            CoreError, ServiceError: it contradicts the sets, or there is no memory for it.
        """
        try:
            notes = [_NO_MEANS.format(ident) for ident in asked.without_means]
            notes += of_sets(asked.query, asked.sets)
            if not asked.has_samples:
                _check_report(asked.query.report)
                notes.append(_NO_SAMPLES)
            tables = list(self._tables(asked, notes))
        except InputError as e:
            option = e.parameter or "loss_sets"
            raise InvalidOptionError(e.message, hint=e.hint, option=option) from e
        if asked.without_means or not asked.has_samples:
            tables = [_some_rows(table, means=not asked.has_samples) for table in tables]
        return Answer(_named(tables, asked.query.table), notes + lacking(asked.query, tables))

    def _tables(self, asked: Asked, notes: list[str]) -> Iterator[Table]:
        query = asked.query
        sets = [self.source.open(record) for record in asked.sets]
        prepared = self._prepared(asked, sets)
        layered = None
        if query.programme is not None:
            layered = self._layered(asked, prepared, sets)
            notes += notes_of(layered.recoveries.programme)
            notes += notes_on(layered.recoveries)
            notes += idle(layered.recoveries.programme, layered.subject)
        notes += of_losses(query, sets)
        notes += beyond(query, prepared.whole)
        notes += apart(query)
        if query.report == "contributions":
            found = list(self._contributions(asked, prepared, sets, layered))
            notes += shortened(found[1].pieces)
            yield from found
        elif query.report == "uncertainty":
            doubts = self._uncertainty(asked, prepared, layered)
            notes += noisy(doubts.pieces)
            yield doubts
        else:
            yield from self._rolled(asked, prepared, layered)
        if layered is not None:
            rows = {"layers": layer_rows, "summary": layer_rows, "recoveries": recovery_rows}
            if query.report in rows:
                report = RECOVERIES if query.report == "recoveries" else LAYERS
                pieces = list(rows[query.report](layered.recoveries))
                yield Table(report, pieces, names_of(layered.recoveries.programme), asked.width)
        self.source.check(sets)

    def _rolled(self, asked: Asked, prepared: Prepared, layered: Layered | None) -> Iterator[Table]:
        """Yield the tables of groups, of the losses that are asked for."""
        grouping, whole = prepared
        query, question = asked.query, _question(asked, whole)
        if not question.reports:
            return
        if layered is None or query.of == "gross":
            rolled = roll_up(whole, question, OrderedCalls(self.engine))
        else:
            losses, joined = made(layered.recoveries, query.of)
            cells = cells_of(losses, layered.subject.parts, whole.groups, joined)
            of_cells = report_cells(cells, whole, (0, whole.groups), question)
            rolled = chain(*zip(*of_cells, strict=True))
        found: dict[str, list[Rows]] = {name: [] for name in question.reports}
        for report, rows in rolled:
            found[report].append(_numbered(rows, grouping))
        for name, pieces in found.items():
            yield Table(REPORTED[name], pieces, grouping.info, asked.width)

    def _contributions(
        self, asked: Asked, prepared: Prepared, sets: Sequence[OpenSet], layered: Layered | None
    ) -> Iterator[Table]:
        """Yield what groups contribute to the points of the whole, and what is behind them."""
        query, (grouping, subject) = asked.query, prepared
        years = tuple(_years(query, subject) or ())
        aims = [
            Aim(years, kind, band=query.band, leave_one_out=query.leave_one_out)
            for kind in _kinds(query)
        ]
        if layered is None or query.of == "gross":
            losses = self._kept(asked, sets, "whole", lambda: subject.whole().occurrence_losses())
            found = [contribute(subject, losses, aim) for aim in aims]
        else:
            amounts = _amounts(layered, query.of)
            found = [contribute_amounts(subject, amounts, aim) for aim in aims]
        rows = [_numbered(each.rows, grouping) for each in found]
        yield Table(CONTRIBUTIONS, rows, grouping.info, _WIDEST)
        yield Table(KEYS, [each.keys for each in found], None, _WIDEST)

    def _uncertainty(self, asked: Asked, prepared: Prepared, layered: Layered | None) -> Table:
        """Return the bands of averages and points of groups."""
        query, (grouping, subject) = asked.query, prepared
        years = tuple(_years(query, subject) or ())
        doubt = Doubt(years, query.confidence, query.tolerance, seed=query.seed)
        cells = None
        if layered is not None and query.of != "gross":
            losses, joined = made(layered.recoveries, query.of)
            cells = cells_of(losses, layered.subject.parts, subject.groups, joined)
        pieces = bands(subject, doubt, OrderedCalls(self.engine), cells)
        rows = [_numbered(piece, grouping) for piece in pieces]
        return Table(BANDS, rows, grouping.info, _WIDEST)

    def _kept(self, asked: Asked, sets: Sequence[OpenSet], what: str, make: Callable[[], T]) -> T:
        """Return something of the losses that count, which costs what it holds."""

        def measured() -> tuple[T, int]:
            before = current().held
            made = make()
            # Nothing is kept that was computed of missing pages.
            self.source.check(sets)
            return made, current().held - before

        found: T = self.prepared.get((what, asked.subject), measured)
        return found

    def _layered(self, asked: Asked, prepared: Prepared, sets: Sequence[OpenSet]) -> Layered:
        """Run the programme over all groups."""
        grouping, whole = prepared
        programme = read_programme(asked.query, sets)
        perils = read_perils(asked.query.perils, programme, whole.joint)
        check_hours(asked.query, programme, sets)
        values = insured_values(asked.query, sets, grouping.labels)

        def make() -> Subject:
            losses = [whole.occurrence_losses(number) for number in range(whole.groups)]
            return join(losses, grouping.labels, whole.calendar, whole.samples, values)

        subject = self._kept(asked, sets, f"layers {asked.query.insured_value}", make)
        without = lossless(asked.query, programme, sets, grouping.labels)
        subject = subject._replace(names=(*subject.names, *without), perils=perils)

        def run(subject: Subject) -> Recoveries:
            calls: OrderedCalls[Any, Any] = OrderedCalls(self.engine)
            return run_programme(programme, subject, whole.calendar, whole.samples, calls)

        return Layered(subject, run(subject), run)

    def _prepared(self, asked: Asked, sets: Sequence[OpenSet]) -> Prepared:
        """Return which losses count, by group, and when they happen."""

        def prepare() -> Prepared:
            grouping = group(asked.query, sets, self.max_groups)
            given = asked.query.pairing_seed, asked.query.filter.periods
            whole = Whole(grouping.members, len(grouping.keys), *given)
            check_some_pass(asked.query.filter, whole.joint)
            return Prepared(grouping, whole)

        return self._kept(asked, sets, "groups", prepare)


_REPORTS: Mapping[str, tuple[str, ...]] = {
    "averages": ("aal",),
    "curves": ("ept",),
    "periods": ("plt",),
    "summary": ("aal", "ept"),
}
"""Reports of groups, by what is asked for."""


def _amounts(layered: Layered, of: str) -> Amounts:
    """Return what contributions to net or ceded losses are of."""
    subject, recoveries, run = layered
    gross = subject.losses

    def without(group: int) -> Floats:
        rest = np.zeros(len(gross.losses))
        for a, b in slices(len(subject.parts), STAGE):
            rest[a:b] = np.where(subject.parts[a:b] == group, 0.0, gross.losses[a:b])
        return made(run(subject._replace(losses=gross._replace(losses=rest))), of)[0].losses

    losses, joined = made(recoveries, of)
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


def _question(asked: Asked, whole: Whole) -> Question:
    query = asked.query
    reports = list(_REPORTS.get(query.report, ()))
    letters = set(query.curves)
    if "ept" in reports and letters & _PER_SAMPLE:
        reports.append("psept")
        if letters <= _PER_SAMPLE:
            reports.remove("ept")
    wanted = _years(query, whole)
    years = ReturnPeriods(np.array(sorted(wanted, reverse=True), np.int32)) if wanted else None
    # Where periods have weights, a mean of points by count is none of years.
    weighs = query.blend or len(whole.calendar.weights)
    tvar = query.tvar or ("weight" if weighs else "count")
    options = RunOptions(query.confidence, query.curves, tvar)
    return Question(tuple(reports), years, options, asked.width)


def _years(query: Query, whole: Whole) -> list[int] | None:
    """Return the return periods; the usual ones where a report needs some and none are named."""
    if query.return_periods is not None:
        _check_years(query, whole)
    elif query.report in {"summary", "contributions", "uncertainty"}:
        return [years for years in _USUAL if years <= whole.calendar.periods]
    return query.return_periods


def _kinds(query: Query) -> list[Literal["oep", "aep"]]:
    """Return the kinds of curves that letters name: capital ones are AEP."""
    named: dict[Literal["oep", "aep"], bool] = {
        "oep": any(map(str.islower, query.curves)),
        "aep": any(map(str.isupper, query.curves)),
    }
    return [kind for kind, is_named in named.items() if is_named]


def _check_years(query: Query, whole: Whole) -> None:
    """Refuse return periods of which the periods say nothing."""
    full = query.report in {"contributions", "uncertainty"} or set(query.curves) <= _FULL
    reached = whole.calendar.periods * whole.samples
    most = reached if full else whole.calendar.periods
    longest = max(query.return_periods or [0])
    if longest > most and not len(whole.calendar.weights):
        what = "years of all samples" if full else "periods"
        raise InvalidOptionError(
            f"a return period is {longest} years, and there are {most} {what}",
            hint=f"Ask for {most} years at most" + _FULL_HINT * (not full and longest <= reached),
            option="return_periods",
        )


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
