"""The analysis that a post requests, checked before a byte of its body is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.errors import InvalidOptionError, WholeStreamError
from core.errors import ReportError
from core.losses.finishing import LedgerResources
from core.losses.inputs import SummaryInfo
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from core.losses.reports import REPORTS, Report, check_inputs, choose_reports, report_hint
from core.losses.reports.report import EVENT_RATES, OCCURRENCE, RunOptions
from core.losses.summaries import SummarySets

from .selection import RowSelection
from .tables import SummaryColumns
from .tokens import identity_of

ALGORITHM = b"losses 1"
"""To be changed whenever the same stream and options would give other rows."""
_SENT = (
    "{0}: PUT it to /v1/inputs/{1}, and name the digest in its answer, by {1}= in a query, or among"
    " the inputs of a run"
)
"""How to send an input that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRequest:
    """An analysis of one stream, or of a part of it.

    Raises:
        ReportError: a report lacks its inputs, or an input has no report.
        WholeStreamError: a report of a whole run is requested of a part of a stream.
        InvalidOptionError: options contradict each other.
        InputError: a column of the summary info has the name of one of a report.
    """

    reports: tuple[str, ...]
    policy: Policy = field(default_factory=Policy)
    inputs: ReportInputs = field(default_factory=ReportInputs)
    options: RunOptions = field(default_factory=RunOptions)
    sets: SummarySets | None = None
    """Summary sets of a stream of items, each with reports of its own; None for others."""
    info: SummaryInfo | None = None
    """Columns to join to the rows, by summary."""
    named: tuple[str, ...] = ()
    """The inputs of sets and info as the query names them, to identify them by."""
    selection: RowSelection = field(default_factory=RowSelection)
    """The rows to report."""
    expect_events: int | None = None
    expect_bytes: int | None = None
    expect_samples: int | None = None
    expect_summaries: int | None = None
    refuses_over_bound: bool = True
    """Whether sums that may need more than the server spends are refused."""
    partial: bool = False
    """Whether more of the stream follows in another request."""

    def __post_init__(self) -> None:
        reports = choose_reports(self.reports)
        try:
            check_inputs(reports, self.inputs.to_dict())
        except ReportError as e:
            for name in e.inputs or ():
                e.hint = _SENT.format(e.hint, name)
            raise
        if self.partial:
            require_whole_stream(reports, "and this is a part of one (Upload-Complete: ?0)")
        for name in self.reports:
            self.selection.check(name)
        self.selection.check_sets(self.sets)
        overall = next((report.name for report in reports if not report.has_summaries), None)
        if self.info is not None and overall is not None:
            raise InvalidOptionError(
                f"the report {overall} has one row for all summaries of an event",
                hint="Omit summary_info, or request another report",
                option="summary_info",
            )
        if self.info is not None:
            for report in reports:
                # Refuses columns with the name of one of the report.
                SummaryColumns(self.info, report)

    @property
    def tables(self) -> tuple[Report, ...]:
        """The requested reports."""
        return tuple(REPORTS[name] for name in self.reports)

    def analysis(self, resources: LedgerResources | None) -> dict[str, Any]:
        """Return the options of every analysis."""
        return {
            "policy": self.policy,
            **self.inputs.to_dict(),
            "options": self.options,
            "resources": resources,
        }

    @property
    def set_ids(self) -> tuple[int | None, ...]:
        """The summary sets; None alone where the stream is one of summaries."""
        return (None,) if self.sets is None else self.sets.set_ids

    @property
    def needs_whole_stream(self) -> bool:
        """Whether a report has no rows before the end of the stream."""
        return any(report.scope == "run" for report in self.tables)

    @property
    def has_ledger(self) -> bool:
        """Whether a report is computed from sums of the whole run."""
        return any(report.calculate is not None for report in self.tables)

    @property
    def summaries(self) -> int | None:
        """Number of summaries at most, if the xref or a declaration tells."""
        return self.expect_summaries if self.sets is None else self.sets.summaries

    @property
    def rates(self) -> str | None:
        """The input that event rates are from, if two have them; else None."""
        inputs = self.inputs
        both = inputs.event_rates is not None and inputs.occurrence is not None
        return "event_rates" if both and self._takes_rates else None

    @property
    def _takes_rates(self) -> bool:
        return any(EVENT_RATES in report.takes for report in self.tables)

    @property
    def identity(self) -> bytes:
        """Digest, 8 bytes, of everything besides the stream that the rows depend on."""
        policy, inputs = self.policy, self.inputs
        parts = [
            ALGORITHM,
            ",".join(self.reports).encode(),
            f"{policy.float_width} {policy.nan} {policy.negative}".encode(),
            f"{policy.sample_order} {policy.event_order}".encode(),
        ]
        arrays = (inputs.quantiles, self.selection.summary_ids)
        parts += [b"" if array is None else array.tobytes() for array in arrays]
        if self._takes_rates and inputs.rates is not None:
            parts += [inputs.rates.event_ids.tobytes(), inputs.rates.rates.tobytes()]
        if any(OCCURRENCE in report.needs for report in self.tables):
            # Rates alone identify occurrences where nothing else is taken from them.
            parts += [*inputs.octets(), self.options.octets()]
        if self.selection.event_ids is not None:
            parts += [b"event_ids", self.selection.event_ids.tobytes()]
        # Tokens of requests without are those of versions that knew no sets.
        parts += [name.encode() for name in self.named]
        return identity_of(tuple(parts))


def require_whole_stream(
    reports: Sequence[Report],
    fault: str,
    hint: str = "Post the whole stream in one request; reports of events and periods can be"
    " posted in parts",
) -> None:
    """Refuse reports of whole runs.

    Raises:
        WholeStreamError: naming them, with the fault and what to do instead.
    """
    names = [report.name for report in reports if report.scope == "run"]
    if names:
        raise WholeStreamError(
            f"{', '.join(names)} can be computed from a whole stream only, {fault}",
            hint=hint,
            reports=names,
        )


def parse_reports(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of report names.

    Raises:
        InvalidOptionError: a name is unknown or repeated, or the list is empty.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in REPORTS]
    if unknown or not names or len(set(names)) < len(names):
        fault, hint = "reports is empty or names a report twice", f"Use {', '.join(REPORTS)}"
        if unknown:
            fault, hint = f"there is no report {unknown[0][:80]!r}", report_hint(unknown[0])
        raise InvalidOptionError(fault, hint=hint, option="reports")
    return names
