"""The table of reports: all that knows which reports there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .aal import AAL, AAL_MEAN
from .alct import ALCT
from .event_tables import EVENTS, MELT, QELT, SELT
from .exceedance import EPT, PSEPT
from .period_tables import MPLT, QPLT, SPLT
from .report import Column, Report

__all__ = ["EVENTS", "MELT", "MPLT", "QELT", "QPLT", "REPORTS", "SELT", "SPLT", "Column", "Report"]

REPORTS: Mapping[str, Report] = MappingProxyType(
    {
        report.name: report
        for report in (
            EVENTS,
            SELT,
            MELT,
            QELT,
            SPLT,
            MPLT,
            QPLT,
            AAL,
            AAL_MEAN,
            ALCT,
            EPT,
            PSEPT,
        )
    }
)
"""Every report by its name."""
