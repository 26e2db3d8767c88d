"""What layers take of the losses of cells, priority after priority.

For each cell, and in it for each priority, every layer takes its part of the same losses::

    rows      | 40 | 25 | 70 |          what earlier priorities have left
    layer 1   | 10 |    | 40 |  taken
    layer 2   |  8 |  5 | 14 |  taken
    rows      | 22 | 20 | 16 |          what is left for the next priority

A *plain* layer covers every row, and each row is an occurrence: it takes one loop. For others the
rows of an occurrence are added up, and occurrences are joined into windows; what is ceded of a
window is taken from its rows in proportion to what they brought in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from .windows import (
    AGGREGATE_ATTACHMENT,
    AGGREGATE_LIMIT,
    LIMIT,
    PLACED,
    RISK_ATTACHMENT,
    RISK_LIMIT,
    SHARE,
    Items,
    as_cedant_chooses,
    from_first_losses,
    occurrence_loss,
)

Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]

PLAIN = 0
PER_RISK = 1
SURPLUS = 2
WINDOW = 3
CEDANT = 4
RULES = 5
"""Columns of the rules of layers: what they are, and the length of their windows or 0."""

DONE = 0
EXCEEDED = 1
"""Layers of a priority took more than there was."""
INFINITE = 2
TOO_MANY = 3
"""Occurrences that a cedant could join in too many ways."""
STATE = 4
"""Length of a state: a status, cell, row, and layer."""
_TOLERANCE = 1e-9
_ROUNDING = 1e-12
MOST_STEPS = 1 << 21


class Rows(NamedTuple):
    """The losses of a subject, by cell."""

    starts: Indices
    occurrences: Int32s
    parts: Int32s
    """Part that each row belongs to; empty if there is one."""
    values: Floats
    """Insured value of each row's risk; empty if rows are no risks."""
    losses: Floats


class Layers(NamedTuple):
    """Layers in order of priority, and what they cover."""

    priorities: Indices
    """First layer of each priority, and the number of layers."""
    terms: Floats
    """Shape (layers, TERMS)."""
    rules: Indices
    """Shape (layers, RULES)."""
    covers: Flags
    """Parts that each covers, shape (layers, parts)."""
    insures: Flags
    """Perils that each covers, shape (layers, perils)."""


class When(NamedTuple):
    """Date and peril of each occurrence."""

    dates: Indices
    perils: Int32s


class Results(NamedTuple):
    """Receives what became of the losses."""

    net: Floats
    """Shape (rows,)."""
    recovered: Floats
    """Of the whole layer by cell, as if all of it were placed; shape (layers, cells)."""
    exhausted: Flags
    """Whether it paid its largest amount: of a year, or else of an occurrence."""
    gross_sums: Floats
    """Shape (cells,)."""
    net_sums: Floats
    joined: Int32s
    """First occurrence of the window that a row is in, by the first layer whose hours clause has
    it in one, or else its own; shape (rows,), or empty without such a layer."""


class Scratch(NamedTuple):
    """As long as the largest cell."""

    brought: Floats
    """What each row brings into a layer."""
    taken: Floats
    """What the layers of a priority have taken of each row."""
    items: Items


@subkernel
def _add_plain(net: Floats, terms: Floats, taken: Floats) -> tuple[float, bool]:
    """Cede rows to a plain layer; return what it recovers, and whether it is exhausted."""
    share, placed, limit = terms[SHARE], terms[PLACED], terms[LIMIT]
    deductible, left = terms[AGGREGATE_ATTACHMENT], terms[AGGREGATE_LIMIT]
    least, bounded = left * _ROUNDING, left < np.inf
    full = False
    recovered = 0.0
    for r in range(len(net)):
        loss = occurrence_loss(net[r] * share, terms)
        kept = min(loss, deductible)
        deductible -= kept
        ceded = min(loss - kept, left)
        full |= ceded == limit
        left -= ceded
        recovered += ceded
        taken[r] += ceded * placed
    return recovered, left <= least if bounded else full


@subkernel
def _bring(
    rows: Rows, layers: Layers, when: When, k: int, first: int, net: Floats, scratch: Scratch
) -> int:
    """What rows bring into a layer, and its occurrences; return the number of those.

    Terms of risks come first, then CededPercent of what they leave.
    """
    terms, items = layers.terms[k], scratch.items
    count = 0
    for r in range(len(net)):
        row = first + r
        occurrence = rows.occurrences[row]
        part = rows.parts[row] if len(rows.parts) else 0
        loss = 0.0
        if layers.covers[k, part] and layers.insures[k, when.perils[occurrence]]:
            loss = net[r]
            if layers.rules[k, SURPLUS]:
                value = rows.values[row]
                line = min(max(value - terms[RISK_ATTACHMENT], 0.0), terms[RISK_LIMIT])
                loss *= line / value
            elif layers.rules[k, PER_RISK]:
                loss = min(max(loss - terms[RISK_ATTACHMENT], 0.0), terms[RISK_LIMIT])
            loss *= terms[SHARE]
        scratch.brought[r] = loss
        items.rows[r] = -1
        if loss > 0.0:
            if count == 0 or items.occurrences[count - 1] != occurrence:
                items.occurrences[count] = occurrence
                items.losses[count] = 0.0
                items.windows[count] = count
                count += 1
            items.losses[count - 1] += loss
            items.rows[r] = count - 1
    return count


