"""From the losses of curves to their points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Floats, Indices
from ...budget import current
from ...slices import SLICE, grouped, touched
from ...sorting import COUNTS, PROGRESS, sort_pairs
from .._kernels import curves as kernel
from .._kernels import spreading
from .._kernels.quantiles import STACK
from .._kernels.tails import EXPONENTS


class Points(NamedTuple):
    """Points of curves, by curve."""

    owners: Indices
    """Index of the summary."""
    labels: Array
    periods: Floats
    losses: Floats


_NO_POINTS = Points(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(slots=True, eq=False)
class Curves:
    """Losses of several curves, and what has been found in them."""

    values: Floats
    """Overwritten as they are drawn; all points of a curve are sorted in place."""
    years: Indices
    """Period of each loss, if years have weights; else empty."""
    starts: Indices
    """First loss of each curve, shape (curves + 1,)."""
    labels: Indices
    """EPCalc or sample of each, shape (curves,)."""
    owners: Indices
    """Index of the summary of each, ascending, shape (curves,)."""
    used: npt.NDArray[np.int32]
    """Periods of the summaries."""
    used_starts: Indices
    """First period of each summary, shape (summaries + 1,)."""
    count: int
    """Equally likely years of a curve."""
    scale: float
    """Scale of the weights of years."""
    found: Floats | None = None
    """Losses around each return period, shape (curves, 3, return periods)."""
    read: Floats | None = None
    """Loss and TVaR at each return period, shape (curves, 2, return periods)."""
    present: npt.NDArray[np.uint8] | None = None
    """Which of the two there are, shape (curves, return periods)."""

    def __len__(self) -> int:
        return len(self.labels)


class Drawing:
    """Draws curves: every point, or points at return periods.

    Args:
        returns: requested return periods, descending; empty for every point.
        weights: of the periods; empty if they are equally likely.
        by_weight: TVaR by weight rather than by count.
    """

    def __init__(self, returns: Floats, weights: Floats, *, by_weight: bool) -> None:
        self._returns = returns
        self._weights = weights
        self._by_weight = by_weight

    def draw(self, curves: Curves) -> tuple[Points, Points]:
        """Losses and TVaR of curves."""
        if len(self._returns) == 0:
            return self._list_points(curves)
        if len(self._weights):
            self._read_weighted(curves)
        else:
            if curves.found is None:
                self._find_levels(curves)
            self._evaluate(curves)
        return self._points_read(curves)

    def draw_means(self, curves: Curves, samples: int, label: int) -> tuple[Points, Points]:
        """Losses and TVaR of the means, by summary, of curves that have been drawn.

        Args:
            curves: of the samples of summaries.
            samples: over which to take the mean, those without a curve included.
            label: of the means.
        """
        owners = np.unique(curves.owners)
        begins = np.searchsorted(curves.owners, owners)
        if len(self._returns) == 0:
            return self._list_means(curves, samples, label, owners, begins)
        if len(owners) == 0:
            return _NO_POINTS, _NO_POINTS
        means = replace(curves, labels=np.full(len(owners), label), owners=owners)
        if len(self._weights):
            assert curves.read is not None and curves.present is not None  # noqa: PT018, S101 - drawn
            mask = curves.present & kernel.LOSS
            sums = np.add.reduceat(np.where(mask, curves.read[:, 0], 0.0), begins)
            counts = np.add.reduceat(mask.astype(np.int64), begins)
            # Without a TVaR, as at the peer.
            means.present = (counts > 0).astype(np.uint8) * np.uint8(kernel.LOSS)
            means.read = np.zeros((len(owners), 2, len(self._returns)))
            means.read[:, 0] = sums / np.maximum(counts, 1)
        else:
            assert curves.found is not None  # noqa: S101 - they have been drawn
            means.found = np.add.reduceat(curves.found, begins) / samples
            self._evaluate(means)
        return self._points_read(means)

    # -- at return periods -------------------------------------------------------

    def first(self, count: int) -> Indices:
        """The first i with count / i at or below each return period; 0 where there is none."""
        wanted = self._returns.astype(np.int64)
        return np.where(wanted <= count, -(-count // wanted), 0)

    def _find_levels(self, curves: Curves) -> None:
        longest = int(np.diff(curves.starts).max(initial=0))
        curves.found = np.empty((len(curves), 3, len(self._returns)))
        first = self.first(curves.count)
        ranks, counts = np.zeros(2 * len(first), np.int64), np.zeros(spreading.BUCKETS, np.int64)
        spare, stack = touched(longest, "curves").view(np.float64), np.zeros(4 * STACK, np.int64)
        progress = np.zeros(spreading.SPREADING, np.int64)
        parts = np.zeros((2, EXPONENTS), np.int64)
        bits = curves.values.view(np.int64)
        for a, b in self._ranges(curves, len(first)):
            begin, end = curves.starts[a], curves.starts[b]
            is_long = end - begin > SLICE and b == a + 1
            if is_long:
                progress[:] = 0
                of_curve = curves.values[begin:end], bits[begin:end]
                while spreading.spread(*of_curve, counts, spare, progress, SLICE):
                    current().check("curves")
            scratch = (ranks, counts, spare, spare.view(np.int64), stack, progress)
            values, starts, found = curves.values, curves.starts[a : b + 1], curves.found[a:b]
            kernel.find_levels(values, bits, starts, first, *scratch, is_long, parts, found)

    def _evaluate(self, curves: Curves) -> None:
        """Loss and TVaR of curves of equally likely years, from what was found in them."""
        assert curves.found is not None  # noqa: S101 - called after finding
        first = self.first(curves.count)
        curves.read = np.zeros((len(curves), 2, len(first)))
        curves.present = np.zeros((len(curves), len(first)), np.uint8)
        follows = 0
        tail: Floats | float = 0.0
        budget = current()
        for k, i in enumerate(first.tolist()):
            budget.check("curves")
            if i == 0:
                continue
            level, before, total = (curves.found[:, part, k] for part in range(3))
            wanted = self._returns[k]
            period, period_before = curves.count / i, curves.count / max(i - 1, 1)
            loss = level
            if period != wanted:
                slope = (before - level) / (period_before - period)
                loss = np.where(level == 0, 0.0, level + (wanted - period) * slope)
            follows = follows + 1 if k and i == first[k - 1] else 0
            if self._by_weight:
                exact = curves.count / wanted
                tail = (total + (exact - (i - 1)) * level) / exact
            else:
                if follows == 0:
                    tail = total / max(i - 1, 1)
                tail = tail - (tail - loss) / (i + follows)
            curves.read[:, 0, k] = loss
            curves.read[:, 1, k] = tail
            curves.present[:, k] = kernel.LOSS | kernel.TAIL

    def _read_weighted(self, curves: Curves) -> None:
        curves.read = np.zeros((len(curves), 2, len(self._returns)))
        curves.present = np.zeros((len(curves), len(self._returns)), np.uint8)
        sorting, weighing = self._sorting(curves), self._weighing(curves.scale)
        for a, b in self._ranges(curves, len(self._returns) + len(self._weights)):
            of_curves = (curves.values, sorting, curves.starts[a : b + 1], curves.owners[a:b])
            years = (curves.used_starts, curves.used, self._returns, weighing)
            kernel.read_weighted(*of_curves, *years, curves.read[a:b], curves.present[a:b])

    def _points_read(self, curves: Curves) -> tuple[Points, Points]:
        assert curves.read is not None and curves.present is not None  # noqa: PT018, S101 - read
        kinds = []
        for column, flag in enumerate((kernel.LOSS, kernel.TAIL)):
            current().check("curves")
            rows, at = np.nonzero(curves.present & flag)
            losses = curves.read[:, column][rows, at]
            kinds.append(
                Points(curves.owners[rows], curves.labels[rows], self._returns[at], losses)
            )
        return kinds[0], kinds[1]

    # -- every point -------------------------------------------------------------

    def _list_points(self, curves: Curves) -> tuple[Points, Points]:
        points = np.empty((2, len(curves.values)))
        sorting, weighing = self._sorting(curves), self._weighing(curves.scale)
        for a, b in self._ranges(curves):
            starts = curves.starts[a : b + 1]
            kernel.list_points(curves.values, sorting, starts, curves.count, weighing, points)
        lengths = np.diff(curves.starts)
        budget = current()
        owners = np.repeat(curves.owners, lengths)
        budget.check("curves")
        labels = np.repeat(curves.labels, lengths)
        budget.check("curves")
        kept = points[0] > 0
        if kept.all():
            values = curves.values
        else:
            owners, labels = owners[kept], labels[kept]
            budget.check("curves")
            points = points[:, kept]
            budget.check("curves")
            values = curves.values[kept]
        return Points(owners, labels, points[0], values), Points(owners, labels, *points)

    def _list_means(
        self, curves: Curves, samples: int, label: int, owners: Indices, begins: Indices
    ) -> tuple[Points, Points]:
        if len(self._weights) or len(owners) == 0:
            # With weights, samples have their points at different return periods.
            return _NO_POINTS, _NO_POINTS
        ends = np.append(begins[1:], len(curves))
        longest = int(np.diff(curves.starts).max())
        parts = []
        budget = current()
        for begin, end in zip(begins, ends, strict=True):
            budget.check("curves")
            sums = np.zeros(longest)
            count = kernel.add_ranks(curves.values, curves.starts[begin : end + 1], sums)
            parts.append(sums[:count] / samples)
        sizes = np.array([len(part) for part in parts])
        means = replace(
            curves,
            values=np.concatenate(parts),
            starts=np.append(0, np.cumsum(sizes)),
            labels=np.full(len(owners), label),
            owners=owners,
        )
        return self._list_points(means)

    # -- scratch -----------------------------------------------------------------

    @staticmethod
    def _ranges(curves: Curves, further: int = 0) -> Iterator[tuple[int, int]]:
        """Ranges of curves that take some ten milliseconds; see ``grouped``.

        Args:
            curves: all of them.
            further: steps that each takes besides those for its losses.
        """
        return grouped(curves.starts + further * np.arange(len(curves.starts)), "curves")

    def _sorting(self, curves: Curves) -> kernel.Sorting:
        """What kernels sort curves with; those that take long to sort are sorted already."""
        lengths = np.diff(curves.starts)
        keys = curves.values.view(np.int64)
        for curve in np.flatnonzero(lengths > SLICE).tolist():
            of_curve = slice(curves.starts[curve], curves.starts[curve + 1])
            kernel.flip(keys[of_curve])
            sort_pairs(keys[of_curve], curves.years[of_curve], "curves")
            kernel.flip(keys[of_curve])
        longest = int(lengths.max(initial=0))
        return kernel.Sorting(
            keys=keys,
            years=curves.years,
            spare_keys=touched(longest, "curves"),
            spare_years=touched(longest, "curves"),
            counts=np.zeros(COUNTS, np.int64),
            progress=np.zeros(PROGRESS, np.int64),
        )

    def _weighing(self, scale: float) -> kernel.Weighing:
        return kernel.Weighing(
            self._weights, scale, self._by_weight, np.ones(len(self._weights), np.uint8)
        )
