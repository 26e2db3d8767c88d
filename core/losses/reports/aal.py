"""AAL, the average annual loss table, in the columns and formats of OasisLMF's ``aalpy``."""

from __future__ import annotations

import numpy as np

from ...arrays import Indices, Rows
from .._kernels import annual
from ..ledger.batches import Batch
from .columns import SUMMARY_ID, amount, integer
from .report import OCCURRENCE, PERIODS, Report
from .running import Calculator, RunSetting, as_rows, empty_rows
from .subsets import Subsets

ANALYTICAL = 1
SAMPLE = 2

_COLUMNS = (
    SUMMARY_ID,
    integer("SampleType", "1 analytical mean, 2 statistics of the samples"),
    amount("MeanLoss", 6, "Average annual loss"),
)


class _Averages(Calculator):
    """Analytical rows of all summaries first, as ``aalpy`` prints them."""

    def __init__(self, setting: RunSetting) -> None:
        self._dtype = setting.dtype
        self._subsets = Subsets(setting)

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        results = self._subsets.results(batch)
        analytical, samples = (
            as_rows(
                self._dtype,
                [batch.summaries, kind, of_kind[:, annual.MEAN], of_kind[:, annual.DEVIATION]],
            )
            for kind, of_kind in (
                (ANALYTICAL, results[:, Subsets.MEAN]),
                (SAMPLE, results[:, Subsets.ALL]),
            )
        )
        return analytical, samples

    def weigh(self, _cells: Indices, references: Indices) -> Indices:
        return self._subsets.weigh(references)


class _MeansOnly(Calculator):
    """Both rows of a summary together, as ``aalpy -M`` prints them."""

    def __init__(self, setting: RunSetting) -> None:
        self._dtype = setting.dtype
        self._subsets = Subsets(setting)

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        kinds = [Subsets.MEAN, Subsets.ALL]
        means = self._subsets.results(batch)[:, kinds, annual.MEAN]
        types = np.tile([ANALYTICAL, SAMPLE], len(batch.summaries))
        rows = as_rows(self._dtype, [np.repeat(batch.summaries, 2), types, means.ravel()])
        return rows, empty_rows(self._dtype)

    def weigh(self, _cells: Indices, references: Indices) -> Indices:
        return self._subsets.weigh(references)


AAL = Report(
    name="aal",
    title="Average annual loss table",
    columns=(*_COLUMNS, amount("SDLoss", 6, "Standard deviation of the annual loss")),
    scope="run",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    calculate=_Averages,
)

AAL_MEAN = Report(
    name="aal_mean",
    title="Average annual loss table, means only",
    columns=_COLUMNS,
    scope="run",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    calculate=_MeansOnly,
)
