"""Roll-ups in the slowest and most obvious way: dicts, loops and the definitions.

Nothing here comes from the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Losses = Mapping[tuple[int, int, int], float]
"""By event, summary and sample."""
Cell = tuple[int, int, int]
"""Group, period, sample."""


class Set(NamedTuple):
    """A loss set, with the group of each of its summaries."""

    losses: Losses
    occurrences: Sequence[tuple[int, int, int]]
    """(period, date, event), sorted."""
    groups: Mapping[int, int]
    factor: float = 1.0


def by_occurrence(sets: Iterable[Set]) -> dict[tuple[int, int, int, int], float]:
    """Losses by group, period, sample and occurrence, of sets of one catalogue."""
    found: dict[tuple[int, int, int, int], float] = {}
    for one in sets:
        for row, (period, _, event) in enumerate(one.occurrences):
            for (e, summary, sample), loss in one.losses.items():
                group = one.groups.get(summary, -1)
                if e == event and group >= 0:
                    key = (group, period, sample, row)
                    found[key] = found.get(key, 0.0) + loss * one.factor
    return found


def cells(
    losses: Mapping[tuple[int, int, int, int], float],
    together: Callable[[list[float]], float],
) -> dict[Cell, float]:
    """One number for each group, period and sample, such as the sum or the largest."""
    lists: dict[Cell, list[float]] = {}
    for (group, period, sample, _), loss in sorted(losses.items()):
        lists.setdefault((group, period, sample), []).append(loss)
    return {cell: together(values) for cell, values in lists.items()}


def mean(sums: Mapping[Cell, float], group: int, samples: int, weights: Sequence[float]) -> float:
    """Average annual loss over all samples."""
    return sum(
        weights[period - 1] * loss / samples
        for (g, period, sample), loss in sums.items()
        if g == group and sample > 0
    )


def contributions(
    losses: Mapping[tuple[int, int, int, int], float],
    masses: Mapping[tuple[int, int], float],
    share: float,
    *,
    largest: bool,
    band: float = 0.0,
) -> tuple[float, float, dict[int, float], dict[int, float]]:
    """VaR, TVaR and the parts of groups of both, cell by cell.

    Args:
        losses: by group, period, sample and occurrence.
        masses: probability of each cell (period, sample), those without a loss included.
        share: probability of the tail.
        largest: of the largest occurrence of a cell instead of its sum.
        band: half of its width as a share of the rank of the VaR, in mass.
    """
    by_cell: dict[tuple[int, int], dict[int, dict[int, float]]] = {cell: {} for cell in masses}
    for (group, period, sample, row), loss in sorted(losses.items()):
        if (period, sample) in by_cell:
            by_cell[period, sample].setdefault(row, {})[group] = loss
    wholes: dict[tuple[int, int], float] = {}
    groups: dict[tuple[int, int], dict[int, float]] = {}
    for cell, rows in by_cell.items():
        counted = list(rows)
        if largest and rows:
            counted = [max((math.fsum(of.values()), -row) for row, of in rows.items())[1] * -1]
        groups[cell] = {}
        for of_row in (rows[row] for row in counted):
            for group, loss in of_row.items():
                groups[cell][group] = groups[cell].get(group, 0.0) + loss
        wholes[cell] = math.fsum(groups[cell].values())

    ranks, reached = {}, 0.0
    for cell in sorted(wholes, key=lambda cell: -wholes[cell]):
        reached += masses[cell]
        ranks[cell] = reached
    rank = min((r for r in ranks.values() if r >= share * (1 - 1e-12)), default=reached)
    # Of cells without mass the first one.
    level = wholes[next(c for c, r in ranks.items() if r == rank)]
    inside = [c for c, r in ranks.items() if abs(r - rank) <= band * rank + 1e-12]
    high, low = (most(wholes[c] for c in inside) for most in (max, min))
    above = {c for c in wholes if wholes[c] > level}
    tied = {c for c in wholes if wholes[c] == level > 0}
    rest = share - sum(masses[c] for c in above)
    mass_tied = sum(masses[c] for c in tied)
    weights = {c: masses[c] / share for c in above}
    weights |= {c: masses[c] * rest / mass_tied / share for c in tied}
    near = {c for c in wholes if low <= wholes[c] <= high and level > 0 and wholes[c] > 0}
    total = sum(masses[c] * wholes[c] for c in near)
    marks = {c: masses[c] * level / total for c in near}
    names = {group for group, *_ in losses}
    parts = [
        {g: sum(w * groups[c].get(g, 0.0) for c, w in of.items()) for g in names}
        for of in (marks, weights)
    ]
    mean = sum(w * wholes[c] for c, w in weights.items())
    return level, mean, parts[0], parts[1]
