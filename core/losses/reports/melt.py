"""MELT, the moment event loss table, in the columns and formats of OasisLMF's ``eltpy``."""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, integer, number
from .report import EVENT_RATES, OCCURRENCE, Report

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
