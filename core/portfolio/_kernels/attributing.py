"""Which part of a whole each group is, row by row of the whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from ...losses._kernels.exact import two_sum
from ...losses._kernels.layout import ZERO
from ...sorting import lower_bound
from ..losses import OccurrenceLosses
from .adding import Load

Int32s = npt.NDArray[np.int32]


@kernel
def reduce_rows(
    starts: Indices, amounts: Floats, close: float, sums: Floats, largest: Floats, rows: Indices
) -> None:
    """Add up the amounts of cells, and find the largest.

    Args:
        starts: first row of each cell, and the one after the last.
        amounts: not below 0, by row.
        close: share by which a later amount has to be larger than the largest so far.
        sums: receives the sum of each cell.
        largest: receives its largest amount.
        rows: receives the row of that, the earliest of equal ones.
    """
    for cell in range(len(sums)):
        high = 0.0
        low = 0.0
        most = -1.0
        for row in range(starts[cell], starts[cell + 1]):
            high, rest = two_sum(high, amounts[row])
            low += rest
            if amounts[row] > most * (1.0 + close) or most < 0.0:
                most = amounts[row]
                rows[cell] = row
        sums[cell] = high + low
        largest[cell] = most


@kernel
def tie(losses: Floats, close: float, first: int, last: int) -> None:
    """Make each of some descending losses equal to the one before if it is that close to it.

    Args:
        losses: descending; those before ``first`` are tied already.
        close: share of a loss.
        first: place.
        last: place after the last.
    """
    for i in range(max(first, 1), last):
        if losses[i] >= losses[i - 1] * (1.0 - close):
            losses[i] = losses[i - 1]


@subkernel
def _row_of(
    sample: int,
    occurrence: int,
    first: int,
    last: int,
    whole: OccurrenceLosses,
) -> int:
    """Row of a sample and an occurrence among some cells of a period; -1 if there is none."""
    starts, samples, occurrences = whole.starts, whole.samples, whole.occurrences
    # Mostly all samples have a cell.
    cell = first + sample - int(samples[first])
    if not (first <= cell < last and samples[cell] == sample):
        cell = lower_bound(samples, sample, first, last)
        if cell == last or samples[cell] != sample:
            return -1
    row = lower_bound(occurrences, occurrence, starts[cell], starts[cell + 1])
    if row == starts[cell + 1] or occurrences[row] != occurrence:
        return -1
    return row


@kernel
def locate(load: Load, whole: OccurrenceLosses, located: Indices) -> None:
    """Find the row of the whole that each row of a group belongs to.

    Args:
        load: pairs of groups.
        whole: occurrence by occurrence.
        located: receives the row of each, or -1.
    """
    at = ZERO
    periods = whole.periods
    for pair in range(len(load.periods)):
        first = lower_bound(periods, load.periods[pair], ZERO, len(periods))
        last = lower_bound(periods, load.periods[pair] + 1, first, len(periods))
        for i in range(load.starts[pair], load.starts[pair + 1]):
            for _ in range(load.counts[i]):
                row = -1 + ZERO
                if first < last:
                    row = _row_of(load.samples[at], load.occurrences[i], first, last, whole)
                located[at] = row
                at += 1


@kernel
def add_parts(
    groups: Int32s,
    rows: Indices,
    located: Indices,
    losses: Floats,
    coefficients: Floats,
    parts: Floats,
) -> None:
    """Add the losses of groups, times the coefficients of their rows.

    Args:
        groups: of pairs.
        rows: first row of each in the buffer, and the one after the last.
        located: rows of the whole, or -1.
        losses: of the rows in the buffer.
        coefficients: by row of the whole, shape (kinds, rows).
        parts: increased; shape (kinds, groups).
    """
    for kind in range(len(coefficients)):
        for pair in range(len(groups)):
            total = 0.0
            for i in range(rows[pair], rows[pair + 1]):
                if located[i] >= 0:
                    total += coefficients[kind, located[i]] * losses[i]
            parts[kind, groups[pair]] += total


@kernel
def take_away(located: Indices, losses: Floats, rest: Floats) -> None:
    """Take the losses of a group away from the rows of the whole; none falls below 0."""
    for i in range(len(located)):
        if located[i] >= 0:
            rest[located[i]] = max(rest[located[i]] - losses[i], 0.0)
