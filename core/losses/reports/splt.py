"""SPLT, the sample period loss table, in the columns and formats of OasisLMF's ``pltpy``."""

from __future__ import annotations

from collections.abc import Iterator

from ...arrays import Rows
from ..format import SIDX_MEAN
from .columns import by_period
from .expansion import Occurrences
from .report import OCCURRENCE, PERIODS, Report, Setting
from .selt import SELT


class _Samples(Occurrences):
    """Samples and the mean for each occurrence."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, least=SIDX_MEAN)

    def take(self, rows: Rows) -> Iterator[Rows]:
        """Repeat rows of a SELT; those with a negative loss have no impacted exposure."""
        negative = rows["Loss"] < 0
        if negative.any():
            rows = rows.copy()
            rows["ImpactedExposure"][negative] = 0
        return super().take(rows)


SPLT = Report(
    name="splt",
    title="Sample period loss table",
    columns=by_period(SELT.columns),
    scope="period",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    tables=("selt",),
    collect=_Samples,
)
