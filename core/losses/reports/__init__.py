"""The table of reports: all that knows which reports there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .events import EVENTS
from .melt import MELT
from .mplt import MPLT
from .qelt import QELT
from .qplt import QPLT
from .report import Column, Report
from .selt import SELT
from .splt import SPLT

__all__ = ["EVENTS", "MELT", "MPLT", "QELT", "QPLT", "REPORTS", "SELT", "SPLT", "Column", "Report"]

REPORTS: Mapping[str, Report] = MappingProxyType(
    {report.name: report for report in (EVENTS, SELT, MELT, QELT, SPLT, MPLT, QPLT)}
)
"""Every report by its name."""
