"""Reports of periods, in the columns and formats of OasisLMF's ``pltpy``.

Rows of an event are repeated for each of its occurrences. The rules of MPLT are not those of MELT:
summaries without exposure have rows, means without a loss have none, and the chance of loss is a
sum in the float type of the stream. Unlike QELT, QPLT has rows of summaries without exposure.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...arrays import Rows
from ..format import SIDX_MEAN
from .columns import EVENT_ID, SUMMARY_ID, amount, by_period, integer, number
from .event_tables import SELT
from .expansion import Occurrences
from .report import OCCURRENCE, PERIODS, QUANTILES, Report, Setting


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

_MOMENTS = (
    EVENT_ID,
    SUMMARY_ID,
    integer("SampleType", "1 analytical mean, 2 statistics of the samples"),
    number("ChanceOfLoss", 4, "Share of samples with a loss"),
    amount("MeanLoss", 2, "Mean loss over all samples"),
    amount("SDLoss", 2, "Sample standard deviation of the loss"),
    amount("MaxLoss", 2, "Largest loss possible"),
    amount("FootprintExposure", 2, "Exposure in the footprint of the event"),
    amount("MeanImpactedExposure", 2, "Mean over all samples of the impacted exposure"),
    amount("MaxImpactedExposure", 2, "Largest impacted exposure of a sample"),
)

MPLT = Report(
    name="mplt",
    title="Moment period loss table",
    columns=by_period(_MOMENTS),
    scope="period",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    tables=("mplt",),
    table_columns=_MOMENTS,
    collect=Occurrences,
    buffer_rows=1 << 14,
)

_QUANTILES = (
    EVENT_ID,
    SUMMARY_ID,
    number("Quantile", 2, "Quantile of the samples, 0 to 1"),
    amount("Loss", 2, "Loss"),
)


def _quantiles_together(setting: Setting) -> Occurrences:
    """All quantiles for one occurrence, then for the next."""
    return Occurrences(setting, group=len(setting.inputs["quantiles"]))


QPLT = Report(
    name="qplt",
    title="Quantile period loss table",
    columns=by_period(_QUANTILES),
    scope="period",
    needs=(OCCURRENCE, QUANTILES),
    takes=(PERIODS,),
    tables=("qplt",),
    table_columns=_QUANTILES,
    collect=_quantiles_together,
    buffer_rows=1 << 15,
)
