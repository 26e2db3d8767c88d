"""Exceedance curves of summaries, shared by EPT and PSEPT.

Rows are ordered by summary, as ``lecpy`` orders them where it finds an index of its input: first
everything about one summary, then everything about the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from .._kernels import curves as kernel
from .._kernels import ordering
from .._kernels.exceedance import (
    FULL,
    MEAN_DAMAGE,
    PER_SAMPLE,
    PER_SAMPLE_MEAN,
    SAMPLE_MEAN,
    Curve,
    Inputs,
    draw_curves,
)
from .._kernels.quantiles import STACK
from ..ledger.batches import Batch
from .running import RunSetting, as_rows

_OF_LETTER = {"f": FULL, "s": SAMPLE_MEAN, "m": PER_SAMPLE_MEAN, "w": PER_SAMPLE}
_POINT_BYTES = 24
_CALCULATIONS = 4
_TYPES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Points of a batch, as columns of a report."""

    summaries: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    types: npt.NDArray[np.int32]
    periods: Floats
    losses: Floats

    def rows(self, dtype: np.dtype[np.void]) -> Rows:
        """The points as rows."""
        if not len(self.labels):
            return np.zeros(0, dtype)
        return as_rows(
            dtype, [self.summaries, self.labels, self.types, self.periods, self.losses]
        )


class Exceedance:
    """Draws the curves that the requested reports need.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._samples = setting.header.len_sample
        self._periods = setting.periods
        returns = setting.return_periods
        self._returns = returns
        self._inputs = Inputs(
            samples=self._samples,
            weights=setting.weights,
            by_period=_places(self._periods, returns),
            by_sample=_places(self._periods * self._samples, returns),
            by_weight=setting.options.tvar == "weight",
            choice=_choice(setting),
        )

    @property
    def any_ept(self) -> bool:
        """Whether a curve of EPT is requested at all."""
        return bool(self._inputs.choice[:, MEAN_DAMAGE].any())

    def tables(self, batch: Batch) -> tuple[Table, Table]:
        """Points of EPT and of PSEPT, computed once for a batch."""
        found: tuple[Table, Table] | None = batch.shared.get("exceedance")
        if found is None:
            found = self._draw(batch)
            batch.shared["exceedance"] = found
        return found

    def _draw(self, batch: Batch) -> tuple[Table, Table]:
        cells = np.diff(batch.cells.starts[batch.groups])
        ept_room, psept_room, tails = self._rooms(cells)
        ept, psept = _points(int(ept_room.sum())), _points(int(psept_room.sum()))
        most = int(cells.max(initial=0))
        ends = np.zeros((2, len(batch.summaries)), np.int64)
        draw_curves(
            batch.cells,
            batch.groups,
            self._inputs,
            ept,
            psept,
            _points(int(tails.max(initial=0))),
            self._curve(most),
            self._work(most),
            ends[0],
            ends[1],
        )
        return _table(batch, ept, ends[0]), _table(batch, psept, ends[1])

    def _rooms(self, cells: Indices) -> tuple[Indices, Indices, Indices]:
        """Points that summaries of so many cells have at the most: of EPT, PSEPT, one curve."""
        returns = len(self._returns)
        drawn = np.minimum(cells, self._samples)
        if returns:
            ept = np.full(len(cells), _CALCULATIONS * _TYPES * returns, np.int64)
            of_samples = returns * drawn
        else:
            ept = _CALCULATIONS * _TYPES * cells
            of_samples = cells
        per_sample = self._inputs.choice[:, PER_SAMPLE].any()
        # A curve that only goes into the mean of samples is drawn at the end of the table.
        psept = _TYPES * of_samples if per_sample else of_samples
        return ept, psept + returns, np.maximum(of_samples, cells) + returns

    def _work(self, cells: int) -> kernel.Work:
        returns = len(self._returns)
        values, spare = np.empty(cells), np.empty(cells)
        weighted = cells if len(self._inputs.weights) else 0
        return kernel.Work(
            values=values,
            spare=spare,
            keys=values.view(np.int64),
            spare_keys=spare.view(np.int64),
            years=np.empty(weighted, np.int64),
            spare_years=np.empty(weighted, np.int64),
            counts=np.zeros(ordering.COUNTS, np.int64),
            ranks=np.zeros(2 * returns, np.int64),
            stack=np.zeros(4 * STACK, np.int64),
            levels=np.zeros(returns),
            befores=np.zeros(returns),
            totals=np.zeros(returns),
            at=np.zeros(returns),
            tails=np.zeros(returns),
            present=np.zeros(returns, np.int64),
        )

    def _curve(self, cells: int) -> Curve:
        returns = len(self._returns)
        weighted = cells if len(self._inputs.weights) else 0
        marked = self._periods if weighted and returns else 0
        return Curve(
            starts=np.zeros(self._samples + 2, np.int64),
            seen=np.zeros(self._samples + 1, np.uint8),
            values=np.empty(cells),
            years=np.empty(weighted, np.int64),
            means=np.zeros(max(cells, returns)),
            levels=np.zeros(returns),
            befores=np.zeros(returns),
            totals=np.zeros(returns),
            counts=np.zeros(returns, np.int64),
            unused=np.ones(marked, np.uint8),
        )

    def weigh(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes for summaries of so many cells: scratch, points, and rows of as many."""
        ept, psept, tails = self._rooms(cells)
        scratch = 4 * 8 + (3 * 8 if len(self._inputs.weights) else 0)
        weight: npt.NDArray[np.int64] = scratch * cells + _POINT_BYTES * (
            2 * (ept + psept) + tails
        )
        return weight


def _places(years: int, returns: Floats) -> kernel.Places:
    wanted = returns.astype(np.int64)
    first = np.where(wanted <= years, -(-years // np.maximum(wanted, 1)), 0)
    follows = np.zeros(len(first), np.int64)
    for k in range(1, len(first)):
        if first[k] and first[k] == first[k - 1]:
            follows[k] = follows[k - 1] + 1
    return kernel.Places(years, returns, first, follows)


def _choice(setting: RunSetting) -> npt.NDArray[np.uint8]:
    """The curves that the letters ask for; numerical means come with any other of EPT."""
    choice = np.zeros((2, PER_SAMPLE + 1), np.uint8)
    for letter in setting.options.curves:
        calculation = _OF_LETTER[letter.lower()]
        report = "psept" if calculation == PER_SAMPLE else "ept"
        if report in setting.requested:
            choice[int(letter.isupper()), calculation] = 1
    choice[:, MEAN_DAMAGE] = choice[:, FULL:PER_SAMPLE].any(axis=1)
    return choice


def _points(count: int) -> kernel.Points:
    return kernel.Points(
        labels=np.empty(count, np.int32),
        types=np.empty(count, np.int32),
        periods=np.empty(count),
        losses=np.empty(count),
        count=np.zeros(1, np.int64),
    )


def _table(batch: Batch, points: kernel.Points, ends: Indices) -> Table:
    count = int(points.count[0])
    summaries = np.repeat(batch.summaries, np.diff(ends, prepend=0))
    return Table(
        summaries,
        points.labels[:count],
        points.types[:count],
        points.periods[:count],
        points.losses[:count],
    )
