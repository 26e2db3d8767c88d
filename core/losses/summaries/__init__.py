"""Summary sets of item streams: as streams of summaries, and as reports of each set."""

from __future__ import annotations

from .reports import Report, SetReports
from .sets import Risks, SummarySets
from .summariser import IndexSink, StreamSink, Summariser

__all__ = [
    "IndexSink",
    "Report",
    "Risks",
    "SetReports",
    "StreamSink",
    "Summariser",
    "SummarySets",
]
