"""Summary sets of item streams: as streams of summaries, and as reports of each set."""

from __future__ import annotations

from .set_reports import SetReports, SetSink, set_policy
from .sets import SummarySets
from .summariser import INDEX, IndexSink, StreamSink, Summariser

__all__ = [
    "INDEX",
    "IndexSink",
    "SetReports",
    "SetSink",
    "StreamSink",
    "Summariser",
    "SummarySets",
    "set_policy",
]
