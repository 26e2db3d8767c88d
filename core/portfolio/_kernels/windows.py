"""Which occurrences join into one loss occurrence, by an hours clause.

Items are the occurrences of a cell that a layer covers, in order of date. Those of other perils
may lie in between. A window is named by its first item::

    items      0 wind   1 hail   2 wind   3 wind   4 hail
    window     0        1        0        3        1

Those that are in no window have -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Floats, Indices

Int32s = npt.NDArray[np.int32]

RISK_ATTACHMENT = 0
RISK_LIMIT = 1
SHARE = 2
FRANCHISE = 3
REVERSE_FRANCHISE = 4
ATTACHMENT = 5
LIMIT = 6
AGGREGATE_ATTACHMENT = 7
AGGREGATE_LIMIT = 8
PLACED = 9
TERMS = 10
"""Columns of the terms of layers: amounts, infinite where there is no limit, and shares."""


_ROUNDING = 1e-12


class Items(NamedTuple):
    """Scratch for the occurrences of one cell; each as long as the largest cell has rows."""

    losses: Floats
    """Loss of each occurrence to a layer, before its occurrence terms."""
    totals: Floats
    """Loss of each window; later, what part of it is ceded. While windows are chosen, the largest
    recovery without the losses of an item's date."""
    best: Floats
    """Largest recovery of the items of its peril from each on."""
    rows: Indices
    """Item of each row of the cell."""
    occurrences: Indices
    windows: Indices
    next: Indices
    """Nearest item of the same peril, before or after; -1 if there is none."""
    begins: Indices
    """Whether a window is best begun at each."""
    seen: Indices
    """Item of each peril that was met last, shape (perils,); -1 if there is none."""


@subkernel
def occurrence_loss(loss: float, terms: Floats) -> float:
    """What the occurrence terms of a layer leave of a loss."""
    if loss <= terms[FRANCHISE] or loss > terms[REVERSE_FRANCHISE]:
        return 0.0
    paid: float = min(max(loss - terms[ATTACHMENT], 0.0), terms[LIMIT])
    return paid


@subkernel
def from_first_losses(
    items: Items, count: int, dates: Indices, perils: Int32s, length: int
) -> None:
    """A window begins at the first loss that no earlier one has."""
    items.seen[:] = -1
    for i in range(count):
        occurrence = items.occurrences[i]
        before = items.seen[perils[occurrence]]
        items.windows[i] = i
        if before >= 0 and dates[occurrence] - dates[items.occurrences[before]] < length:
            items.windows[i] = before
        else:
            items.seen[perils[occurrence]] = i


@subkernel
def as_cedant_chooses(
    items: Items,
    count: int,
    dates: Indices,
    perils: Int32s,
    length: int,
    terms: Floats,
    most: int,
) -> int:
    """Choose the windows that recover most together; return the steps taken, -1 if too many.

    A window begins at a date with losses and has all of its peril until its length is over; only
    then may the next one begin. So one may begin late, and losses before it be in none. Aggregate
    terms grow with the sum of what windows recover, so the largest sum is best with them, too. Of
    windows that recover the same but for rounding, the earliest is taken.
    """
    steps = 0
    items.seen[:] = -1
    for i in range(count - 1, -1, -1):
        occurrence = items.occurrences[i]
        follows = items.seen[perils[occurrence]]
        items.next[i], items.seen[perils[occurrence]] = follows, i
        total = later = 0.0
        j = i
        while j >= 0 and dates[items.occurrences[j]] - dates[occurrence] < length:
            total += items.losses[j]
            j = items.next[j]
            steps += 1
        if steps > most:
            return -1
        recovered = occurrence_loss(total, terms)
        if j >= 0:
            recovered += items.best[j]
        if follows >= 0:
            # Nothing begins between losses of one date: without the first, it is without all.
            is_other = dates[items.occurrences[follows]] > dates[occurrence]
            later = items.best[follows] if is_other else items.totals[follows]
        items.totals[i] = later
        items.begins[i] = recovered >= later * (1.0 - _ROUNDING)
        items.best[i] = max(recovered, later)
    items.windows[:count] = -1
    for i in range(count):
        if items.windows[i] >= 0:
            continue
        date, j = dates[items.occurrences[i]], i
        span = length if items.begins[i] else 1
        while j >= 0 and dates[items.occurrences[j]] - date < span:
            items.windows[j] = i if items.begins[i] else -1
            items.begins[j] = items.begins[i]
            j = items.next[j]
    return steps
