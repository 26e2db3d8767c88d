"""EPT, the exceedance probability table, in the columns and formats of OasisLMF's ``lecpy``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...arrays import Rows
from ..ledger.batches import Batch
from .columns import SUMMARY_ID, amount, integer, number
from .exceedance import Exceedance
from .report import OCCURRENCE, PERIODS, RETURN_PERIODS, Report
from .running import Calculator, RunSetting, empty_rows


class _Curves(Calculator):
    def __init__(self, setting: RunSetting) -> None:
        self._dtype = setting.dtype
        self._exceedance = Exceedance(setting)

    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        tables = self._exceedance.tables(batch)
        return tables.rows(tables.ept, batch, self._dtype), empty_rows(self._dtype)

    def weigh(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._exceedance.weigh(cells)


EPT = Report(
    name="ept",
    title="Exceedance probability table",
    columns=(
        SUMMARY_ID,
        integer(
            "EPCalc",
            "1 numerical means, 2 all samples, 3 mean of the samples' curves, 4 sample means",
        ),
        integer("EPType", "1 OEP, 2 OEP TVaR, 3 AEP, 4 AEP TVaR"),
        number("ReturnPeriod", 6, "Years in which the loss is exceeded once, on average"),
        amount("Loss", 6, "Loss, or mean of the losses at and above it (TVaR)"),
    ),
    scope="run",
    needs=(OCCURRENCE,),
    takes=(PERIODS, RETURN_PERIODS),
    calculate=_Curves,
)
