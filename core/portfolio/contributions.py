"""What each group contributes to a point of the whole's curve.

Of the cells of the whole, ``tails.py`` finds those of a point, from the largest loss S on:

* The part of a TVaR is the mean of X, the group's loss, over the tail. Parts sum to the TVaR.
* The part of a VaR is the mean of X over the cells of the band, times VaR over the mean of S there.
  Parts sum to the VaR.

For the AEP, S is the sum over the occurrences of a period, and X that of the group; for the OEP, S
is the largest loss of an occurrence, the earliest of equal ones, and X what the group has of it.
Of what a programme cedes or keeps, X is the amount of the rows of the group: layers take from the
rows that they cover, in proportion to what these bring in. S is the sum over the groups. What is
ceded of a window of an hours clause counts as one in the OEP. What is left of a retention is often
the same in many years, but for the rounding of differences: amounts that agree to nine digits are
tied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Indices, Rows
from ..budget import Scope, current
from ..errors import InputError
from ..losses.inputs.rows import INT_MAX
from ..losses.reports.exceedance import AEP, OEP
from ..losses.reports.report import SUMMARY_ID, Report, amount, as_rows, integer, number
from ..slices import SLICE, grouped, slices
from ..sorting import order_of, starts_of
from ._kernels import attributing
from .assembling import picked
from .combining import Subject
from .joining import check_return_periods
from .losses import Int32s, OccurrenceLosses
from .tails import Aim, Ranked, Tail

CONTRIBUTIONS = Report(
    name="contributions",
    title="Contributions to points of a curve",
    columns=(
        SUMMARY_ID,
        integer("EPType", "1 OEP, 2 OEP TVaR, 3 AEP, 4 AEP TVaR"),
        number("ReturnPeriod", 6, "Years in which the loss is exceeded once, on average"),
        amount("Loss", 6, "Part of the group; the parts sum to the whole"),
        amount("Whole", 6, "Loss, or mean of the losses at and above it (TVaR), of the whole"),
        integer("Cells", "Periods and samples that the part is a mean over"),
        amount("BandLow", 6, "Least loss of the whole in these"),
        amount("BandHigh", 6, "Largest"),
        amount("LeaveOneOut", 6, "Whole minus that of all other groups; these need not sum"),
    ),
    scope="run",
)
KEYS = Report(
    name="keys",
    title="Periods and events behind points of a curve",
    columns=(
        integer("EPType", "1 OEP, 2 OEP TVaR, 3 AEP, 4 AEP TVaR"),
        number("ReturnPeriod", 6, "Years in which the loss is exceeded once, on average"),
        integer("Catalogue", "Catalogue of events, 0 for a period of all"),
        integer("Id", "Event, or period"),
        amount("Loss", 6, "Part of the point"),
        number("Share", 6, "Part of 1"),
    ),
    scope="run",
)
MOST_KEYS = 10
"""Events, and periods, of a point."""
_TYPES = {"oep": OEP, "aep": AEP}
_ROW_BYTES, _AMOUNT_BYTES = 24, 48
_CLOSE = 1e-6
"""Relative difference between the parts and the whole that rounding explains."""
_TIED = 1e-9
"""The same between amounts that a programme makes equal."""
_TINY = 5e-324
_picked = partial(picked, stage="contributions")


class Contributions(NamedTuple):
    """Rows of both reports."""

    rows: Rows
    """Of ``CONTRIBUTIONS``, by return period, type and group."""
    keys: Rows
    """Of ``KEYS``: for VaR and TVaR events, then periods, each from the largest part on."""


class Amounts(NamedTuple):
    """What a programme makes of the rows of all groups."""

    losses: OccurrenceLosses
    """The amounts, from 0 on, row by row of the programme's subject."""
    groups: Int32s
    """Group of each row; empty if there is one."""
    joined: Int32s | None
    """Occurrence with which each counts as one in the OEP; None if that is its own."""
    without: Callable[[int], Floats]
    """Makes the same of all groups but one; 0 in the rows of that."""


def contribute(subject: Subject, whole: OccurrenceLosses, aim: Aim) -> Contributions:
    """Tell what groups contribute to losses.

    Args:
        subject: the groups; every summary of the whole has one.
        whole: ``subject.whole().occurrence_losses()``.
        aim: the points.

    Raises:
        InputError: the groups are not of the whole, or a return period is beyond all periods.
        WorkStoppedError: it does not fit, or nobody waits for the result.
    """

    def parts_of(weights: Floats) -> Floats:
        return _parts(subject, whole, weights)

    def without(group: int) -> Floats:
        # Losses of the rows of the whole without a group.
        rest = np.empty(len(whole.losses))
        for a, b in slices(len(rest), "contributions"):
            rest[a:b] = whole.losses[a:b]
        for _, _, located, losses in subject.located(whole, group, group + 1):
            attributing.take_away(located, losses, rest)
        return rest

    return _contribute(subject, whole, whole, None, aim, parts_of, without)


