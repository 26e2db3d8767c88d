"""Memory and disk for the sums that reports of whole runs need, at the expense of their owner.

A ledger holds sums by summary, period and sample. Its size is known beforehand only as a bound,
which is stated, and refused if it is too large: every summary has a loss for every sample in every
period in which something happens. Occurrences tell the periods; a summary xref, or a declaration,
the summaries; the stream's header, or a declaration, the samples. What is declared is not relied
on: the budget of the request and the limit of the disk are enforced while the sums grow.

A ledger begins with little memory, which is part of the budget of its request, and asks for as
much again whenever that is used up. Where the budget or the server has no more, the sums go to
temporary files, as rows that wait do, in the same quota and up to the same limit::

    sums   |## first ##|## more ##|#### more ####|   budget of the request
                                                 v
                                      temporary files, quota of the owner
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.engine.request_budget import ThreadBudget
from app.errors import BusyError, InvalidOptionError, ShareExceededError, TooLargeError
from app.state.durable import temporary_error
from app.state.reservations import Reservation
from core.budget import current
from core.errors import BudgetExceededError
from core.losses.events import StreamHeader
from core.losses.finishing import LedgerResources
from core.losses.ledger.calendar import LedgerBound, ledger_bound, make_calendar

from .request import LossRequest
from .spilling import SpillFiles
from .spool import Spools

FIRST_BYTES = 8 << 20
"""Memory of a ledger in the beginning."""


class SumsRoom:
    """What the ledger of one request may use.

    Args:
        spools: where rows wait; sums wait beside them.
        owner: who is charged.
        first: bytes of memory in the beginning, of each ledger.
    """

    def __init__(self, spools: Spools, owner: str, first: int = FIRST_BYTES) -> None:
        self._reservation = spools.reservations.new(owner)
        # Not a method, with which the files would refer to their holder: such a cycle lives until
        # garbage is collected.
        cover = partial(_cover, self._reservation, spools.limit)
        self._files = SpillFiles(spools.directory, partial(temporary_error, subject="sums"), cover)
        self.resources = LedgerResources(first, more=hold_for_request, spill=self._files)

    @property
    def on_disk(self) -> bool:
        """Whether there are files, which take long to close."""
        return self._files.nbytes > 0

    def close(self) -> None:
        """Give the disk back; the memory ends with the request."""
        self._files.close()
        self._reservation.close()


def _cover(reservation: Reservation, limit: int, nbytes: int) -> None:
    """Reservation room on the disk.

    Raises:
        TooLargeError: the limit is exceeded.
        QuotaExceededError: the owner has too much on the disk.
        StorageFullError: the disk is almost full.
    """
    if nbytes > limit:
        raise TooLargeError(
            f"the sums of the run need more than {limit} bytes of disk",
            hint="Compute these reports with thalweg-server aggregate, or of fewer summaries",
            limit="sums",
            setting="THALWEG_SPOOL_LIMIT",
            allowed=limit,
        )
    reservation.cover(nbytes)


def hold_for_request(nbytes: int, *, required: bool) -> bool:
    """Count bytes of a ledger in the budget of the request, until the request ends.

    Args:
        nbytes: bytes that are about to be allocated; they outlive the call of this thread.
        required: whether to raise where they do not fit, instead of returning False.

    Returns:
        Whether they were counted; True outside of requests.

    Raises:
        BudgetExceededError: they do not fit into the budget of the request.
        ServiceError: the process or the owner has no more.
    """
    budget = current()
    if not isinstance(budget, ThreadBudget):
        return True
    request = budget.request
    if not required and request.held + nbytes > request.limits.memory:
        return False
    hint = "Compute these reports with thalweg-server aggregate"
    return try_to_hold(partial(request.hold, "ledger", nbytes), hint, required=required)


def try_to_hold(hold: Callable[[], object], hint: str, *, required: bool) -> bool:
    """Return whether memory is held; where it is required, fail if not.

    Args:
        hold: enters it in the ledger.
        hint: what to do where there is less than the work needs, however long it waits.
        required: whether the work cannot do without.

    Raises:
        BudgetExceededError, BusyError, ShareExceededError, TooLargeError: it is required, and
            there is not as much.
    """
    try:
        hold()
    except (BudgetExceededError, BusyError, ShareExceededError, TooLargeError) as e:
        if not required:
            return False
        if isinstance(e, BudgetExceededError | TooLargeError):
            # Nothing that a client waits for makes them fit.
            e.hint = hint
        raise
    return True


class Followed:
    """Memory of a pass over a stream, counted in the budget of the request as it grows.

    What the stream declares makes it grow: samples, ids of events, blocks. The pass asks whether
    that fits before it takes it; here it is counted until the request ends.
    """

    def __init__(self) -> None:
        self._counted = 0

    def follow(self, nbytes: int) -> None:
        """Count what is beyond the most so far.

        Raises:
            BudgetExceededError: it does not fit into the budget of the request.
            ServiceError: the process or the owner has no more.
        """
        grown = nbytes - self._counted
        if grown > 0:
            hold_for_request(grown, required=True)
            self._counted = nbytes


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
