"""Mixing by quota: find the input and the item at a position by division.

The weights define a *round*: 2 and 1 give ``a b a``. Rounds repeat, so a position is the number
of a round and a place in it. If an input runs out, possibly within a round, the others continue
in a new *phase* with a round of their own::

    position   0  1  2  3  4  5  6  |  7  8  9        b has 2 items
    item       a0 b0 a1 a2 b1 a3 a4 |  a5 a6 a7
    phase      0, round a b a       |  1, round a a

There are at most as many phases as inputs, so random access stays cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Indices
from ..errors import PipelineError
from .sources import MAX_ITEMS

MAX_ROUND = 2**16
"""Most items of a round, which are the sum of the weights in lowest terms."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """A stretch of positions in which the same inputs take part."""

    start: int
    which: Indices
    """Input at every place of a round."""
    rank: Indices
    """For every place, the number of earlier places of the same input in the round."""
    quota: Indices
    """Places of each input in a round."""
    consumed: Indices
    """Items taken from each input before the phase."""

    def at(self, positions: Indices) -> tuple[Indices, Indices]:
        """Input of every position, and the number of its item."""
        rounds = (positions - self.start) // len(self.which)
        place = positions - self.start - rounds * len(self.which)
        which = self.which[place]
        index = self.consumed[which] + rounds * self.quota[which] + self.rank[place]
        return which, index


@dataclass(frozen=True, slots=True)
class Plan:
    """The phases of a mix, and its length."""

    phases: tuple[_Phase, ...]
    length: int | None

    def at(self, positions: Indices) -> tuple[Indices, Indices]:
        """Input of every position, and the number of its item; shapes (k,)."""
        if len(self.phases) == 1:
            return self.phases[0].at(positions)
        starts = np.array([phase.start for phase in self.phases], np.int64)
        phase_of = np.searchsorted(starts, positions, side="right") - 1
        which, index = np.empty_like(positions), np.empty_like(positions)
        for i in np.unique(phase_of).tolist():
            places = phase_of == i
            which[places], index[places] = self.phases[i].at(positions[places])
        return which, index


def _round(weights: Sequence[int]) -> Indices:
    """The input at every place of a round.

    Item m of w is at (2 m + 1) / (2 w) of the round, so that each input is spread evenly.
    """
    common = math.gcd(*weights)
    shares = [weight // common for weight in weights]
    total = sum(shares)
    if total > MAX_ROUND:
        raise PipelineError(
            f"the weights in lowest terms sum to {total}",
            field="weights",
            hint=f"Choose coarser weights, with a sum of at most {MAX_ROUND}.",
        )
    which = np.repeat(np.arange(len(shares)), shares)
    item = np.concatenate([np.arange(share) for share in shares])
    # Fractions that differ do so by at least 1 / 2**33, which float64 tells apart.
    place = (2 * item + 1) / (2 * np.repeat(shares, shares))
    return np.asarray(which[np.lexsort((which, place))], np.int64)


def _phase(start: int, which: Indices, consumed: Indices) -> _Phase:
    rank = np.empty(len(which), np.int64)
    quota = np.zeros(len(consumed), np.int64)
    for j in range(len(consumed)):
        places = np.flatnonzero(which == j)
        rank[places] = np.arange(len(places))
        quota[j] = len(places)
    return _Phase(start, which, rank, quota, consumed)


def _shortage(phase: _Phase, lengths: Sequence[int | None]) -> int | None:
    """First position at which an input of the phase has no item left, or None."""
    first = None
    for j, length in enumerate(lengths):
        if length is None or not phase.quota[j]:
            continue
        rounds, rank = divmod(length - int(phase.consumed[j]), int(phase.quota[j]))
        place = int(np.flatnonzero(phase.which == j)[rank])
        position = phase.start + rounds * len(phase.which) + place
        first = position if first is None else min(first, position)
    return first


def make_plan(weights: Sequence[int], lengths: Sequence[int | None], stop: str) -> Plan:
    """Plan a mix by quota.

    Args:
        weights: of the inputs, not all zero.
        lengths: of the inputs, None if endless, as all are with ``cycle``.
        stop: ``first``, ``all`` or ``cycle``.

    Raises:
        PipelineError: the sum of weights in lowest terms is above ``MAX_ROUND``.
    """
    which = _round(weights)
    phase = _phase(0, which, np.zeros(len(weights), np.int64))
    phases = [phase]
    while True:
        end = _shortage(phase, lengths)
        if end is None or end > MAX_ITEMS:
            return Plan(tuple(phases), None)
        if stop == "first":
            return Plan(tuple(phases), end)
        phase = _without(phase, end)
        if not len(phase.which):
            return Plan(tuple(phases), end)
        phases.append(phase)


def _without(phase: _Phase, end: int) -> _Phase:
    """The phase from ``end`` on, without the input that has no item there."""
    rounds, place = divmod(end - phase.start, len(phase.which))
    partly = np.bincount(phase.which[:place], minlength=len(phase.consumed))
    consumed = phase.consumed + rounds * phase.quota + partly
    gone = int(phase.which[place])
    rest = np.roll(phase.which, -place)
    return _phase(end, rest[rest != gone], consumed)
