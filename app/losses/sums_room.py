"""Memory and disk for the sums that reports of whole runs need, at the expense of their owner.

A ledger begins with little memory, which is part of the budget of its request, and asks for as
much again whenever that is used up. Where the budget or the server has no more, the sums go to
temporary files, as rows that wait do, in the same quota and up to the same limit::

    sums   |## first ##|## more ##|#### more ####|   budget of the request
                                                 v
                                      temporary files, quota of the owner
"""

from __future__ import annotations

from functools import partial

from app.engine.request_budget import ThreadBudget
from app.errors import BusyError, ShareExceededError, TooLargeError
from app.state.claims import Claim
from app.state.durable import temporary_error
from core.budget import current
from core.errors import BudgetExceededError
from core.losses.finishing import LedgerResources

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
        self._claim = spools.claims.new(owner)
        # Not a method, with which the files would refer to their holder: such a cycle lives until
        # garbage is collected.
        cover = partial(_cover, self._claim, spools.limit)
        self._files = SpillFiles(spools.directory, partial(temporary_error, what="sums"), cover)
        self.resources = LedgerResources(first, more=hold_for_request, spill=self._files)

    @property
    def on_disk(self) -> bool:
        """Whether there are files, which take long to close."""
        return self._files.nbytes > 0

    def close(self) -> None:
        """Give the disk back; the memory ends with the request."""
        self._files.close()
        self._claim.close()


def _cover(claim: Claim, limit: int, nbytes: int) -> None:
    """Claim room on the disk.

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
    claim.cover(nbytes)


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
    try:
        request.hold("ledger", nbytes)
    except (BudgetExceededError, BusyError, ShareExceededError, TooLargeError) as e:
        if not required:
            return False
        if isinstance(e, BudgetExceededError | TooLargeError):
            # Nothing that a client waits for makes them fit.
            e.hint = "Compute these reports with thalweg-server aggregate"
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
