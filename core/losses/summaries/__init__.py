"""Summary sets of item streams: as streams of summaries, and as reports of each set."""

from __future__ import annotations

from .sets import SummarySets
from .summariser import INDEX, IndexSink, StreamSink, Summariser

__all__ = ["INDEX", "IndexSink", "StreamSink", "Summariser", "SummarySets"]
