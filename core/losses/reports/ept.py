"""EPT, the exceedance probability table, in the columns and formats of OasisLMF's ``lecpy``."""

from __future__ import annotations

from .columns import SUMMARY_ID, amount, integer, number
from .exceedance import exceedance_table
from .report import OCCURRENCE, PERIODS, RETURN_PERIODS, Report

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
    calculate=exceedance_table("ept"),
)
