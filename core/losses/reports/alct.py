"""ALCT, the average loss convergence table, in the columns and formats of ``aalpy -c``.

Subset i has the samples 2**i to 2**(i+1) - 1, and no two have one in common, so that the rows
show how the estimate settles as samples double; the last row has all samples.

With P periods, n samples in a subset, x the annual loss of a sample in a period and w the weight
of the period times P: the mean over samples of a period, times w, varies with the hazard, and x
about that mean with the vulnerability::

    VarElementHaz  = sum over periods of (w mean_p - mean)**2 / (P (P - 1))
    VarElementVuln = sum of (w x**2) - n sum of (w mean_p)**2, over (nP - n) nP

The second is meant for equal weights. With others it may be negative, and what follows from it
is then NaN, as it is at the peer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from .._kernels import annual
from ..ledger.batches import Batch
from .columns import SUMMARY_ID, amount, integer, number
from .report import OCCURRENCE, PERIODS, Report
from .running import Calculator, RunSetting, as_rows, empty_rows
from .subsets import Subsets, subset_starts

# Abramowitz and Stegun (1964), formula 26.2.23.
_NUMERATOR = (0.010328, 0.802853, 2.515517)
_DENOMINATOR = (0.001308, 0.189269, 1.432788, 1.0)


def standard_normal_quantile(confidence: float) -> float:
    """Half-width of a two-sided interval of the standard normal distribution, to 4.5e-4.

    Args:
        confidence: probability of the interval, 0 to below 1.
    """
    t = np.sqrt(-2 * np.log(1 - (1 + confidence) / 2))
    return float(t - np.polyval(_NUMERATOR, t) / np.polyval(_DENOMINATOR, t))


class _Convergence(Calculator):
    def __init__(self, setting: RunSetting) -> None:
        self._dtype = setting.dtype
        self._periods = setting.periods
        self._z = standard_normal_quantile(setting.options.confidence)
        samples = setting.header.len_sample
        starts = subset_starts(samples)
        self._subsets = Subsets(setting)
        self._sizes = np.array([*starts, samples], np.int64)
        self._order = [*range(Subsets.ALL + 1, Subsets.ALL + 1 + len(starts)), Subsets.ALL]

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        results = self._subsets.results(batch)[:, self._order]
        columns = [column.ravel() for column in self._columns(results)]
        ids = np.repeat(batch.summaries, len(self._sizes))
        return as_rows(self._dtype, [ids, *columns]), empty_rows(self._dtype)

    def _columns(self, results: Floats) -> list[npt.NDArray[np.floating | np.integer]]:
        """All but the first, each of shape (summaries, subsets)."""
        n = np.broadcast_to(self._sizes, results.shape[:2])
        years = self._periods
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = results[:, :, annual.MEAN]
            hazard = results[:, :, annual.BETWEEN] / (years - 1.0) / years
            vulnerability = results[:, :, annual.WITHIN] / (n * (years - 1.0)) / (n * years)
            error, hazard_error = np.sqrt(vulnerability), np.sqrt(hazard)
            interval = error * self._z
            low, high = (
                np.where(interval > 0, mean + sign * interval, 0.0) for sign in (-1.0, 1.0)
            )
            return [
                mean,
                results[:, :, annual.DEVIATION],
                n,
                low,
                high,
                error,
                error / mean,
                hazard,
                hazard_error,
                hazard_error / mean,
                vulnerability,
                error,
                error / mean,
            ]

    def weigh(self, _cells: Indices, references: Indices) -> Indices:
        return self._subsets.weigh(references)


ALCT = Report(
    name="alct",
    title="Average loss convergence table",
    columns=(
        SUMMARY_ID,
        amount("MeanLoss", 6, "Average annual loss of the subset of samples"),
        amount("SDLoss", 6, "Standard deviation of the annual loss"),
        integer("SampleSize", "Samples in the subset"),
        amount("LowerCI", 6, "Lower end of the confidence interval of the mean; 0 if it has none"),
        amount("UpperCI", 6, "Upper end of the confidence interval; 0 if it has none"),
        amount("StandardError", 6, "Standard error of the mean"),
        number("RelativeError", 6, "Standard error over mean"),
        number("VarElementHaz", 6, "Variance of the mean that is due to the hazard"),
        amount("StandardErrorHaz", 6, "Its square root"),
        number("RelativeErrorHaz", 6, "The same over the mean"),
        number("VarElementVuln", 6, "Variance of the mean that is due to the vulnerability"),
        amount("StandardErrorVuln", 6, "Its square root"),
        number("RelativeErrorVuln", 6, "The same over the mean"),
    ),
    scope="run",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    calculate=_Convergence,
)
