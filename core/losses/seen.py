"""The events met so far, in one stream or in several partitions."""

from __future__ import annotations

import numpy as np

from ..budget import check_room
from ._kernels.layout import SEEN_PAGE_BITS, SEEN_PAGE_BYTES
from ._kernels.seen import mark_event

_FIRST_RANGES = 16
"""Ranges of ids, of 4,096 each, for which there is a place at first."""


class SeenEvents:
    """A bitmap of event ids that grows by pages; partitions of a run share one."""

    def __init__(self) -> None:
        self.directory = np.zeros(_FIRST_RANGES, np.int32)
        """Page of each range of ids up to the highest, 0 where there is none, int32."""
        self.pages = np.zeros((2, SEEN_PAGE_BYTES), np.uint8)
        """The bits, one row per page; row 0 stays empty."""
        self._used = 1

    def make_page(self, event: int) -> None:
        """Add the page of an event id, if there is none."""
        slot = int(event) >> SEEN_PAGE_BITS
        if slot >= len(self.directory):
            # A place for every id there can be would be two megabytes.
            grown = np.zeros(1 << slot.bit_length(), np.int32)
            grown[: len(self.directory)] = self.directory
            self.directory = grown
        if self.directory[slot]:
            return
        if self._used == len(self.pages):
            # By a quarter rather than double: pages are the only large memory here.
            more = max(4, self._used // 4)
            check_room("events", self.pages.nbytes + more * SEEN_PAGE_BYTES)
            self.pages = np.concatenate([self.pages, np.zeros((more, SEEN_PAGE_BYTES), np.uint8)])
        self.directory[slot] = self._used
        self._used += 1

    def add(self, event: int) -> None:
        """Mark an event id."""
        self.make_page(event)
        mark_event(event, self.directory, self.pages)

    def overlaps(self, other: SeenEvents) -> bool:
        """Whether an event id is marked in both."""
        for slot in np.flatnonzero(self.directory):
            page = self.directory[slot]
            other_page = other.directory[slot] if slot < len(other.directory) else 0
            if (self.pages[page] & other.pages[other_page]).any():
                return True
        return False
