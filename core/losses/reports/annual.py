"""AAL and ALCT, the tables of average annual losses, in the columns and formats of ``aalpy``.

ALCT (``aalpy -c``) is of subsets of the samples: subset i has the samples 2**i to 2**(i+1) - 1,
and no two have one in common, so that the rows show how the estimate settles as samples double;
the last row has all samples.

With P periods, n samples in a subset, x the annual loss of a sample in a period and w the weight
of the period times P: the mean over samples of a period, times w, varies with the hazard, and x
about that mean with the vulnerability::

    VarElementHaz  = sum over periods of (w mean_p - mean)**2 / (P (P - 1))
    VarElementVuln = sum of (w x**2) - n sum of (w mean_p)**2, over (nP - n) nP

The second is meant for equal weights. With others it may be negative, and what follows from it
is then NaN, as it is at the peer. So is what would be divided by nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from ...slices import grouped
from .._kernels import annual
from .._kernels.annual import COLUMNS, MOMENTS, annual_losses, reduce_periods
from .._kernels.layout import LANES
from ..ledger.batches import Batch
from ..ledger.memory import make_sums
from .report import (
    OF_RUN,
    SAMPLE_TYPE,
    SUMMARY_ID,
    Calculator,
    RunSetting,
    amount,
    as_rows,
    empty_rows,
    integer,
    number,
)


def subset_starts(samples: int) -> list[int]:
    """First samples of the subsets whose last sample is there: 1, 2, 4 and so on."""
    count = (samples + 1).bit_length() - 1 if samples > 1 else 0
    return [2**i for i in range(count)]


ANALYTICAL = 1
SAMPLE = 2
MEAN = 0
"""Index of the numerical mean among the subsets."""
ALL = 1
"""Index of all samples; the subsets of ALCT follow."""


class _OfSubsets(Calculator):
    """Means and variances of the numerical mean, of all samples and, for ALCT, of subsets.

    All requested reports read the same results, so the losses of a batch are added up once.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._dtype = setting.dtype
        samples = setting.header.len_sample
        starts = subset_starts(samples) if "alct" in setting.requested else []
        ends = [2 * start for start in starts]
        self._periods = setting.periods
        self._weights = setting.weights * setting.periods
        self._lows = np.array([0, 1, *starts], np.int64)
        self._highs = np.array([1, samples + 1, *ends], np.int64)

    def results(self, batch: Batch) -> Floats:
        """As the kernel gives them, shape (summaries, subsets, COLUMNS)."""
        return batch.once("annual", lambda: self._compute(batch))

    def _compute(self, batch: Batch) -> Floats:
        moments = np.empty((len(batch.periods), len(self._lows), MOMENTS))
        stretches = batch.stretches
        largest = int(np.diff(stretches.starts).max(initial=0))
        sums, lanes = make_sums(stretches.samples, largest), np.zeros(LANES)
        for first, last in stretches.ranges("annual"):
            places, starts = stretches.places, stretches.starts[first : last + 1]
            arena = (stretches.arena, stretches.samples, stretches.width, sums, lanes)
            reduce_periods(places, starts, *arena, self._lows, self._highs, moments[first:last])
        weights = np.ones(len(batch.periods))
        if len(self._weights):
            weights = self._weights[batch.periods - 1]
        results = np.empty((len(batch.summaries), len(self._lows), COLUMNS))
        sizes = self._highs - self._lows
        for first, last in grouped(batch.groups, "annual"):
            groups = batch.groups[first : last + 1]
            annual_losses(moments, weights, groups, self._periods, sizes, results[first:last])
        return results

    def weigh(self, _cells: Indices, references: Indices) -> Indices:
        """Bytes for summaries of so many references."""
        subsets = len(self._lows)
        # Moments and a weight for each period, in which a summary has a reference or more.
        return 128 * subsets + (8 * MOMENTS * subsets + 16) * references


class _Averages(_OfSubsets):
    """Analytical rows of all summaries first, as ``aalpy`` prints them."""

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        results = self.results(batch)[:, :, [annual.MEAN, annual.DEVIATION]]
        analytical, samples = (
            as_rows(self._dtype, [batch.summaries, kind, *results[:, subset].T])
            for kind, subset in ((ANALYTICAL, MEAN), (SAMPLE, ALL))
        )
        return analytical, samples


class _MeansOnly(_OfSubsets):
    """Both rows of a summary together, as ``aalpy -M`` prints them."""

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        kinds = [MEAN, ALL]
        means = self.results(batch)[:, kinds, annual.MEAN]
        types = np.tile([ANALYTICAL, SAMPLE], len(batch.summaries))
        rows = as_rows(self._dtype, [np.repeat(batch.summaries, 2), types, means.ravel()])
        return rows, empty_rows(self._dtype)


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


class _Convergence(_OfSubsets):
    def __init__(self, setting: RunSetting) -> None:
        super().__init__(setting)
        self._z = standard_normal_quantile(setting.options.confidence)
        samples = setting.header.len_sample
        starts = subset_starts(samples)
        self._sizes = np.array([*starts, samples], np.int64)
        self._order = [*range(ALL + 1, ALL + 1 + len(starts)), ALL]

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        results = self.results(batch)[:, self._order]
        columns = [column.ravel() for column in self._columns(results)]
        ids = np.repeat(batch.summaries, len(self._sizes))
        return as_rows(self._dtype, [ids, *columns]), empty_rows(self._dtype)

    def _columns(self, results: Floats) -> list[npt.NDArray[np.floating | np.integer]]:
        """All but the first, each of shape (summaries, subsets)."""
        n = np.broadcast_to(self._sizes, results.shape[:2])
        years, others = self._periods, self._periods - 1 or np.nan
        with np.errstate(invalid="ignore"):
            mean = results[:, :, annual.MEAN]
            divisor = np.where(mean == 0, np.nan, mean)
            hazard = results[:, :, annual.BETWEEN] / others / years
            vulnerability = results[:, :, annual.WITHIN] / (n * others) / (n * years)
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
                error / divisor,
                hazard,
                hazard_error,
                hazard_error / divisor,
                vulnerability,
                error,
                error / divisor,
            ]


_DEVIATION = amount("SDLoss", 6, "Standard deviation of the annual loss")
AAL_MEAN = OF_RUN(
    name="aal_mean",
    title="Average annual loss table, means only",
    columns=(SUMMARY_ID, SAMPLE_TYPE, amount("MeanLoss", 6, "Average annual loss")),
    calculate=_MeansOnly,
)
AAL = OF_RUN(
    name="aal",
    title="Average annual loss table",
    columns=(*AAL_MEAN.columns, _DEVIATION),
    calculate=_Averages,
)
ALCT = OF_RUN(
    name="alct",
    title="Average loss convergence table",
    options=("confidence",),
    columns=(
        SUMMARY_ID,
        amount("MeanLoss", 6, "Average annual loss of the subset of samples"),
        _DEVIATION,
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
    calculate=_Convergence,
)
