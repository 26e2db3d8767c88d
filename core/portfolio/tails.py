"""The tail of a curve, as cells of the whole: periods and samples, from the largest loss S on.

At the return period r the tail is the share 1/r of their mass; the cell at its boundary belongs to
it by a fraction, and cells tied with that share it alike::

    cells by S   | 90 | 70 | 55 | 55 | 40 | ...
    tail 1/r     |=========|~~~~~~~~~|            2.6 of them: 1, 1, 0.3, 0.3

TVaR is the mean of S over the tail, and VaR the loss of the cell at the boundary: a curve that is
read between two cells has a larger one. VaR is also a factor times the mean over a *band* around
that cell. A band of 0 has the tied cells alone. A band of b around rank k has those of ranks
(1 - b) k to (1 + b) k, and those tied with an end. Where periods have weights, the rank of a cell
is the mass of those up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import Floats, Indices
from ..budget import current
from ..slices import grouped, slices
from ..sorting import order_of
from ._kernels import attributing
from .assembling import picked
from .combining import check_finite
from .joining import weights_of
from .losses import Calendar, OccurrenceLosses

Kind = Literal["oep", "aep"]
_CELL_BYTES = 64
_EXACT = 1e-12
"""Relative difference between masses that rounding explains."""
_HIGHEST = 0x7FFFFFFFFFFFFFFF
_picked = partial(picked, stage="contributions")


@dataclass(frozen=True, slots=True)
class Aim:
    """The points to which groups contribute."""

    return_periods: tuple[int, ...]
    """Years, from 1 on, one at least."""
    kind: Kind = "aep"
    mean: bool = False
    """Of the numerical means instead of all samples."""
    band: float = 0.0
    """Half of the width of the band around a VaR, as a share of its rank; 0 to below 1."""
    leave_one_out: bool = False
    close: float = 0.0
    """Share by which losses differ that are tied nevertheless."""


class Tail(NamedTuple):
    """A point of the curve, and what cells are to it."""

    loss: float
    """VaR, 0 where a loss is rarer."""
    mean: float
    """TVaR."""
    cells: tuple[int, int]
    """Cells of the band, and of the tail."""
    bands: tuple[tuple[float, float], tuple[float, float]]
    """Least and largest loss of both."""
    coefficients: Floats
    """Of each cell's S in VaR and TVaR, shape (2, cells)."""


class Ranked:
    """The cells of a whole, from the largest loss on.

    Args:
        whole: losses of the whole.
        amounts: of its rows, not below 0.
        calendar: of it.
        samples: len_sample.
        aim: which cells, and of which kind.
    """

    def __init__(
        self, whole: OccurrenceLosses, amounts: Floats, calendar: Calendar, samples: int, aim: Aim
    ) -> None:
        count = len(whole.periods)
        current().hold("contributions", _CELL_BYTES * count)
        sums, largest = np.empty(count), np.empty(count)
        self.rows = np.empty(count, np.int64)
        for a, b in grouped(whole.starts, "contributions"):
            part = slice(a, b)
            out = (sums[part], largest[part], self.rows[part])
            attributing.reduce_rows(whole.starts[a : b + 1], amounts, aim.close, *out)
        values = sums if aim.kind == "aep" else largest
        check_finite(values)
        self._count = count
        self._order = np.flatnonzero(((whole.samples == 0) == aim.mean) & (values > 0))
        # The bits of losses order as they do.
        bits = _picked(values, self._order).view(np.int64)
        _, order = order_of(_HIGHEST - bits, "contributions")
        self._order = _picked(self._order, order)
        self._values = _picked(values, self._order)
        for a, b in slices(len(self._values), "contributions") if aim.close else ():
            attributing.tie(self._values, aim.close, a, b)
        self._descent = -self._values
        each = 1 if aim.mean else samples
        self._mass = np.ones(len(self._order))
        self._all = float(calendar.periods * each)
        if len(calendar.weights):
            self._mass = _picked(weights_of(calendar), _picked(whole.periods, self._order) - 1)
            self._all = float(each)
        cells = each * (np.count_nonzero(calendar.weights) or calendar.periods)
        self._without = int(cells - np.count_nonzero(self._mass))
        """Cells without a loss, all tied."""
        self._reach = np.cumsum(self._mass)
        self._band = aim.band

    def tail(self, return_period: float) -> Tail:
        """The point at a return period."""
        wanted = self._all / return_period
        values, mass = self._values, self._mass
        coefficients = np.zeros((2, self._count))
        place = self._place(wanted)
        level = float(values[place]) if place < len(values) else 0.0
        above, tied = (
            int(np.searchsorted(self._descent, -level, side=s)) for s in ("left", "right")
        )
        before = self._reach[above - 1] if above else 0.0
        _put(coefficients[1], self._order[:above], mass[:above] / wanted)
        if level > 0:
            rest = (wanted - before) / (self._reach[tied - 1] - before)
            _put(coefficients[1], self._order[above:tied], rest * mass[above:tied] / wanted)
            band, without = self._near(place)
            with np.errstate(over="ignore"):
                total = float((mass[band] * values[band]).sum())
            check_finite(np.array([total]))
            _put(coefficients[0], self._order[band], mass[band] * (level / total))
        else:
            tied, band, without = above, slice(0), self._without
        mean = float((_picked(coefficients[1], self._order[:tied]) * values[:tied]).sum())
        in_tail = 0 if level > 0 else without
        bands = (_ends(values[band], without), _ends(values[:tied], in_tail))
        cells = (len(values[band]) + without, tied + in_tail)
        return Tail(level, mean, cells, bands, coefficients)

    def _place(self, mass: float) -> int:
        """Place of the cell with which the tail has this mass."""
        return int(np.searchsorted(self._reach, mass * (1 - _EXACT)))

    def _near(self, place: int) -> tuple[slice, int]:
        """Cells whose rank is within the band of that of one, and those tied with an end.

        Returns:
            Those with a loss, and how many have none.
        """
        rank, descent, lossy = float(self._reach[place]), self._descent, float(self._reach[-1])
        most = rank * (1 + self._band) * (1 + _EXACT)
        last = np.searchsorted(self._reach, most, side="right") - 1
        # Of periods with weights, cells without a loss are in no order: each has their mean mass.
        is_reached = self._without and most >= lossy + (self._all - lossy) / self._without
        # Cells without mass, which have the rank of the one before, are in none.
        ends = self._place(rank * (1 - self._band)), self._place(float(self._reach[last]))
        begin = np.searchsorted(descent, descent[ends[0]], side="left")
        end = np.searchsorted(descent, descent[ends[1]], side="right")
        return slice(int(begin), int(end)), self._without if is_reached else 0


def _put(target: Floats, at: Indices, values: Floats) -> None:
    for a, b in slices(len(at), "contributions"):
        target[at[a:b]] = values[a:b]


def _ends(values: Floats, without: int) -> tuple[float, float]:
    """Least and largest of descending values and of as many cells without a loss."""
    largest = float(values[0]) if len(values) else 0.0
    return (0.0 if without or not len(values) else float(values[-1])), largest
