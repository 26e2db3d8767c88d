"""Which events have been met, over one stream or over several partitions."""

from __future__ import annotations

import numpy as np

from ._kernels.layout import SEEN_PAGE_BITS, SEEN_PAGE_BYTES, SEEN_PAGES
from ._kernels.seen import mark_event


class SeenEvents:
    """A growing bitmap of event ids; streams that share one also share its check."""

    def __init__(self) -> None:
        self.directory = np.zeros(SEEN_PAGES, np.int32)
        """Page of each range of ids, 0 where none exists, int32."""
        self.pages = np.zeros((4, SEEN_PAGE_BYTES), np.uint8)
        """The bits, one row per page; row 0 is unused."""
        self._used = 1

    def make_page(self, event: int) -> None:
        """Make the page that an event id lies in."""
        slot = event >> SEEN_PAGE_BITS
        if self.directory[slot]:
            return
        if self._used == len(self.pages):
            # In place of doubling, a quarter: pages are the only large memory here.
            more = max(4, self._used // 4)
            self.pages = np.concatenate(
                [self.pages, np.zeros((more, SEEN_PAGE_BYTES), np.uint8)],
            )
        self.directory[slot] = self._used
        self._used += 1

    def add(self, event: int) -> None:
        """Mark an event id."""
        self.make_page(event)
        mark_event(event, self.directory, self.pages)
