"""Roll-ups in the slowest and most obvious way: dicts, loops and the definitions.

Nothing here comes from the engine.
"""

from __future__ import annotations

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
