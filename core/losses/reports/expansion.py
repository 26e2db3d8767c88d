"""From rows of an event to rows of each of its occurrences, for all reports of periods."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...arrays import Rows
from ...budget import current
from .._kernels.expand import DATE_WORDS, OCCURRENCE, Calendar, expand
from ..inputs import Occurrence, Periods
from .report import Expander, Setting

PIECE = 1 << 15
"""Rows of a piece: one or two megabytes."""
_WINDOW = 1 << 12
"""Occurrences of an event whose dates are computed at a time."""
_ALL = int(np.iinfo(np.int32).min)


class Occurrences(Expander):
    """Repeats the rows of events for each of their occurrences.

    Rows of an event without occurrence are left out.

    Args:
        setting: with the inputs ``occurrence`` and, unless they are equal, ``periods``.
        group: rows that are repeated together.
        least: rows whose third column, an integer, is below this are left out; only for
            groups of one row.
    """

    def __init__(self, setting: Setting, group: int = 1, least: int = _ALL) -> None:
        occurrence: Occurrence = setting.inputs["occurrence"]
        periods: Periods | None = setting.inputs.get("periods")
        self._dtype = setting.dtype
        self._group = group
        self._least = least
        self._granular = int(occurrence.granular)
        width = setting.header.float_width
        self._calendar = _calendar(occurrence, periods, width)
        stamp = 1 + width // 4 + DATE_WORDS
        self._stamps = np.zeros((_WINDOW, stamp), np.int32)
        self._out = np.zeros((max(PIECE, group), self._dtype.itemsize // 4), np.int32)

    def take(self, rows: Rows) -> Iterator[Rows]:
        """Repeat rows of whole blocks, all occurrences of a group one after the other."""
        words = np.ascontiguousarray(rows).view(np.int32).reshape(len(rows), -1)
        words.flags.writeable = False  # one compiled signature, whoever owns the rows
        progress = np.zeros(4, np.int64)
        progress[OCCURRENCE] = -1
        calendar = (self._calendar, self._granular, self._stamps)
        while count := expand(words, self._group, self._least, *calendar, progress, self._out):
            yield self._out[:count].reshape(-1).view(self._dtype)


def _calendar(occurrence: Occurrence, periods: Periods | None, float_width: int) -> Calendar:
    index = occurrence.by_event()
    numbers, dates = occurrence.period_numbers, occurrence.dates
    if not (np.diff(index.order) > 0).all():
        budget = current()
        budget.check("calendar")
        numbers = numbers[index.order]
        budget.check("calendar")
        dates = dates[index.order]
    # A file of a few bytes may declare billions of periods: equal weights are a single one.
    weights = np.array([1 / occurrence.periods]) if periods is None else periods.weights
    words = weights.astype(f"<f{float_width}").view(np.int32)
    return Calendar(
        index.event_ids.astype(np.int32),
        index.starts.astype(np.int64),
        numbers,
        dates,
        words.reshape(len(weights), -1),
    )
