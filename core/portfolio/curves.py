"""What groups lose a year: averages, curves and the losses of periods, as reports have them.

AAL, EPT and PSEPT are those of :mod:`core.losses.reports`, computed from the cells of a
:class:`~core.portfolio.combining.Subject` instead of a ledger's. Where a group is a summary of
a stream without losses of 0, they are the same to the last bit. The column ``SummaryId`` is the
number of the group, from 1 on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Floats, Indices, Rows
from ..budget import Scope, check_room, current
from ..errors import BudgetExceededError
from ..losses._kernels.annual import COLUMNS, MOMENTS, annual_losses
from ..losses._kernels.cells import Cells
from ..losses._kernels.layout import LANES
from ..losses.events import StreamHeader
from ..losses.finishing import ParallelMap
from ..losses.format import Kind
from ..losses.inputs import Occurrence, Periods, ReturnPeriods
from ..losses.ledger.batches import Batch, Stretches
from ..losses.ledger.memory import make_arena
from ..losses.reports import REPORTS
from ..losses.reports.exceedance import REPEATED
from ..losses.reports.report import (
    SUMMARY_ID,
    Calculator,
    Report,
    RunOptions,
    RunSetting,
    amount,
    as_rows,
    empty_rows,
    integer,
    number,
)
from ..losses.reports.tallying import Repeated, pays
from ..slices import grouped
from ..sorting import starts_of
from ._kernels.moments import reduce_cells
from .combining import CELL_BYTES, Subject
from .joining import weights_of
from .losses import Calendar

PLT = Report(
    name="plt",
    title="Period loss table",
    columns=(
        SUMMARY_ID,
        integer("Period", "Period"),
        number("PeriodWeight", 6, "Weight of the period in a mean over periods"),
        integer("SampleId", "Sample; 0 is the numerical mean"),
        amount("Loss", 6, "Sum over the occurrences of the period"),
        amount("MaxLoss", 6, "Largest loss of an occurrence of the period"),
    ),
    scope="run",
)
REPORTED = {name: REPORTS[name] for name in ("aal", "aal_mean", "ept", "psept")} | {"plt": PLT}
"""What can be asked of groups, by name."""
_PART_CELLS = 1 << 20
"""Cells of groups that are computed together, in one thread."""
_AT_ONCE = 8
"""Parts that are computed at the same time, on most machines."""
_REPORTED_BYTES = 100
"""Memory of a cell with what reports of it take, but for curves that are read from tallies."""
_CURVE_CELLS = 1 << 17
"""The same where curves are read: those of a large group come from tallies."""


class Question(NamedTuple):
    """Which reports of groups are wanted, and how."""

    reports: tuple[str, ...]
    """Names of :data:`REPORTED`."""
    return_periods: ReturnPeriods | None = None
    """None for every point of a curve."""
    options: RunOptions = RunOptions()
    float_width: int = 8
    """Bytes of an amount in rows."""


class RolledUp(NamedTuple):
    """Rows of some groups."""

    report: str
    rows: Rows


def roll_up(
    subject: Subject, question: Question, apply: ParallelMap[Any, Any] = map
) -> Iterator[RolledUp]:
    """Compute reports, some groups at a time.

    Groups are computed at the same time as others, or, where the cells of the largest do not fit
    together, one after the other, each by all threads. Rows of a report ascend by group; rows of
    the AAL come as ``aalpy`` has them: analytical rows of all groups, then those of samples.

    Args:
        subject: what groups lose.
        question: reports wanted.
        apply: calls a function for each task, in any number of threads.

    Raises:
        InputError: a sum is beyond float64.
        WorkStoppedError: a group does not fit, or nobody waits for the result.
    """
    sizes = subject.sizes
    reads_curves = _reads_curves(question, subject.calendar)
    size = _CURVE_CELLS if reads_curves else _PART_CELLS
    parts = list(grouped(np.append(0, np.cumsum(sizes)), "roll-up", size))
    of_cell = CELL_BYTES if reads_curves else _REPORTED_BYTES
    together = len(parts) > 1 and _fit_together(parts, of_cell * sizes)
    later: list[RolledUp] = []
    samples = subject.samples

    def compute(part: tuple[int, int]) -> list[tuple[RolledUp, RolledUp]]:
        with Scope("roll-up"):
            calls = map if together else apply
            repeated = None
            if reads_curves and _is_large(part, sizes, samples):
                cells, repeated = subject.distinct_cells(part[0], calls)
            else:
                cells = subject.cells(*part, apply=calls)
            return list(report_cells(cells, subject, part, question, repeated))

    results = apply(compute, parts) if together else map(compute, parts)
    for first, last in itertools.chain.from_iterable(results):
        yield first
        later.append(last)
    yield from (rolled for rolled in later if len(rolled.rows))


def _fit_together(parts: Sequence[tuple[int, int]], sizes: Indices) -> bool:
    """Whether there is memory for the largest parts at the same time."""
    largest = sorted(int(sizes[a:b].sum()) for a, b in parts)[-_AT_ONCE:]
    try:
        check_room("roll-up", sum(largest))
    except BudgetExceededError:
        return False
    return True


def _reads_curves(question: Question, calendar: Calendar) -> bool:
    """Whether all that is wanted are curves at return periods of equally likely periods."""
    at_returns = question.return_periods is not None and len(calendar.weights) == 0
    return at_returns and set(question.reports) <= {"ept", "psept"}


def _is_large(part: tuple[int, int], sizes: Indices, samples: int) -> bool:
    first, last = part
    return last == first + 1 and pays(int(sizes[first]), samples)


def report_cells(
    cells: Cells,
    subject: Subject,
    groups: tuple[int, int],
    question: Question,
    repeated: Repeated | None = None,
) -> Iterator[tuple[RolledUp, RolledUp]]:
    """Yield, for each report, the rows about some groups, and those that come after all others.

    Args:
        cells: of the groups ``groups[0]`` to ``groups[1]``, exclusive.
        subject: whose calendar and samples they have.
        groups: first group, and the one after the last.
        question: reports wanted.
        repeated: periods that each one of ``cells`` stands for, where those are distinct.
    """
    calendar, samples = subject.calendar, subject.samples
    starts = starts_of(cells.summaries.astype(np.int64))
    numbers = cells.summaries[starts[:-1]] + np.int32(1)
    batch = Batch(numbers, starts, cells.periods, _NOTHING, {"cells": cells})
    if repeated is not None:
        batch.shared[REPEATED] = repeated
    # Averages are of all groups, and 0 where there is no loss; curves only of those with one.
    everyone = np.arange(*groups, dtype=np.int32)
    firsts = np.searchsorted(cells.summaries, np.arange(groups[0], groups[1] + 1))
    averaged = Batch(everyone + np.int32(1), firsts, cells.periods, _NOTHING)
    for name in question.reports:
        current().check(name)
        if name == "plt":
            rows = _period_losses(cells, calendar, question.float_width)
            yield RolledUp(name, rows), RolledUp(name, rows[:0])
            continue
        source = batch
        if name in {"aal", "aal_mean"}:
            source = averaged
            if not source.shared:
                source.shared["annual"] = averages(cells, calendar, samples, firsts)
        calculator = _calculator(name, calendar, samples, question)
        if len(source.summaries) == 0:
            rows = empty_rows(REPORTED[name].dtype(question.float_width))
            yield RolledUp(name, rows), RolledUp(name, rows)
            continue
        counts, periods = np.diff(cells.starts[source.groups]), np.diff(source.groups)
        if repeated is not None:
            # Curves are read from tallies, which hold what they take themselves.
            counts = np.minimum(counts, samples + 1)
        with Scope(name, int(calculator.weigh(counts, periods).sum())):
            first, last = calculator.compute(source)
        yield RolledUp(name, first), RolledUp(name, last)


_EMPTY = np.zeros(0, np.int64)
_NOTHING = Stretches(make_arena(0), _EMPTY, _EMPTY, _EMPTY, samples=0, width=4)


def _calculator(name: str, calendar: Calendar, samples: int, question: Question) -> Calculator:
    header = StreamHeader(Kind.SUMMARY, 1, 3, samples, 1, question.float_width)
    nothing = np.zeros(0, np.int32)
    inputs: dict[str, Any] = {
        "occurrence": Occurrence(calendar.periods, nothing, nothing, nothing.astype(np.int64))
    }
    if len(calendar.weights):
        inputs["periods"] = Periods(calendar.weights)
    if question.return_periods is not None:
        inputs["return_periods"] = question.return_periods
    report = REPORTED[name]
    requested = frozenset(question.reports)
    dtype = report.dtype(question.float_width)
    setting = RunSetting(header, dtype, inputs, question.options, requested)
    assert report.calculate is not None  # noqa: S101 - PLT has none, and is not asked for
    return report.calculate(setting)


def averages(cells: Cells, calendar: Calendar, samples: int, starts: Indices) -> Floats:
    """Means and deviations of annual losses, as the AAL defines them.

    Args:
        cells: of groups.
        calendar: periods and their weights.
        samples: len_sample.
        starts: first period of each group in ``cells``, shape (groups + 1,).

    Returns:
        Of the numerical mean and of all samples, as ``annual_losses`` writes them; shape
        (groups, 2, columns).
    """
    lows, highs = np.array([0, 1], np.int64), np.array([1, samples + 1], np.int64)
    with Scope("averages", (16 * MOMENTS + 8) * len(cells.periods)):
        moments = np.empty((len(cells.periods), 2, MOMENTS))
        row, lanes = np.zeros(samples + 1), np.zeros(LANES)
        work = cells.starts + (samples + 1) * np.arange(len(cells.starts))
        for a, b in grouped(work, "averages"):
            columns = (cells.starts[a : b + 1], cells.samples, cells.sums)
            reduce_cells(*columns, row, lanes, lows, highs, moments[a:b])
        weights = np.ones(len(cells.periods))
        if len(calendar.weights):
            weights = (calendar.weights * calendar.periods)[cells.periods - 1]
        results = np.empty((len(starts) - 1, 2, COLUMNS))
        for a, b in grouped(starts, "averages"):
            of_groups = (starts[a : b + 1], calendar.periods, highs - lows)
            annual_losses(moments, weights, *of_groups, results[a:b])
    return results


def _period_losses(cells: Cells, calendar: Calendar, float_width: int) -> Rows:
    dtype = PLT.dtype(float_width)
    current().hold("plt", dtype.itemsize * len(cells.samples))
    rows = np.empty(len(cells.samples), dtype)
    weights = weights_of(calendar)
    for a, b in grouped(cells.starts, "plt"):
        begin, end = cells.starts[a], cells.starts[b]
        counts = np.diff(cells.starts[a : b + 1])
        pair = (np.repeat(column[a:b], counts) for column in (cells.summaries, cells.periods))
        groups, periods = pair
        part = slice(begin, end)
        columns: Sequence[Any] = (
            groups + 1,
            periods,
            weights[periods - 1],
            cells.samples[part],
            cells.sums[part],
            cells.largest[part],
        )
        if begin < end:
            rows[part] = as_rows(dtype, columns)
    return rows
