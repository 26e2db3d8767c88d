"""The table of reports: all that knows which reports there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .events import EVENTS
from .melt import MELT
from .qelt import QELT
from .report import Column, Report
from .selt import SELT

__all__ = ["EVENTS", "MELT", "QELT", "REPORTS", "SELT", "Column", "Report"]

REPORTS: Mapping[str, Report] = MappingProxyType(
    {report.name: report for report in (EVENTS, SELT, MELT, QELT)}
)
"""Every report by its name."""
