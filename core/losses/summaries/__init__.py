"""Summary sets of item streams: as streams of summaries, and as reports of each set.

:class:`Summariser` turns one stream of items into streams of summaries; the others use it for
all partitions of a run. :class:`SetReports` computes reports in the same pass.
"""

from __future__ import annotations

from .item_partitions import (
    ItemPartitions,
    JoinedSummaries,
    Reading,
    SectionedSummaries,
    SummarisedSection,
)
from .set_reports import MakeAnalysis, SetReports, SetSink, set_policy
from .sets import SummarySets
from .summariser import INDEX, IndexSink, StreamSink, Summariser

__all__ = [
    "INDEX",
    "IndexSink",
    "ItemPartitions",
    "JoinedSummaries",
    "MakeAnalysis",
    "Reading",
    "SectionedSummaries",
    "SetReports",
    "SetSink",
    "StreamSink",
    "SummarisedSection",
    "Summariser",
    "SummarySets",
    "set_policy",
]
