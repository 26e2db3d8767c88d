"""Memory of sums while a run is sealed, at the expense of the owner of the run.

Sums go to the disk once they have taken what they may. What cannot go there, the sums of one
summary while they are put in order, is granted beyond that, as far as the share of the owner
allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.engine.ledger import Hold, Ledger
from app.errors import BusyError, ShareExceededError, TooLargeError
from core.losses.finishing import LedgerResources
from core.losses.ledger.runs import SpillStore

SUMS_BYTES = 1 << 30
"""Memory of the sums of a run while it is sealed."""
SUMS_OF_SEGMENT = 64 << 20
"""Memory of the sums of a segment, at most."""
FIRST_BYTES = 8 << 20
"""Memory of sums in the beginning."""


@contextmanager
def sums_of_segment(ledger: Ledger, owner: str, spill: SpillStore) -> Iterator[LedgerResources]:
    """Provide what the sums of one segment may use, until they are published."""
    with ledger.hold(owner, 0, "sealing") as hold:
        memory = SumsMemory(hold, SUMS_OF_SEGMENT)
        yield LedgerResources(min(FIRST_BYTES, SUMS_OF_SEGMENT), more=memory, spill=spill)


class SumsMemory:
    """Grants memory to the sums of a run, at the expense of its owner.

    Args:
        hold: of the owner.
        most: bytes beyond which sums go to the disk, unless they cannot.
    """

    def __init__(self, hold: Hold, most: int) -> None:
        self._hold = hold
        self._most = most
        self._held = 0

    def __call__(self, nbytes: int, *, required: bool) -> bool:
        """See MoreMemory."""
        if not required and self._held + nbytes > self._most:
            return False
        try:
            self._hold.grow(nbytes)
        except (BusyError, ShareExceededError, TooLargeError) as e:
            if not required:
                return False
            if isinstance(e, TooLargeError):
                # A curve with every point takes some hundred bytes for each loss of its summary.
                e.hint = (
                    "Ask for ept and psept at return_periods, which take a fraction of it, or have"
                    " the operator raise THALWEG_OWNER_SHARE and seal the run again"
                )
            raise
        self._held += nbytes
        return True

    def release(self) -> None:
        """Give all back, for the sums of the next set."""
        self._hold.shrink(self._held)
        self._held = 0
