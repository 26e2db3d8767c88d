"""The bound of the sums of a run, stated before they are computed, and refused if too large.

A ledger holds sums by summary, period and sample. Its size is known beforehand only as a bound:
every summary has a loss for every sample in every period in which something happens. Occurrences
tell the periods; a summary xref, or a declaration, the summaries; the stream's header, or a
declaration, the samples. What is declared is not relied on: the budget of the request and the
limit of the disk are enforced while the sums grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.errors import InvalidOptionError, TooLargeError
from core.losses.events import StreamHeader
from core.losses.ledger.calendar import LedgerBound, ledger_bound, make_calendar

from .request import LossRequest


@dataclass(frozen=True, slots=True)
class StatedBound:
    """The most that the sums of a run can take."""

    summaries: int | None
    """Number of summaries of all sets; None if it is not known: the bound is then that of one."""
    samples: int
    bound: LedgerBound

    def to_json(self) -> dict[str, Any]:
        """The bound as END has it."""
        return {
            "summaries": self.summaries,
            "samples": self.samples,
            "state_bytes": self.bound.state_bytes,
            "memory_bytes": self.bound.least_budget,
        }


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits runs by the bound of their sums.

    Args:
        memory: bytes that the sums of a request may have in memory.
        disk: bytes that they may have on disk.
    """

    memory: int
    disk: int

    def admit(self, request: LossRequest, header: StreamHeader | None = None) -> StatedBound | None:
        """State the bound of a request's sums.

        Args:
            request: the requested analysis.
            header: of the stream, once it is known.

        Returns:
            None without sums, or where the number of samples is not known yet.

        Raises:
            InvalidOptionError: the stream has another number of samples than declared.
            TooLargeError: the sums of all summaries may take more than there is.
        """
        samples = request.expect_samples
        if header is not None:
            if samples not in {None, header.len_sample}:
                raise InvalidOptionError(
                    f"the stream has {header.len_sample} samples, but expect_samples is {samples}",
                    hint="Correct expect_samples, or leave it out",
                    option="expect_samples",
                    offset=0,
                )
            samples = header.len_sample
        occurrence = request.inputs.occurrence
        if samples is None or occurrence is None or not request.has_ledger:
            return None
        summaries = request.summaries
        bound = ledger_bound(
            make_calendar(occurrence), samples, request.policy.float_width, summaries or 1
        )
        if summaries is not None and request.refuses_over_bound:
            self._check(bound, summaries)
        return StatedBound(summaries, samples, bound)

    def _check(self, bound: LedgerBound, summaries: int) -> None:
        hint = (
            "Add over_bound=try if few summaries have losses in most periods, or compute these"
            " reports with thalweg-server aggregate"
        )
        if bound.state_bytes > self.memory + self.disk:
            raise TooLargeError(
                f"the sums of {summaries} summaries may need {bound.state_bytes} bytes, and this"
                f" server spends {self.memory + self.disk} on those of a request",
                hint=hint,
                limit="ledger_bound",
                setting="THALWEG_SPOOL_LIMIT",
                allowed=self.memory + self.disk,
                bound=bound.state_bytes,
            )
        if bound.least_budget > self.memory:
            raise TooLargeError(
                f"the reports of one summary may need {bound.least_budget} bytes of memory, and"
                f" a request has {self.memory}",
                hint=hint,
                limit="ledger_bound",
                setting="THALWEG_REQUEST_MEMORY",
                allowed=self.memory,
                bound=bound.least_budget,
            )
