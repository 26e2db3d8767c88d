"""Makes the analyses of a pass, however its streams are divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.losses.analysis import Analysis
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import Report
from core.losses.sections import SectionAnalysis
from core.losses.seen import SeenEvents


@dataclass(frozen=True, slots=True)
class Analyses:
    """Makes analyses that compute the same, of partitions, summary sets or sections."""

    reports: Sequence[str]
    options: Mapping[str, Any]
    """Of every analysis."""

    def of_partition(self, name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        """Return the analysis of one of several streams."""
        return Analysis(self.reports, sink, **self.options, name=name, seen=seen)

    def of_set(
        self, _set_id: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy
    ) -> Analysis:
        """Return the analysis of a summary set of an item stream."""
        options = {**self.options, "policy": policy}
        return Analysis(self.reports, sink, **options, name=name, seen=seen)

    def of_section(self, sink: Sink, seen: SeenEvents) -> SectionAnalysis:
        """Return the analysis of a section."""
        return SectionAnalysis(self.reports, sink, **self.options, seen=seen)


def taken_inputs(reports: Iterable[Report]) -> set[str]:
    """Return the names of the inputs that reports need or take."""
    return {entry.name for report in reports for entry in (*report.needs, *report.takes)}
