"""In which periods events happen, as kernels look it up."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ..inputs import Occurrence


class Calendar(NamedTuple):
    """Periods by event."""

    periods: int
    """Number of periods, those without events included."""
    events: npt.NDArray[np.int32]
    """That happen, ascending; shape (events,)."""
    starts: Indices
    """First occurrence of each event, shape (events + 1,)."""
    numbers: npt.NDArray[np.int32]
    """Period of each occurrence, shape (occurrences,)."""

    @property
    def busy_periods(self) -> int:
        """Periods in which something happens."""
        return len(np.unique(self.numbers))

    def digest(self) -> str:
        """Identity, 32 hexadecimal digits; the order of the file and dates do not matter."""
        octets = hashlib.blake2b(str(self.periods).encode(), digest_size=16)
        for array in (self.events, self.starts, self.numbers):
            octets.update(array.tobytes())
        return octets.hexdigest()


def make_calendar(occurrence: Occurrence) -> Calendar:
    """Index occurrences by event, each event's by period."""
    order = np.lexsort((occurrence.period_numbers, occurrence.event_ids))
    ids = occurrence.event_ids[order]
    events, starts = np.unique(ids, return_index=True)
    return Calendar(
        occurrence.periods,
        np.array(events, np.int32),
        np.append(starts, len(ids)).astype(np.int64),
        np.array(occurrence.period_numbers[order], np.int32),
    )
