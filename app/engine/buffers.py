"""A bounded number of buffers for request bodies, and a share of them for each owner."""

from __future__ import annotations

import mmap
import threading

from app.errors import BusyError, ShareExceededError
from app.tally import BUFFERS, Column, Tally

from .ledger import Ledger

PURPOSE = "buffers"
_MAX_FREE = 16
"""Maximum number of free buffers to retain for later requests."""


class Buffers:
    """A bounded number of page-aligned buffers.

    Args:
        limit: maximum number of buffers in use.
        size: size of a buffer in bytes.
        ledger: of the memory that requests hold.
        share: maximum number of buffers that one owner has; at least two.
        column: where the service counts those of this process; default: it is alone.

    Attributes:
        limit: as above.
        size: as above.
    """

    def __init__(
        self,
        limit: int,
        size: int,
        ledger: Ledger,
        share: int | None = None,
        column: Column | None = None,
    ) -> None:
        self.size = size
        self.limit = limit
        self.share = limit if share is None else max(share, 2)
        self._ledger = ledger
        self._tally = Tally(column, BUFFERS, limit, self.share)
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    @property
    def out(self) -> int:
        """Number of buffers that this process uses."""
        return self._tally.here

    def take(self, owner: str, count: int) -> list[mmap.mmap]:
        """Take ``count`` buffers for an owner, all or none.

        Raises:
            ShareExceededError: the owner would have more than its share.
            BusyError: fewer are free.
        """
        self._ledger.add(owner, PURPOSE, count * self.size)
        try:
            free = self._take(owner, count)
        except BaseException:
            self._ledger.remove(owner, PURPOSE, count * self.size)
            raise
        # An anonymous mapping has memory only where it was written to: a slow upload that
        # never fills its buffer costs a page or two.
        return free + [mmap.mmap(-1, self.size) for _ in range(count - len(free))]

    def _take(self, owner: str, count: int) -> list[mmap.mmap]:
        """Count buffers as taken; return those that need not be allocated."""
        total = self._tally.add(owner, count)
        if total > self.share:
            raise ShareExceededError(
                f"your requests in progress have {total - count} buffers for request bodies,"
                f" of {self.share} that one owner may have",
                hint="Send fewer bodies at a time",
                retry_after=1,
                limit=PURPOSE,
                setting="THALWEG_OWNER_SHARE",
                allowed=self.share,
            )
        if total >= 0:
            raise BusyError(
                "all buffers for request bodies are in use",
                hint="Retry after the seconds in Retry-After",
                retry_after=1,
                limit=PURPOSE,
                setting="THALWEG_BUFFERS",
                allowed=self.limit,
            )
        with self._lock:
            return [self._free.pop() for _ in range(min(count, len(self._free)))]

    def give_back(self, owner: str, buffers: list[mmap.mmap]) -> None:
        """Return an owner's buffers; nothing may write to them from now on."""
        count = len(buffers)
        self._ledger.remove(owner, PURPOSE, count * self.size)
        self._tally.remove(owner, count)
        with self._lock:
            room = _MAX_FREE - len(self._free)
            # The others are not closed, since the traceback of a failed request may still
            # refer to them. Their memory is freed with the last reference.
            self._free += buffers[:room]
