"""EPT and PSEPT, the exceedance tables, in the columns and formats of OasisLMF's ``lecpy``.

Rows are ordered by summary, as ``lecpy`` orders them where it finds an index of its input: first
everything about one summary, by EPCalc and EPType (EPT) or by EPType and sample (PSEPT), then
everything about the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from ...budget import current
from ...slices import slices
from .._kernels.cells import MEAN_SUM, TOTAL_SUM
from .._kernels.exceedance import (
    ANY_ROW,
    FULL,
    KEEP_ZEROS,
    MEAN_DAMAGE,
    PER_SAMPLE_MEAN,
    SAMPLE_MEAN,
    WITH_YEARS,
    find_middles,
    gather_samples,
    gather_summaries,
)
from ..ledger.batches import CELL_BYTES, Batch
from .drawing import Curves, Drawing, Points
from .report import (
    OF_RUN,
    PERIODS,
    RETURN_PERIODS,
    SUMMARY_ID,
    Calculator,
    RunSetting,
    amount,
    as_rows,
    empty_rows,
    integer,
    number,
)
from .tallying import Repeated, Tallied, Tally, Wanted, pays

OEP = 1
AEP = 3
_PER_SAMPLE = 5
_OF_SAMPLES = frozenset({PER_SAMPLE_MEAN, _PER_SAMPLE})
REPEATED = "repeated"
"""Of what a batch shares: what its groups stand for. Such a batch is one summary, whose curves are
read at return periods of equally likely years."""
_LETTERS = {"f": FULL, "s": SAMPLE_MEAN, "m": PER_SAMPLE_MEAN, "w": _PER_SAMPLE}
_NONE = np.zeros(0, np.int64)
_NO_YEARS = np.zeros(0, np.int32)
_POINT_BYTES = 56
_GROUP_BYTES = 40
"""Memory for each period of a summary: its cells' middle, its years that are used, and those of its
samples."""


class _Block(NamedTuple):
    """Points of one EPCalc, or of the samples, and one EPType, by summary."""

    calculation: int
    type: int
    points: Points


class _Room(NamedTuple):
    """What all curves of a batch are gathered with."""

    values: Floats
    """As long as the cells."""
    middles: Indices
    """First cell of a sample of each group."""


class _ExceedanceTable(Calculator):
    """Draws the curves that the requested reports need, for EPT or PSEPT.

    Args:
        table: name of the report.
        setting: of the run.
    """

    def __init__(self, table: str, setting: RunSetting) -> None:
        self._table = table
        self._dtype = setting.dtype
        self._samples = setting.header.len_sample
        self._periods = setting.periods
        self._returns = len(setting.return_periods)
        self._weighted = len(setting.weights) > 0
        self._drawing = Drawing(
            setting.return_periods, setting.weights, by_weight=setting.options.tvar == "weight"
        )
        self._chosen = _choose(setting)
        at_returns = self._returns > 0
        self._flags = (
            ANY_ROW * at_returns
            | KEEP_ZEROS * (at_returns and self._weighted)
            | WITH_YEARS * self._weighted
        )

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        # Both tables are computed once for a batch.
        found = batch.once("exceedance", lambda: self._draw(batch))
        return _rows(found[self._table], batch, self._dtype), empty_rows(self._dtype)

    def _draw(self, batch: Batch) -> dict[str, list[_Block]]:
        ept: list[_Block] = []
        psept: list[_Block] = []
        sizes = len(batch.cells.samples), len(batch.cells.periods)
        if REPEATED in batch.shared:
            sizes = 0, sizes[1]
        room = _Room(np.empty(sizes[0]), np.empty(sizes[1], np.int64))
        if REPEATED not in batch.shared:
            find_middles(batch.cells, room.middles)
        tallied = self._tally(batch)
        for kind, losses in ((OEP, batch.cells.largest), (AEP, batch.cells.sums)):
            current().check("curves")
            chosen = self._chosen[kind]
            for calculation in (MEAN_DAMAGE, FULL, SAMPLE_MEAN):
                if calculation not in chosen:
                    continue
                if calculation == FULL and kind in tallied:
                    full = tallied[kind].full
                    curves = self._read(full, np.full(len(full), FULL), full=True)
                elif REPEATED in batch.shared:
                    curves = self._repeat(batch.shared[REPEATED], calculation, kind)
                else:
                    curves = self._gather_summaries(batch, losses, calculation, room)
                ept += _blocks(calculation, kind, self._drawing.draw(curves))
            if chosen & _OF_SAMPLES:
                if kind in tallied:
                    curves = self._read(tallied[kind].samples, tallied[kind].labels)
                else:
                    curves = self._gather_samples(batch, losses, room)
                means, samples = self._draw_samples(curves, kind, chosen)
                ept += means
                psept += samples
        ept.sort(key=lambda block: (block.calculation, block.type))
        return {"ept": ept, "psept": psept}

    def _tally(self, batch: Batch) -> dict[int, Tallied]:
        """What curves are read from, by kind, if those of a large summary are."""
        repeated, cells = batch.shared.get(REPEATED), batch.cells
        if repeated is None:
            is_large = len(batch.summaries) == 1 and pays(len(cells.samples), self._samples)
            if self._weighted or not (self._returns and is_large):
                return {}
            repeated = Repeated(np.ones(len(cells.periods), np.int64), 0)
        wanted = {
            kind: self._wanted(losses, self._chosen[kind])
            for kind, losses in ((OEP, cells.largest), (AEP, cells.sums))
            if self._chosen[kind] & {FULL, *_OF_SAMPLES}
        }
        if not wanted:
            return {}
        found = Tally(cells, repeated, self._samples).read(list(wanted.values()))
        return dict(zip(wanted, found, strict=True))

    def _wanted(self, losses: Floats, chosen: frozenset[int]) -> Wanted:
        full = self._periods * self._samples if FULL in chosen else 0
        samples = self._periods if chosen & _OF_SAMPLES else 0
        return Wanted(losses, self._drawing.first(full), self._drawing.first(samples))

    def _repeat(self, repeated: Repeated, calculation: int, kind: int) -> Curves:
        """The curve of one summary whose groups are known as wholes."""
        column = (MEAN_SUM if calculation == MEAN_DAMAGE else TOTAL_SUM) + int(kind == OEP)
        wholes = repeated.wholes[:, column]
        mask = wholes > 0
        values = wholes[mask] / (1 if calculation == MEAN_DAMAGE else self._samples)
        values = np.repeat(values, repeated.times[mask])
        curves = self._of_one(np.full(min(len(values), 1), calculation))
        return replace(curves, values=values, starts=np.array([0, len(values)][: len(curves) + 1]))

    def _read(self, found: Floats, labels: Indices, *, full: bool = False) -> Curves:
        """Curves of one summary of which the losses are found."""
        curves = self._of_one(labels)
        return replace(curves, count=curves.count * (self._samples if full else 1), found=found)

    def _of_one(self, labels: Indices) -> Curves:
        """Curves of one summary, of equally likely years."""
        count = len(labels)
        owners, starts = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
        used = _NO_YEARS, _NONE
        return Curves(np.empty(0), _NONE, starts, labels, owners, *used, self._periods, 1.0)

    def _gather_summaries(
        self, batch: Batch, losses: Floats, calculation: int, room: _Room
    ) -> Curves:
        """A curve for each summary."""
        count = len(batch.summaries)
        values = self._values(room)
        cells, flags = batch.cells, self._flags
        years = np.empty(len(values) if flags & WITH_YEARS else 0, np.int64)
        starts, used_starts = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
        used, drawn = np.empty(len(cells.periods), np.int32), np.zeros(count, np.uint8)
        inputs = (cells, losses, batch.groups, room.middles, calculation, self._samples, flags)
        gather_summaries(*inputs, values, years, starts, used, used_starts, drawn)
        chosen = np.flatnonzero(drawn)
        # Summaries without a row have no losses either, so that starts stay contiguous.
        begins = np.append(starts[chosen], starts[-1])
        full = calculation == FULL
        return Curves(
            values=values[: starts[-1]],
            years=years[: starts[-1]],
            starts=begins,
            labels=np.full(len(chosen), calculation),
            owners=chosen,
            used=used,
            used_starts=used_starts,
            count=self._periods * (self._samples if full else 1),
            scale=1 / self._samples if full else 1.0,
        )

    def _draw_samples(
        self, curves: Curves, kind: int, chosen: frozenset[int]
    ) -> tuple[list[_Block], list[_Block]]:
        """A curve for each sample of each summary, and the means of those."""
        points = self._drawing.draw(curves)
        means: list[_Block] = []
        if PER_SAMPLE_MEAN in chosen:
            mean = self._drawing.draw_means(curves, self._samples, PER_SAMPLE_MEAN)
            means = _blocks(PER_SAMPLE_MEAN, kind, mean)
        samples = _blocks(_PER_SAMPLE, kind, points) if _PER_SAMPLE in chosen else []
        return means, samples

    def _values(self, room: _Room) -> Floats:
        """Memory for the losses of curves: the same, unless points of a curve are views of it."""
        return room.values if self._returns else np.empty(len(room.values))

    def _gather_samples(self, batch: Batch, losses: Floats, room: _Room) -> Curves:
        cells = np.diff(batch.cells.starts[batch.groups])
        most = int(np.minimum(cells, self._samples).sum())
        values = self._values(room)
        years = np.empty(len(values) if self._weighted else 0, np.int64)
        starts = np.zeros(most + 1, np.int64)
        labels, owners = np.empty(most, np.int64), np.empty(most, np.int64)
        scratch = np.zeros((2, self._samples + 1), np.int64)
        inputs = (batch.cells, losses, batch.groups, room.middles, self._flags)
        results = (values, years, starts, labels, owners)
        count = gather_samples(*inputs, scratch[0], scratch[1], *results)
        used, used_starts = self._sample_years(batch, room)
        end = starts[count]
        return Curves(
            values=values[:end],
            years=years[:end],
            starts=starts[: count + 1],
            labels=labels[:count],
            owners=owners[:count],
            used=used,
            used_starts=used_starts,
            count=self._periods,
            scale=1.0,
        )

    def _sample_years(self, batch: Batch, room: _Room) -> tuple[npt.NDArray[np.int32], Indices]:
        """Periods in which a summary has a sample, whatever its loss."""
        cells = batch.cells
        has_sample = room.middles < cells.starts[1:]
        counts = np.add.reduceat(has_sample.astype(np.int64), batch.groups[:-1])
        return cells.periods[has_sample], np.append(0, np.cumsum(counts))

    def weigh(self, cells: Indices, references: Indices) -> Indices:
        """Bytes for summaries of so many cells: scratch, and points and rows of a report."""
        if self._returns:
            points = (4 * np.minimum(cells, self._samples) + 16) * self._returns
        else:
            points = self._count_points(cells, np.minimum(cells, references))
        scratch = CELL_BYTES + 32 + 24 * self._weighted
        weight: Indices = scratch * cells + _POINT_BYTES * points + _GROUP_BYTES * references
        return weight

    def _count_points(self, cells: Indices, periods: Indices) -> Indices:
        """Points of curves of all losses, and as many of their TVaR, at the most."""
        calculations = [c for chosen in self._chosen.values() for c in chosen]
        if self._table == "psept":
            return 2 * calculations.count(_PER_SAMPLE) * cells
        # The curves of samples are drawn for their mean, too, one after the other.
        of_cells = 2 * calculations.count(FULL) + (PER_SAMPLE_MEAN in calculations)
        of_periods = 2 * sum(c not in {FULL, _PER_SAMPLE} for c in calculations)
        return of_cells * cells + of_periods * periods


def _rows(blocks: Sequence[_Block], batch: Batch, dtype: np.dtype[np.void]) -> Rows:
    """The points of blocks, in the order of a report: by summary, then as the blocks."""
    if not blocks:
        return empty_rows(dtype)
    rows = np.empty(sum(len(block.points.periods) for block in blocks), dtype)
    begin = 0
    for block in blocks:
        owners, *columns = block.points
        count = len(owners)
        of_block = rows[begin : begin + count]
        for a, b in slices(count, "rows"):
            labels, periods, losses = (column[a:b] for column in columns)
            summaries = batch.summaries[owners[a:b]]
            # A sum of two floats beyond float64 is no number; it is refused as an infinite one is.
            losses = np.where(np.isnan(losses), np.inf, losses)
            of_block[a:b] = as_rows(dtype, [summaries, labels, block.type, periods, losses])
        begin += count
    if len(batch.summaries) == 1:
        return rows
    summaries = np.concatenate([block.points.owners for block in blocks])
    return rows[np.argsort(summaries, kind="stable")]


def _choose(setting: RunSetting) -> dict[int, frozenset[int]]:
    """Calculations that the letters ask for; numerical means come with any other of EPT.

    Where there are no samples, they come alone.
    """
    chosen: dict[int, set[int]] = {OEP: set(), AEP: set()}
    for letter in setting.options.curves:
        calculation = _LETTERS[letter.lower()]
        report = "psept" if calculation == _PER_SAMPLE else "ept"
        if report in setting.requested:
            chosen[AEP if letter.isupper() else OEP].add(calculation)
    for calculations in chosen.values():
        if calculations - {_PER_SAMPLE}:
            calculations.add(MEAN_DAMAGE)
        if setting.header.len_sample == 0:
            calculations &= {MEAN_DAMAGE}
    return {kind: frozenset(calculations) for kind, calculations in chosen.items()}


def _blocks(calculation: int, kind: int, drawn: tuple[Points, Points]) -> list[_Block]:
    """Losses and TVaR of some curves."""
    return [_Block(calculation, kind + i, points) for i, points in enumerate(drawn)]


_POINT = (
    integer("EPType", "1 OEP, 2 OEP TVaR, 3 AEP, 4 AEP TVaR"),
    number("ReturnPeriod", 6, "Years in which the loss is exceeded once, on average"),
    amount("Loss", 6, "Loss, or mean of the losses at and above it (TVaR)"),
)
_EP_CALC = (
    "1 numerical means, 2 all samples, 3 mean of the samples' curves, 4 means over the samples of"
    " a period's loss (OEP: of each sample's largest loss, not the largest mean of an event)"
)
EPT, PSEPT = (
    OF_RUN(
        name=name,
        title=title,
        columns=(SUMMARY_ID, label, *_POINT),
        takes=(PERIODS, RETURN_PERIODS),
        options=("curves", "tvar"),
        curves=curves,
        calculate=partial(_ExceedanceTable, name),
    )
    for name, title, curves, label in (
        ("ept", "Exceedance probability table", "FfSsMm", integer("EPCalc", _EP_CALC)),
        ("psept", "Per-sample exceedance probability table", "Ww", integer("SampleId", "Sample")),
    )
)
