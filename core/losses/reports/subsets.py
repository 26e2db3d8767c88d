"""Annual losses of subsets of the samples, shared by AAL and ALCT."""

from __future__ import annotations

import numpy as np

from ...arrays import Floats, Indices
from ...slices import grouped
from .._kernels.annual import COLUMNS, MOMENTS, annual_losses, reduce_periods
from .._kernels.layout import LANES
from ..ledger.batches import Batch
from ..ledger.memory import make_sums
from .running import RunSetting


def subset_starts(samples: int) -> list[int]:
    """First samples of the subsets whose last sample is there: 1, 2, 4 and so on."""
    starts = []
    if samples > 1:
        start = 1
        while 2 * start - 1 <= samples:
            starts.append(start)
            start *= 2
    return starts


class Subsets:
    """Means and variances of the numerical mean, of all samples and, for ALCT, of subsets.

    All requested reports read the same results, so the losses of a batch are added up once.

    Args:
        setting: of the run.
    """

    MEAN = 0
    """Index of the numerical mean."""
    ALL = 1
    """Index of all samples; the subsets follow."""

    def __init__(self, setting: RunSetting) -> None:
        samples = setting.header.len_sample
        starts = subset_starts(samples) if "alct" in setting.requested else []
        ends = [2 * start for start in starts]
        self._periods = setting.periods
        self._weights = setting.weights * setting.periods
        self._lows = np.array([0, 1, *starts], np.int64)
        self._highs = np.array([1, samples + 1, *ends], np.int64)

    def results(self, batch: Batch) -> Floats:
        """As the kernel gives them, shape (summaries, subsets, COLUMNS)."""
        results: Floats | None = batch.shared.get("annual")
        if results is None:
            results = self._compute(batch)
            batch.shared["annual"] = results
        return results

    def _compute(self, batch: Batch) -> Floats:
        moments = np.empty((len(batch.periods), len(self._lows), MOMENTS))
        stretches = batch.stretches
        largest = int(np.diff(stretches.starts).max(initial=0))
        sums, lanes = make_sums(stretches.samples, largest), np.zeros(LANES)
        for first, last in stretches.ranges("annual"):
            reduce_periods(
                stretches.places,
                stretches.starts[first : last + 1],
                stretches.arena,
                stretches.samples,
                stretches.width,
                sums,
                lanes,
                self._lows,
                self._highs,
                moments[first:last],
            )
        weights = np.ones(len(batch.periods))
        if len(self._weights):
            weights = self._weights[batch.periods - 1]
        results = np.empty((len(batch.summaries), len(self._lows), COLUMNS))
        sizes = self._highs - self._lows
        for first, last in grouped(batch.groups, "annual"):
            groups = batch.groups[first : last + 1]
            annual_losses(moments, weights, groups, self._periods, sizes, results[first:last])
        return results

    def weigh(self, references: Indices) -> Indices:
        """Bytes for summaries of so many references."""
        subsets = len(self._lows)
        # Moments and a weight for each period, in which a summary has a reference or more.
        return 128 * subsets + (8 * MOMENTS * subsets + 16) * references
