"""In which periods events happen, as kernels look it up, and how large a ledger can become."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ...slices import digest
from ...sorting import distinct, sort_pairs, starts_of
from .._kernels.stretches import HEAD
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


CELL_BYTES = 64
"""Memory for each cell of a summary while its reports are computed."""


@dataclass(frozen=True, slots=True)
class LedgerBound:
    """The most a ledger can take, if every summary has every sample in every period."""

    cells: int
    """Sums of one summary, period and sample."""
    state_bytes: int
    """In memory or spilled, in all."""
    least_budget: int
    """Memory that suffices, the rest being spilled: that of one summary's reports."""


def ledger_bound(
    calendar: Calendar, samples: int, float_width: int, summaries: int = 1
) -> LedgerBound:
    """State the bound of a ledger.

    Args:
        calendar: only periods in which something happens count.
        samples: len_sample.
        float_width: bytes of a loss.
        summaries: how many there are; for one, the bound is that of each.
    """
    groups = calendar.busy_periods
    cells = groups * (samples + 1)
    # Two parts of the exact sum and the largest loss, which bits may mark as there.
    stretch = 4 * HEAD + (samples + 1) * (16 + float_width) + samples // 8 + 16
    return LedgerBound(
        cells=summaries * cells,
        state_bytes=summaries * groups * stretch,
        least_budget=cells * CELL_BYTES + groups * (stretch + 32),
    )
