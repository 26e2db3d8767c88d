"""SELT, the sample event loss table, in the columns and formats of OasisLMF's ``eltpy``."""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, integer
from .report import Report

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
