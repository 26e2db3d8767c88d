"""What layers recover: by occurrence, by period and sample, and on average.

Amounts of a layer are of its placed share. Reinstatement premiums are pro rata as to amount and
100 % as to time::

    premium x charge of reinstatement i x amount reinstated / limit

Reinstatement i restores what a period's losses take of the layer from (i - 1) limits to i limits,
so with n of them the last limit is not restored, and nothing is paid for it. Where an aggregate
limit leaves less than (n + 1) limits, no more is reinstated than that limit less one of these: of
1,500 a year with limits of 1,000, 500 are. The premium is that
of the whole layer, and of the reinstatement premium the placed share is paid, too. Premiums are no
part of net losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Floats
from ..budget import Scope, current
from ..losses._kernels.cells import Cells
from ..slices import grouped, slices
from ..sorting import order_of, starts_of
from ._kernels import averages
from ._kernels.layers import Flags
from .assembling import picked
from .losses import Calendar, Int32s, OccurrenceLosses
from .programme import Layer, Programme

_STAGE, _NETTING = "layers", "net losses"
_ROW_BYTES, _CELL_BYTES = 64, 24
_ROUNDING = 1e-12
"""A weight that is the rounding of a sum."""


class LayerResult(NamedTuple):
    """Annual results of a layer; NaN where there are none."""

    number: int
    name: str
    mean: bool
    """Of the numerical means of losses, instead of their samples."""
    expected_loss: float
    standard_deviation: float
    """Of the ceded loss of a period, as AAL has it: with one period and sample less."""
    attachment: float
    """Probability that the placed share recovers anything in a period."""
    exhaustion: float
    """Probability that it pays its limit of a period; without one, its limit of an occurrence."""
    premium: float
    reinstatement_premium: float
    """Expected."""
    rate_on_line: float
    """Premium over the line, a limit."""
    loss_on_line: float
    """Expected loss over the placed line."""


def read_only(values: Array, dtype: type[np.generic]) -> Array:
    """Return a view that nobody writes to: kernels are compiled for such."""
    view = np.ascontiguousarray(values, dtype).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True, eq=False)
class Recoveries:
    """What a programme makes of the losses of a subject."""

    programme: Programme
    subject: OccurrenceLosses
    """Gross losses."""
    calendar: Calendar
    samples: int
    net: Floats
    """Loss of each row of the subject after all layers, from 0 on; shape (rows,)."""
    recovered: Floats
    """Of each whole layer, as if all of it were placed; shape (layers, cells)."""
    exhausted: Flags
    """Shape (layers, cells)."""
    gross_sums: Floats
    """Of each cell, shape (cells,)."""
    joined: Int32s | None
    """Occurrence with which what is ceded of a row counts as one: the first of the window that the
    first layer whose hours clause has it puts it in, or else its own. Shape (rows,); None without
    such a layer."""

    def net_losses(self) -> OccurrenceLosses:
        """The subject after all layers; rows may be 0."""
        return self.subject._replace(losses=self.net)

    def ceded_losses(self) -> OccurrenceLosses:
        """What all layers together take of the subject; rows may be 0."""
        current().hold(_STAGE, self.net.nbytes)
        ceded = np.empty(len(self.net))
        for a, b in slices(len(ceded), _STAGE):
            np.subtract(self.subject.losses[a:b], self.net[a:b], out=ceded[a:b])
        return self.subject._replace(losses=ceded)

    def ceded(self, k: int) -> Floats:
        """What the ``k``-th layer cedes, by cell; shape (cells,)."""
        ceded = self._by_cell()
        for a, b in slices(len(ceded), _STAGE):
            np.multiply(self.recovered[k, a:b], self.programme.layers[k].placed, out=ceded[a:b])
        return ceded

    def reinstatement_premiums(self, k: int) -> Floats:
        """Reinstatement premiums of the ``k``-th layer, by cell; shape (cells,)."""
        layer = self.programme.layers[k]
        premiums = self._by_cell()
        for a, b in slices(len(premiums), _STAGE):
            averages.reinstate(self.recovered[k, a:b], *_reinstated(layer), premiums[a:b])
            premiums[a:b] *= (layer.premium or 0.0) * layer.placed
        return premiums

    def results(self) -> list[LayerResult]:
        """Annual results of each layer, of samples and then of the mean."""
        weights, periods = self.calendar.weights, self.calendar.periods
        samples = np.array([self.samples, 1])
        divisors = samples * (math.fsum(weights) if len(weights) else periods)
        present = [self.samples > 0, self._has_mean()]
        rows = []
        for k, layer in enumerate(self.programme.layers):
            with np.errstate(divide="ignore", invalid="ignore"):
                first = self._moments(k, np.zeros(2)) / divisors[:, np.newaxis]
                means = np.nan_to_num(first[:, averages.SUM])
                squares = self._moments(k, means)[:, averages.SQUARES] / divisors
            absent = 1 - first[:, averages.WEIGHT]
            with np.errstate(over="ignore", invalid="ignore"):
                squares += np.where(absent > _ROUNDING, absent * means**2, 0)
            for i in np.flatnonzero(present).tolist():
                years = periods * int(samples[i])
                rows.append(_result(layer, first[i], squares[i], years, mean=i == 1))
        return rows

    def _has_mean(self) -> bool:
        samples = self.subject.samples
        return any((samples[a:b] == 0).any() for a, b in slices(len(samples), _STAGE))

    def _by_cell(self) -> Floats:
        current().hold(_STAGE, 8 * self.recovered.shape[1])
        return np.empty(self.recovered.shape[1])

    def _moments(self, k: int, centres: Floats) -> Floats:
        layer, parts = self.programme.layers[k], []
        terms = *_reinstated(layer), centres
        periods, samples = (read_only(ids, np.int32) for ids in self.subject[1:3])
        weights = read_only(self.calendar.weights, np.float64)
        for a, b in slices(self.recovered.shape[1], _STAGE):
            parts.append(np.empty((2, averages.MOMENTS)))
            of_cells = self.recovered[k, a:b], self.exhausted[k, a:b], periods[a:b], samples[a:b]
            averages.weigh(*of_cells, weights, *terms, parts[-1])
        # Rounded once, so that slices do not show.
        sums = [math.fsum(column) for column in np.array(parts).reshape(-1, 2 * averages.MOMENTS).T]
        return np.array(sums).reshape(2, averages.MOMENTS)


def _reinstated(layer: Layer) -> tuple[float, float, Floats]:
    """Limit of a layer, what can be reinstated of it in a period, and the charges."""
    most = max(layer.terms["AggLimit"] - layer.line, 0.0) if layer.charges else 0.0
    return layer.line, most, np.array(layer.charges)


def _result(layer: Layer, moments: Floats, squares: float, years: int, mean: bool) -> LayerResult:
    """Results from moments of the whole layer, divided by the years."""
    deviation = math.sqrt(squares * years / (years - 1)) if years > 1 else math.nan
    premium = math.nan if layer.premium is None else layer.premium
    has_line, takes = layer.line < math.inf, layer.placed > 0
    exhausted = takes * min(float(moments[averages.EXHAUSTED]), 1.0)
    return LayerResult(
        number=layer.number,
        name=layer.name,
        mean=mean,
        expected_loss=float(moments[averages.SUM]) * layer.placed,
        standard_deviation=deviation * layer.placed,
        attachment=takes * min(float(moments[averages.WEIGHT]), 1.0),
        exhaustion=exhausted if layer.exhaustible else math.nan,
        premium=premium * layer.placed,
        reinstatement_premium=(
            premium * layer.placed * float(moments[averages.PREMIUM]) / layer.line
            if has_line and layer.charges else 0.0 * premium
        ),
        rate_on_line=premium / layer.line if has_line else math.nan,
        loss_on_line=float(moments[averages.SUM]) / layer.line if has_line and takes else math.nan,
    )  # fmt: skip


def _joined_parts(losses: OccurrenceLosses, joined: Int32s | None) -> Int32s:
    """With which occurrence each row counts as one, if those of an occurrence's parts are one.

    Parts that an hours clause joins to an earlier occurrence take the others with them.
    """
    if joined is None:
        return losses.occurrences
    begins = np.append(True, np.diff(losses.occurrences) != 0)
    begins[losses.starts[:-1]] = True
    runs = begins.nonzero()[0]
    current().check(_NETTING)
    return np.repeat(np.minimum.reduceat(joined, runs), np.diff(np.append(runs, len(joined))))


def cells_of(
    losses: OccurrenceLosses, parts: Int32s, groups: int, joined: Int32s | None = None
) -> Cells:
    """Return sums and largest losses by part, period and sample.

    Args:
        losses: occurrence by occurrence, of all parts; rows may be 0.
        parts: of each row; empty if there is one.
        groups: number of parts; or 1, to add up those that ``parts`` tell apart.
        joined: occurrence with which each row counts as one in the largest loss; None if that is
            its own.

    Raises:
        WorkStoppedError: they do not fit, or nobody waits for the result.
    """
    if groups == 1 and parts.any():
        joined, parts = _joined_parts(losses, joined), parts[:0]
    current().hold(_NETTING, _CELL_BYTES * min(len(losses.losses), groups * len(losses.periods)))
    with Scope(_NETTING, _ROW_BYTES * len(losses.losses)):
        cells = np.repeat(np.arange(len(losses.periods)), np.diff(losses.starts))
        kept = np.flatnonzero(losses.losses > 0)
        if joined is not None:
            _, order = order_of(picked(joined, kept, _NETTING), _NETTING)
            kept = picked(kept, order, _NETTING)
        keys = picked(cells, kept, _NETTING)
        if len(parts):
            keys += picked(parts, kept, _NETTING).astype(np.int64) * len(losses.periods)
        if groups > 1 or joined is not None:
            keys, order = order_of(keys, _NETTING)
            kept = picked(kept, order, _NETTING)
        current().check(_NETTING)
        starts = starts_of(keys)
        amounts = picked(losses.losses, kept, _NETTING)
        sums, largest = np.empty(len(starts) - 1), np.empty(len(starts) - 1)
        for a, b in grouped(starts, _NETTING):
            run, begins = slice(starts[a], starts[b]), starts[a:b] - starts[a]
            part = amounts[run]
            sums[a:b] = np.add.reduceat(part, begins)
            if joined is not None:
                cuts = np.append(True, np.diff(keys[run]) | np.diff(joined[kept[run]])).nonzero()[0]
                part, begins = np.add.reduceat(part, cuts), np.searchsorted(cuts, begins)
            largest[a:b] = np.maximum.reduceat(part, begins)
        firsts = picked(kept, starts[:-1], _NETTING)
        places = picked(cells, firsts, _NETTING)
        owners = picked(parts, firsts, _NETTING) if len(parts) else np.zeros(len(places), np.int32)
        periods = picked(losses.periods, places, _NETTING)
        changes = starts_of(owners.astype(np.int64) << 32 | periods)
        samples = picked(losses.samples, places, _NETTING)
        of_pairs = owners[changes[:-1]], periods[changes[:-1]]
        return Cells(*of_pairs, changes, samples, sums, largest)
