"""Annual losses of subsets of the samples, shared by AAL and ALCT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...arrays import Floats
from .._kernels.annual import COLUMNS, annual_losses
from ..ledger.batches import Batch
from .running import RunSetting


class Subsets:
    """Means and variances of ranges of samples.

    Args:
        setting: of the run.
        lows: first sample of each range; 0 is the numerical mean.
        highs: sample after the last of each.
    """

    def __init__(self, setting: RunSetting, lows: Sequence[int], highs: Sequence[int]) -> None:
        self._periods = setting.periods
        self._weights = setting.weights * setting.periods
        self._lows = np.array(lows, np.int64)
        self._highs = np.array(highs, np.int64)

    def results(self, batch: Batch) -> Floats:
        """As the kernel gives them, shape (summaries, ranges, COLUMNS)."""
        results = np.empty((len(batch.summaries), len(self._lows), COLUMNS))
        annual_losses(
            batch.cells,
            batch.groups,
            self._weights,
            self._periods,
            self._lows,
            self._highs,
            results,
        )
        return results

    def weigh(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes for summaries of so many cells."""
        return np.full(len(cells), 128 * len(self._lows), np.int64)
