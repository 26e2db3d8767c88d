"""MPLT, the moment period loss table, in the columns and formats of OasisLMF's ``pltpy``.

Its rules are not those of MELT: summaries without exposure have rows, means without a loss
have none, and the chance of loss is a sum in the float type of the stream.
"""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, by_period, integer, number
from .expansion import Occurrences
from .report import OCCURRENCE, PERIODS, Report

_TABLE = (
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
    columns=by_period(_TABLE),
    scope="period",
    needs=(OCCURRENCE,),
    takes=(PERIODS,),
    tables=("mplt",),
    table_columns=_TABLE,
    collect=Occurrences,
    buffer_rows=1 << 14,
)
