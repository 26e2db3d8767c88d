"""Which occurrences join into one loss occurrence, by an hours clause.

Items are the occurrences of a cell that a layer covers, in order of date. Those of other perils
may lie in between. A window is named by its first item::

    items      0 wind   1 hail   2 wind   3 wind   4 hail
    window     0        1        0        3        1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import subkernel
from ...arrays import Floats, Indices

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
    """Loss of each window; later, what part of it is ceded."""
    best: Floats
    """Largest recovery of the items of its peril up to each."""
    rows: Indices
    """Item of each row of the cell."""
    occurrences: Indices
    windows: Indices
    previous: Indices
    """Item before of the same peril, or -1."""
    chosen: Indices
    """First item of the best window that ends at each."""
    last: Indices
    """Last item of each peril, shape (perils,); -1 if there is none."""


@subkernel
def occurrence_loss(loss: float, terms: Floats) -> float:
    """What the occurrence terms of a layer leave of a loss."""
    if loss <= terms[FRANCHISE] or loss > terms[REVERSE_FRANCHISE]:
        return 0.0
    paid: float = min(max(loss - terms[ATTACHMENT], 0.0), terms[LIMIT])
    return paid


@subkernel
def link(items: Items, count: int, perils: npt.NDArray[np.int32]) -> None:
    """Find the item before each that is of the same peril."""
    items.last[:] = -1
    for i in range(count):
        peril = perils[items.occurrences[i]]
        items.previous[i] = items.last[peril]
        items.last[peril] = i


@subkernel
def from_first_losses(items: Items, count: int, dates: Indices, length: int) -> None:
    """A window begins at the first loss that no earlier one has."""
    for i in range(count):
        before = items.previous[i]
        window = i
        if before >= 0:
            begun = items.windows[before]
            if dates[items.occurrences[i]] - dates[items.occurrences[begun]] < length:
                window = begun
        items.windows[i] = window


@subkernel
def as_cedant_chooses(
    items: Items, count: int, dates: Indices, length: int, terms: Floats, most: int
) -> int:
    """Choose the windows that recover most together; return the steps taken, -1 if too many.

    Aggregate terms grow with the sum of what windows recover, so the largest sum is best with
    them, too. Of windows that recover the same but for rounding, the longest last one is taken.
    """
    steps = 0
    for i in range(count):
        date = dates[items.occurrences[i]]
        total = 0.0
        best = 0.0
        j = i
        while j >= 0 and date - dates[items.occurrences[j]] < length:
            total += items.losses[j]
            before = items.previous[j]
            recovered = occurrence_loss(total, terms)
            if before >= 0:
                recovered += items.best[before]
            if recovered >= best * (1.0 - _ROUNDING):
                best = max(best, recovered)
                items.chosen[i] = j
            j = before
            steps += 1
        if steps > most:
            return -1
        items.best[i] = best
    items.windows[:count] = -1
    for i in range(count - 1, -1, -1):
        if items.windows[i] < 0:
            first = items.chosen[i]
            j = i
            while j >= first:
                items.windows[j] = first
                j = items.previous[j]
    return steps
