"""QPLT, the quantile period loss table, in the columns and formats of OasisLMF's ``pltpy``.

Unlike QELT it has rows of summaries without exposure.
"""

from __future__ import annotations

from .columns import EVENT_ID, SUMMARY_ID, amount, by_period, number
from .expansion import Occurrences
from .report import OCCURRENCE, PERIODS, QUANTILES, Report, Setting

_TABLE = (
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
    columns=by_period(_TABLE),
    scope="period",
    needs=(OCCURRENCE, QUANTILES),
    takes=(PERIODS,),
    tables=("qplt",),
    table_columns=_TABLE,
    collect=_quantiles_together,
    buffer_rows=1 << 15,
)
