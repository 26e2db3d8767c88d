"""The totals of an event over its items or summaries: our own report, of any kind of stream.

Totals over many items are always float64: they may not fit a float32.
"""

from __future__ import annotations

from .columns import EVENT_ID, amount, integer, number
from .report import ANY_KIND, Report

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
