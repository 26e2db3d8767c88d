"""What layers take of the losses of cells, priority after priority.

For each cell, and in it for each priority, every layer takes its part of the same losses::

    rows      | 40 | 25 | 70 |          what earlier priorities have left
    layer 1   | 10 |    | 40 |  taken
    layer 2   |  8 |  5 | 14 |  taken
    rows      | 22 | 20 | 16 |          what is left for the next priority

A *plain* layer covers every row, and each row is an occurrence. What it takes of a row depends on
that row and on what it took of those before. So a programme of plain layers goes row by row,
through all priorities, and keeps nothing of a cell but what is left of annual amounts: most cells
have one row, for which arrays cost more than layers. For others the rows of an occurrence are added
up, and occurrences are joined into windows; what is ceded of a window is taken from its rows in
proportion to what they brought in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, kernel, subkernel
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
DEDUCTIBLE = 0
LEFT = 1
"""What is left of the annual deductible and limit."""
RECOVERED = 2
FULL = 3
"""Whether an occurrence took the whole limit."""
RUNNING = 4
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
    joined: Int32s
    """First occurrence of the window that a row is in, by the first layer whose hours clause has
    it in one, or else its own; shape (rows,), or empty without such a layer."""


class Scratch(NamedTuple):
    """As long as the largest cell."""

    brought: Floats
    """What each row brings into a layer."""
    cessions: Floats
    """What the layers of a priority have taken of each row."""
    running: Floats
    """Of each layer in a cell, shape (layers, RUNNING)."""
    items: Items


@inlined
def _cede_occurrence(loss: float, terms: Floats, running: Floats) -> float:
    """What a whole layer pays for the loss of an occurrence, after those before it."""
    loss = occurrence_loss(loss, terms)
    kept = min(loss, running[DEDUCTIBLE])
    running[DEDUCTIBLE] -= kept
    ceded: float = min(loss - kept, running[LEFT])
    running[LEFT] -= ceded
    running[RECOVERED] += ceded
    running[FULL] += int(ceded == terms[LIMIT])
    return ceded


@inlined
def _leave(loss: float, cession: float) -> float:
    """What is left of a loss; below 0 if it was less than what was taken."""
    left = loss - cession
    if left < -_TOLERANCE * loss:
        return left
    # What is left by rounding is no loss to the layers that follow.
    return left if left > _ROUNDING * loss else 0.0


@subkernel
def _cede_row(loss: float, layers: Layers, running: Floats) -> tuple[float, int]:
    """Cede an occurrence to plain layers; return what is left, and the priority it is short of."""
    for priority in range(len(layers.priorities) - 1):
        cession = 0.0
        for k in range(layers.priorities[priority], layers.priorities[priority + 1]):
            terms = layers.terms[k]
            cession += _cede_occurrence(loss * terms[SHARE], terms, running[k]) * terms[PLACED]
        loss = _leave(loss, cession)
        if loss < 0.0:
            return loss, priority
    return loss, -1


@subkernel
def _bring(
    rows: Rows, layers: Layers, timing: When, k: int, first: int, net: Floats, scratch: Scratch
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
        if layers.covers[k, part] and layers.insures[k, timing.perils[occurrence]]:
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
def _cede_windows(items: Items, count: int, terms: Floats, running: Floats) -> None:
    """Turn the totals of windows into what part of each is ceded."""
    for i in range(count):
        items.totals[i] = 0.0
    for i in range(count):
        if items.windows[i] >= 0:
            items.totals[items.windows[i]] += items.losses[i]
    for i in range(count):
        if items.windows[i] == i:
            ceded = _cede_occurrence(items.totals[i], terms, running)
            if not items.totals[i] < np.inf:
                running[RECOVERED] = np.inf  # what overflows must not end as 0
            items.totals[i] = ceded * terms[PLACED] / items.totals[i]


@subkernel
def _add_joined(
    rows: Rows,
    layers: Layers,
    timing: When,
    k: int,
    first: int,
    net: Floats,
    scratch: Scratch,
    joined: Int32s,
) -> int:
    """Cede rows to any layer; return the steps of choosing windows, below 0 for too many."""
    items, terms, length = scratch.items, layers.terms[k], layers.rules[k, WINDOW]
    count = _bring(rows, layers, timing, k, first, net, scratch)
    steps = 0
    if length > 0:
        dates, perils = timing.dates, timing.perils
        if layers.rules[k, CEDANT]:
            steps = as_cedant_chooses(items, count, dates, perils, length, terms, MOST_STEPS)
            if steps < 0:
                return steps
        else:
            from_first_losses(items, count, dates, perils, length)
    _cede_windows(items, count, terms, scratch.running[k])
    for r in range(len(net)):
        window = items.windows[items.rows[r]] if items.rows[r] >= 0 else -1
        if window >= 0:
            scratch.cessions[r] += scratch.brought[r] * items.totals[window]
            if length > 0 and joined[first + r] < 0:
                joined[first + r] = items.occurrences[window]
    return steps


@subkernel
def _stop(state: Indices, status: int, cell: int, row: int, number: int) -> int:
    state[0], state[1], state[2], state[3] = status, cell, row, number
    return cell


@subkernel
def _cede_rows(
    rows: Rows, layers: Layers, cell: int, running: Floats, results: Results
) -> tuple[int, int]:
    """Cede a cell to plain layers, row by row: most cells have one.

    Returns:
        A row that had less than was taken of it, and the priority; -1 each if there is none.
    """
    gross = 0.0
    for row in range(rows.starts[cell], rows.starts[cell + 1]):
        left, priority = _cede_row(rows.losses[row], layers, running)
        if priority >= 0:
            return row, priority
        results.net[row] = left
        gross += rows.losses[row]
    results.gross_sums[cell] = gross
    return -1, -1


@subkernel
def _cede_cell(
    rows: Rows, layers: Layers, timing: When, cell: int, scratch: Scratch, results: Results
) -> tuple[int, int, int]:
    """Cede a cell to any layers, priority after priority.

    Returns:
        As ``_cede_rows``, and the steps of choosing windows, below 0 for too many of a layer.
    """
    joined = results.joined
    first, end = rows.starts[cell], rows.starts[cell + 1]
    net, cessions = results.net[first:end], scratch.cessions[: end - first]
    if len(joined):
        joined[first:end] = -1
    gross = 0.0
    work = 0
    for r in range(len(net)):
        net[r] = rows.losses[first + r]
        gross += net[r]
    for priority in range(len(layers.priorities) - 1):
        cessions[:] = 0.0
        for k in range(layers.priorities[priority], layers.priorities[priority + 1]):
            if layers.rules[k, PLAIN]:
                terms, running = layers.terms[k], scratch.running[k]
                for r in range(len(net)):
                    ceded = _cede_occurrence(net[r] * terms[SHARE], terms, running)
                    cessions[r] += ceded * terms[PLACED]
                continue
            steps = _add_joined(rows, layers, timing, k, first, net, scratch, joined)
            work += abs(steps)
            if steps < 0:
                return first, k, steps
        for r in range(len(net)):
            net[r] = _leave(net[r], cessions[r])
            if net[r] < 0.0:
                return first + r, priority, work
    for row in range(first, end if len(joined) else first):
        if joined[row] < 0:
            joined[row] = rows.occurrences[row]
    results.gross_sums[cell] = gross
    return -1, -1, work


@subkernel
def _finish(cell: int, layers: Layers, running: Floats, results: Results) -> int:
    """Write what layers recovered; return one that took more than a float64, or -1."""
    for k in range(len(running)):
        recovered, left, terms = running[k, RECOVERED], running[k, LEFT], layers.terms[k]
        if not recovered < np.inf:
            return k
        if recovered <= _ROUNDING * results.gross_sums[cell]:
            recovered = 0.0  # or else what is there by rounding would attach the layer
        limit = terms[AGGREGATE_LIMIT]
        # A sum may pass the limit by rounding.
        results.recovered[k, cell] = min(recovered, limit)
        bounded = limit < np.inf
        results.exhausted[k, cell] = left <= limit * _ROUNDING if bounded else running[k, FULL] > 0
    return -1


@kernel
def cede(
    rows: Rows,
    layers: Layers,
    timing: When,
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
        timing: of the occurrences.
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
    running = scratch.running
    plain = True
    for k in range(len(running)):
        plain &= layers.rules[k, PLAIN] != 0
    work = 0
    while cell < last and work < most:
        for k in range(len(running)):
            running[k, DEDUCTIBLE] = layers.terms[k, AGGREGATE_ATTACHMENT]
            running[k, LEFT] = layers.terms[k, AGGREGATE_LIMIT]
            running[k, RECOVERED] = running[k, FULL] = 0.0
        if plain:
            row, at = _cede_rows(rows, layers, cell, running, results)
        else:
            row, at, steps = _cede_cell(rows, layers, timing, cell, scratch, results)
            work += abs(steps)
            if steps < 0:
                return _stop(state, TOO_MANY, cell, row, at)
        if row >= 0:
            return _stop(state, EXCEEDED, cell, row, layers.priorities[at])
        k = _finish(cell, layers, running, results)
        if k >= 0:
            return _stop(state, INFINITE, cell, rows.starts[cell], k)
        work += (rows.starts[cell + 1] - rows.starts[cell]) * len(running)
        cell += 1
    return cell