def contribute_amounts(subject: Subject, amounts: Amounts, aim: Aim) -> Contributions:
    """Tell what groups contribute to what a programme cedes or keeps.

    Args:
        subject: the groups.
        amounts: of all of them.
        aim: the points.

    Raises:
        InputError, WorkStoppedError: as :func:`contribute`.
    """
    rows, aim = amounts.losses, replace(aim, close=_TIED)
    with Scope("contributions", _AMOUNT_BYTES * len(rows.losses)):
        numbers, whole = _added(rows, amounts.joined if aim.kind == "oep" else None)
        groups = amounts.groups if len(amounts.groups) else np.zeros(len(numbers), np.int32)

        def parts_of(weights: Floats) -> Floats:
            parts = np.zeros((2, subject.groups))
            for a, b in slices(len(groups), "contributions"):
                for kind, values in enumerate(weights[:, a:b] * rows.losses[a:b]):
                    parts[kind] += np.bincount(groups[a:b], values, subject.groups)
            return parts

        def without(group: int) -> Floats:
            return _sums(amounts.without(group), numbers, len(whole.losses))

        return _contribute(subject, rows, whole, numbers, aim, parts_of, without)


def _added(rows: OccurrenceLosses, joined: Int32s | None) -> tuple[Indices, OccurrenceLosses]:
    """The rows of an occurrence added up, and the number of the sum that each row is in."""
    count, starts = len(rows.losses), rows.starts
    keys, numbers = np.empty(count, np.int64), np.empty(count, np.int64)
    named = rows.occurrences if joined is None else joined
    for a, b in grouped(starts, "contributions"):
        cells = np.repeat(np.arange(a, b), np.diff(starts[a : b + 1]))
        keys[starts[a] : starts[b]] = cells << 32 | named[starts[a] : starts[b]]
    # Within a cell they are in order already, but for windows.
    ordered, order = order_of(keys, "contributions")
    firsts = starts_of(ordered)[:-1]
    for a, b in slices(count, "contributions"):
        numbers[order[a:b]] = np.searchsorted(firsts, np.arange(a, b), side="right") - 1
    cells = np.searchsorted(_picked(ordered, firsts) >> 32, np.arange(len(starts)))
    occurrences = (_picked(ordered, firsts) & _ID).astype(np.int32)
    sums = _sums(rows.losses, numbers, len(firsts))
    return numbers, OccurrenceLosses(cells, rows.periods, rows.samples, occurrences, sums)


def _sums(losses: Floats, numbers: Indices, count: int) -> Floats:
    sums = np.zeros(count)
    for a, b in slices(len(losses), "contributions", SLICE >> 2):
        np.add.at(sums, numbers[a:b], losses[a:b])
    return sums


def _contribute(  # noqa: PLR0913, PLR0917 - what losses and amounts differ in
    subject: Subject,
    rows: OccurrenceLosses,
    whole: OccurrenceLosses,
    numbers: Indices | None,
    aim: Aim,
    parts_of: Callable[[Floats], Floats],
    without: Callable[[int], Floats],
) -> Contributions:
    """Tell what rows of groups, each in the row of the whole of a number, contribute to it."""
    each = 1 if aim.mean else subject.samples
    check_return_periods(aim.return_periods, subject.calendar, each)
    with Scope("contributions", _ROW_BYTES * len(rows.losses)):
        ranked = Ranked(whole, whole.losses, subject.calendar, subject.samples, aim)
        alone = _left(subject, whole, aim, without) if aim.leave_one_out else None
        tables, keys = [], []
        for k, years in enumerate(aim.return_periods):
            tail = ranked.tail(years)
            weights = _of_rows(whole, ranked, aim, tail)
            if numbers is not None:
                weights = _spread(weights, numbers)
            parts = parts_of(weights)
            _check_parts(parts, tail)
            tables += _table(aim, years, tail, parts, None if alone is None else alone[:, :, k])
            for i, of_point in enumerate(weights):
                at = (_TYPES[aim.kind] + i, years)
                keys += _keys(subject, rows.occurrences, at, of_point * rows.losses)
    return Contributions(np.concatenate(tables), np.concatenate(keys))


def _spread(weights: Floats, numbers: Indices) -> Floats:
    """The weights of rows that are of sums; shape (2, rows)."""
    spread = np.empty((2, len(numbers)))
    for a, b in slices(len(numbers), "contributions", SLICE >> 2):
        spread[:, a:b] = weights[:, numbers[a:b]]
    return spread