@subkernel
def _cede_windows(items: Items, count: int, terms: Floats) -> tuple[float, bool]:
    """Turn the totals of windows into what part of each is ceded; return as ``_add_plain``."""
    deductible, left = terms[AGGREGATE_ATTACHMENT], terms[AGGREGATE_LIMIT]
    least, bounded = left * _ROUNDING, left < np.inf
    full = False
    recovered = 0.0
    for i in range(count):
        items.totals[i] = 0.0
    for i in range(count):
        if items.windows[i] >= 0:
            items.totals[items.windows[i]] += items.losses[i]
    for i in range(count):
        if items.windows[i] == i:
            loss = occurrence_loss(items.totals[i], terms)
            kept = min(loss, deductible)
            deductible -= kept
            ceded = min(loss - kept, left)
            full |= ceded == terms[LIMIT]
            left -= ceded
            # What overflows must not end as 0.
            recovered += ceded if items.totals[i] < np.inf else np.inf
            items.totals[i] = ceded * terms[PLACED] / items.totals[i]
    return recovered, left <= least if bounded else full


@subkernel
def _add_joined(
    rows: Rows,
    layers: Layers,
    when: When,
    k: int,
    first: int,
    net: Floats,
    scratch: Scratch,
    joined: Int32s,
) -> tuple[float, bool, int]:
    """Cede rows to any layer; return as ``_add_plain``, and the steps of choosing windows."""
    items, terms, length = scratch.items, layers.terms[k], layers.rules[k, WINDOW]
    count = _bring(rows, layers, when, k, first, net, scratch)
    steps = 0
    if length > 0:
        dates, perils = when.dates, when.perils
        if layers.rules[k, CEDANT]:
            steps = as_cedant_chooses(items, count, dates, perils, length, terms, MOST_STEPS)
            if steps < 0:
                return 0.0, False, steps
        else:
            from_first_losses(items, count, dates, perils, length)
    recovered, exhausted = _cede_windows(items, count, terms)
    for r in range(len(net)):
        window = items.windows[items.rows[r]] if items.rows[r] >= 0 else -1
        if window >= 0:
            scratch.taken[r] += scratch.brought[r] * items.totals[window]
            if length > 0 and joined[first + r] < 0:
                joined[first + r] = items.occurrences[window]
    return recovered, exhausted, steps


@subkernel
def _leave(net: Floats, taken: Floats) -> int:
    """Take from the rows what was ceded of them; return a row that had less, or -1."""
    for r in range(len(net)):
        left = net[r] - taken[r]
        if left < -_TOLERANCE * net[r]:
            return r
        # What is left by rounding is no loss to the layers that follow.
        net[r] = left if left > _ROUNDING * net[r] else 0.0
    return -1


@subkernel
def _stop(state: Indices, status: int, cell: int, row: int, number: int) -> int:
    state[0], state[1], state[2], state[3] = status, cell, row, number
    return cell


@kernel
def cede(
    rows: Rows,
    layers: Layers,
    when: When,
    cell: int,
    last: int,
    most: int,
    scratch: Scratch,
    results: Results,
    state: Indices,
) -> int:
    """Run a programme over cells, from one on.

    Args:
        rows: the losses of the subject.
        layers: the programme.
        when: of the occurrences.
        cell: the first.
        last: cell after the last.
        most: rows and steps of layers after which it stops.
        scratch: for a cell.
        results: receives what is ceded and left.
        state: receives a status; and where it is not ``DONE``, cell, row, and layer.

    Returns:
        The cell after the last that was run.
    """
    state[0] = DONE
    joined = results.joined
    work = 0
    while cell < last and work < most:
        first, end = rows.starts[cell], rows.starts[cell + 1]
        net, taken = results.net[first:end], scratch.taken[: end - first]
        if len(joined):
            joined[first:end] = -1
        gross = 0.0
        for r in range(end - first):
            net[r] = rows.losses[first + r]
            gross += net[r]
        for priority in range(len(layers.priorities) - 1):
            taken[:] = 0.0
            for k in range(layers.priorities[priority], layers.priorities[priority + 1]):
                if layers.rules[k, PLAIN]:
                    recovered, exhausted = _add_plain(net, layers.terms[k], taken)
                else:
                    recovered, exhausted, steps = _add_joined(
                        rows, layers, when, k, first, net, scratch, joined
                    )
                    work += abs(steps)
                    if steps < 0:
                        return _stop(state, TOO_MANY, cell, first, k)
                if not recovered < np.inf:
                    return _stop(state, INFINITE, cell, first, k)
                if recovered <= _ROUNDING * gross:
                    recovered = 0.0  # or else what is there by rounding would attach the layer
                limit = layers.terms[k, AGGREGATE_LIMIT]
                results.recovered[k, cell] = min(
                    recovered, limit
                )  # which a sum may pass by rounding
                results.exhausted[k, cell] = exhausted
                work += end - first
            row = _leave(net, taken)
            if row >= 0:
                return _stop(state, EXCEEDED, cell, first + row, layers.priorities[priority])
        left = 0.0
        for r in range(end - first):
            left += net[r]
        for row in range(first, end if len(joined) else first):
            if joined[row] < 0:
                joined[row] = rows.occurrences[row]
        results.gross_sums[cell], results.net_sums[cell] = gross, left
        cell += 1
    return cell
