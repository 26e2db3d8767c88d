"""QELT, the quantile event loss table, in the columns and formats of OasisLMF's ``eltpy``."""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, number
from .report import QUANTILES, Report

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
