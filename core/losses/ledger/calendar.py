"""In which periods events happen, as kernels look it up."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ...slices import digest
from ...sorting import distinct, sort_pairs, starts_of
from ..inputs import Occurrence


class Calendar(NamedTuple):
    """Periods by event."""

    periods: int
    """Number of periods, those without events included."""
    events: npt.NDArray[np.int32]
    """Ids of the events that happen, ascending; shape (events,)."""
    starts: Indices
    """First occurrence of each event, shape (events + 1,)."""
    numbers: npt.NDArray[np.int32]
    """Period of each occurrence, shape (occurrences,)."""

    @property
    def busy_periods(self) -> int:
        """Periods in which something happens."""
        return len(distinct(self.numbers, "calendar")[0])

    def digest(self) -> str:
        """Identity, 32 hexadecimal digits; the order of the file and dates do not matter."""
        octets = hashlib.blake2b(str(self.periods).encode(), digest_size=16)
        for array in (self.events, self.starts, self.numbers):
            digest(octets, array.data, "calendar")
        return octets.hexdigest()


def make_calendar(occurrence: Occurrence) -> Calendar:
    """Index occurrences by event, each event's by period."""
    keys = occurrence.event_ids.astype(np.int64) << 32
    keys |= occurrence.period_numbers
    sort_pairs(keys, keys[:0], "calendar")
    ids = keys >> 32
    starts = starts_of(ids)
    events = ids[starts[:-1]].astype(np.int32)
    numbers = (keys & _PERIOD).astype(np.int32)
    return Calendar(occurrence.periods, events, starts, numbers)


_PERIOD = 0x7FFFFFFF
"""Bits of a key."""