def _of_rows(whole: OccurrenceLosses, ranked: Ranked, aim: Aim, tail: Tail) -> Floats:
    """What each row's loss is multiplied by, for both parts of a point; shape (2, rows)."""
    weights = np.zeros((2, len(whole.losses)))
    if aim.kind == "oep":
        for a, b in slices(len(ranked.rows), "contributions", SLICE >> 2):
            weights[:, ranked.rows[a:b]] = tail.coefficients[:, a:b]
        return weights
    lengths = np.diff(whole.starts)
    for a, b in grouped(whole.starts, "contributions"):
        rows = slice(whole.starts[a], whole.starts[b])
        weights[:, rows] = np.repeat(tail.coefficients[:, a:b], lengths[a:b], axis=1)
    return weights


def _parts(subject: Subject, whole: OccurrenceLosses, weights: Floats) -> Floats:
    """VaR and TVaR parts of each group, shape (2, groups)."""
    parts = np.zeros((2, subject.groups))
    for groups, rows, located, losses in subject.located(whole):
        attributing.add_parts(groups, rows, located, losses, weights, parts)
    return parts


def _check_parts(parts: Floats, tail: Tail) -> None:
    for found, wanted in zip(parts.sum(1), (tail.loss, tail.mean), strict=True):
        if abs(found - wanted) > _CLOSE * wanted:
            raise InputError(
                f"the groups have {found} of a loss of {wanted}: they are not of this whole",
                hint="Give every summary of the whole a group, and the others none",
            )


def _left(
    subject: Subject, whole: OccurrenceLosses, aim: Aim, without: Callable[[int], Floats]
) -> Floats:
    """VaR and TVaR of the whole without each group; shape (groups, 2, return periods)."""
    found = np.empty((subject.groups, 2, len(aim.return_periods)))
    for group in range(subject.groups):
        with Scope("contributions"):
            rest = without(group)
            ranked = Ranked(whole, rest, subject.calendar, subject.samples, aim)
            tails = [ranked.tail(r) for r in aim.return_periods]
        found[group] = np.array([[t.loss for t in tails], [t.mean for t in tails]])
    return found


def _table(aim: Aim, years: int, tail: Tail, parts: Floats, without: Floats | None) -> list[Rows]:
    dtype = CONTRIBUTIONS.dtype(8)
    numbers = np.arange(1, parts.shape[1] + 1)
    tables = []
    if max(tail.cells) > INT_MAX:
        raise InputError(
            f"the point at {years} years is one of {max(tail.cells)} cells of equal losses, and"
            f" the column Cells counts up to {INT_MAX}",
            hint="Ask for a point with a loss, at more years, or declare fewer periods or samples",
        )
    for i, whole in enumerate((tail.loss, tail.mean)):
        alone = np.nan if without is None else whole - without[:, i]
        columns = [numbers, _TYPES[aim.kind] + i, years, parts[i], whole, tail.cells[i]]
        tables.append(as_rows(dtype, [*columns, *tail.bands[i], alone]))
    return tables


def _keys(subject: Subject, of_rows: Int32s, at: tuple[int, int], parts: Floats) -> list[Rows]:
    """The events and the periods that are most of a point, whose parts rows are."""
    occurrences = subject.calendar.occurrences
    by_row = np.zeros(len(occurrences.periods))
    for a, b in slices(len(parts), "keys"):
        np.add.at(by_row, of_rows[a:b], parts[a:b])
    named = subject.joint.sources.astype(np.int64) << 32 | occurrences.event_ids
    keys, events = _summed(named, by_row)
    ids, periods = _summed(occurrences.periods.astype(np.int64), by_row)
    total = max(float(by_row.sum()), _TINY)
    tables = []
    for sources, names, found in (
        (1 + (keys >> 32), keys & _ID, events),
        (np.zeros_like(ids), ids, periods),
    ):
        current().check("keys")
        least = np.partition(found, -MOST_KEYS)[-MOST_KEYS] if len(found) > MOST_KEYS else 0.0
        top = np.flatnonzero((found >= least) & (found > 0))
        top = top[np.argsort(-found[top], kind="stable")[:MOST_KEYS]]
        columns = [sources[top], names[top], found[top], found[top] / total]
        if len(top):
            tables.append(as_rows(KEYS.dtype(8), [*at, *columns]))
    return tables or [np.zeros(0, KEYS.dtype(8))]


def _summed(keys: Indices, values: Floats) -> tuple[Indices, Floats]:
    """Distinct keys, ascending, and the sum of the values of each."""
    keys, order = order_of(keys, "keys")
    starts = starts_of(keys)[:-1]
    return keys[starts], np.add.reduceat(_picked(values, order), starts)


_ID = 0x7FFFFFFF
"""Bits of an event id, or of the number of an occurrence, in a key."""
