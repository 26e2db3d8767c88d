"""The table of reports: all that knows which reports there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .annual import AAL, AAL_MEAN, ALCT
from .event_tables import EVENTS, MELT, MPLT, QELT, QPLT, SELT, SPLT
from .exceedance import EPT, PSEPT
from .report import Column, Report

__all__ = ["EVENTS", "MELT", "MPLT", "QELT", "QPLT", "REPORTS", "SELT", "SPLT", "Column", "Report"]

_ROWS = (EVENTS, SELT, MELT, QELT, SPLT, MPLT, QPLT, AAL, AAL_MEAN, ALCT, EPT, PSEPT)
REPORTS: Mapping[str, Report] = MappingProxyType({report.name: report for report in _ROWS})
"""Every report by its name."""
