"""The events met so far, in one stream or in several partitions."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

from ..budget import check_room
from ._kernels.layout import SEEN_PAGE_BITS, SEEN_PAGE_BYTES, SEEN_PAGES
from ._kernels.seen import mark_event


class SeenEvents:
    """A bitmap of event ids that grows by pages; partitions of a run share one."""

    def __init__(self) -> None:
        self.directory = _directory()
        """Page of each range of ids, 0 where there is none, int32."""
        self.pages = np.zeros((4, SEEN_PAGE_BYTES), np.uint8)
        """The bits, one row per page; row 0 is unused."""
        self._used = 1

    def make_page(self, event: int) -> None:
        """Add the page of an event id, if there is none."""
        slot = event >> SEEN_PAGE_BITS
        if self.directory[slot]:
            return
        if self._used == len(self.pages):
            # By a quarter rather than double: pages are the only large memory here.
            more = max(4, self._used // 4)
            check_room("events", self.pages.nbytes + more * SEEN_PAGE_BYTES)
            self.pages = np.concatenate(
                [self.pages, np.zeros((more, SEEN_PAGE_BYTES), np.uint8)],
            )
        self.directory[slot] = self._used
        self._used += 1

    def add(self, event: int) -> None:
        """Mark an event id."""
        self.make_page(event)
        mark_event(event, self.directory, self.pages)

    def overlaps(self, other: SeenEvents) -> bool:
        """Whether an event id is marked in both."""
        for slot in np.flatnonzero(self.directory):
            page, theirs = self.directory[slot], other.directory[slot]
            if theirs and (self.pages[page] & other.pages[theirs]).any():
                return True
        return False


def _directory() -> npt.NDArray[np.int32]:
    """Return a directory of no page, which takes memory only where ids occur.

    It has a place for every id there can be, two megabytes in all. An allocator would hand out
    memory that it has used before, and fill it with zeros; of a mapping of its own, hardly a page
    is ever touched.
    """
    room = mmap.mmap(-1, SEEN_PAGES * 4)
    with contextlib.suppress(OSError):
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, np.int32)
