"""Reports of events: rows of the tables that the kernels write, as they are.

SELT, MELT and QELT have the columns and formats of OasisLMF's ``eltpy``. EVENTS is our own, of any
kind of stream: the totals of an event over its items or summaries, always float64, as totals over
many items may not fit a float32.
"""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, integer, number
from .report import ANY_KIND, EVENT_RATES, OCCURRENCE, QUANTILES, Report

EVENTS = Report(
    name="events",
    title="Event totals",
    columns=(
        EVENT_ID,
        integer("Blocks", "Items or summaries the event has"),
        amount("AnalyticalMean", 6, "Sum of the numerical means of the event's blocks", "f8"),
        amount("SampleMean", 6, "Mean of the event's total over all samples", "f8"),
        amount("SampleSD", 6, "Sample standard deviation of the event's total", "f8"),
        amount("SampleMin", 6, "Smallest total of a sample", "f8"),
        amount("SampleMax", 6, "Largest total of a sample", "f8"),
        number("ChanceOfLoss", 6, "Share of samples with a loss", "f8"),
        amount("MaxLoss", 6, "Largest loss possible", "f8"),
        amount("Exposure", 6, "Exposure of the event's blocks", "f8"),
    ),
    kinds=ANY_KIND,
    buffer_rows=1 << 12,
)

SELT = Report(
    name="selt",
    title="Sample event loss table",
    columns=(
        EVENT_ID,
        SUMMARY_ID,
        integer("SampleId", "Sample; -1 is the numerical mean, -4 the number of affected risks"),
        amount("Loss", 2, "Loss"),
        amount("ImpactedExposure", 2, "Exposure if there is a loss, else 0"),
    ),
    buffer_rows=1 << 16,
)

MELT = Report(
    name="melt",
    title="Moment event loss table",
    columns=(
        EVENT_ID,
        SUMMARY_ID,
        integer("SampleType", "1 analytical mean, 2 statistics of the samples"),
        number("EventRate", 6, "Annual rate of occurrence of the event"),
        number("ChanceOfLoss", 6, "Share of samples with a loss"),
        amount("MeanLoss", 6, "Mean loss over all samples"),
        amount("SDLoss", 6, "Sample standard deviation of the loss"),
        amount("MaxLoss", 6, "Largest loss possible"),
        amount("FootprintExposure", 6, "Exposure in the footprint of the event"),
        amount("MeanImpactedExposure", 6, "Mean over all samples of the impacted exposure"),
        amount("MaxImpactedExposure", 6, "Largest impacted exposure of a sample"),
    ),
    takes=(EVENT_RATES, OCCURRENCE),
    buffer_rows=1 << 14,
)

QELT = Report(
    name="qelt",
    title="Quantile event loss table",
    columns=(
        EVENT_ID,
        SUMMARY_ID,
        number("Quantile", 6, "Quantile of the samples, 0 to 1"),
        amount("Loss", 6, "Loss"),
    ),
    needs=(QUANTILES,),
    buffer_rows=1 << 15,
)
