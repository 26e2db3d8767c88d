"""Rows of an event, once for each of its occurrences.

A table of the pass has one row of a block for each sample, mean or quantile, as if its event
happened once. A period table has that row for every occurrence of the event, with a stamp of
seven cells, which depend on the occurrence only::

    table of the pass            event  summary  ...
                                   |        |
    period table   Period  Weight  Event  Year Month Day Hour Minute  Summary  ...
                   |--- stamp --|         |-------- stamp ---------|

The kernel knows neither cells nor reports: rows are words of four bytes, a stamp is a row of
words, and the words of the event go between its first ones and its last five.

An event can have any number of occurrences, and its rows any number of copies. So the rows come
in pieces: the kernel fills what room it is given and says where it stopped. Stamps are made when
they are needed, for a window of occurrences at a time; a date costs six divisions, and a usual
event, with few occurrences, has hundreds of rows that share it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Indices
from ...sorting import place_of
from .layout import ZERO, Words

DATE_WORDS = 5
"""Year, month, day, hour and minute."""

_MINUTES_PER_DAY = 1440


class Calendar(NamedTuple):
    """When each event happens; constant over a run."""

    event_ids: npt.NDArray[np.int32]
    """Ascending and unique; shape (events,)."""
    starts: Indices
    """First occurrence of each event, and after the last; shape (events + 1,)."""
    period_numbers: npt.NDArray[np.int32]
    """By event, then as in the file; shape (occurrences,)."""
    dates: Indices
    """Date ids of the same."""
    weights: npt.NDArray[np.int32]
    """Weights of the periods as floats of the stream in words; shape (periods, words), or
    (1, words) of equal ones."""


GROUP = 0
"""Index in the progress: group of rows that is repeated."""
NEXT = 1
"""Occurrence it comes to next, -1 before the first."""
WINDOW_BEGIN = 2
"""First occurrence whose stamp is there."""
WINDOW_END = 3
"""After the last occurrence whose stamp is there."""


@subkernel
def _days_before(year: int) -> int:
    """Days from day 0 to 1 March of a year."""
    return 365 * year + year // 4 - year // 100 + year // 400


@subkernel
def _stamp(period: int, date: int, granular: int, weights: Words, out: Words) -> None:
    """Write the period, its weight and the date of an occurrence."""
    out[0] = period
    head = 1 + weights.shape[0]
    for i in range(weights.shape[0]):
        out[1 + i] = weights[i]
    minutes = date % _MINUTES_PER_DAY if granular else 0
    days = date // _MINUTES_PER_DAY if granular else date
    # 400 years have 146,097 days. Near 1 March the quotient may give the year that follows.
    year = (10_000 * days + 14_780) // 3_652_425
    if days < _days_before(year):
        year -= 1
    rest = days - _days_before(year)
    month = (100 * rest + 52) // 3060
    out[head] = year + (month + 2) // 12
    out[head + 1] = (month + 2) % 12 + 1
    out[head + 2] = rest - (306 * month + 5) // 10 + 1
    out[head + 3] = minutes // 60
    out[head + 4] = minutes % 60


@subkernel
def _find(event: int, calendar: Calendar) -> tuple[int, int]:
    """Occurrences of an event; none if it has none."""
    i = place_of(event, calendar.event_ids)
    if i < 0:
        return ZERO, ZERO
    return int(calendar.starts[i]), int(calendar.starts[i + 1])


@subkernel
def _copy(rows: Words, stamps: Words, head: int, out: Words) -> None:
    """Write the rows once for each stamp."""
    group, width = rows.shape
    k = 0
    for i in range(stamps.shape[0]):
        for j in range(group):
            for c in range(head):
                out[k, c] = stamps[i, c]
            out[k, head] = rows[j, 0]
            for c in range(DATE_WORDS):
                out[k, head + 1 + c] = stamps[i, head + c]
            for c in range(1, width):
                out[k, head + DATE_WORDS + c] = rows[j, c]
            k += 1


@kernel
def expand(
    rows: Words,
    group: int,
    least: int,
    calendar: Calendar,
    granular: int,
    stamps: Words,
    progress: Indices,
    out: Words,
) -> int:
    """Fill a piece of a period table; return its rows, 0 when there are no more.

    Args:
        rows: of the table of the pass, whole blocks; shape (n, words), event first.
        group: rows that belong together: they are repeated as one.
        least: rows whose third word is below this are left out, if ``group`` is 1.
        calendar: the occurrences.
        granular: 1 if dates are minutes, 0 if they are days.
        stamps: room for the stamps of a window, shape (window, words).
        progress: where the last call stopped, shape (4,); zeros and -1 at the start.
        out: room for a piece, at least ``group`` rows.
    """
    head = 1 + calendar.weights.shape[1]
    filled = 0
    known = 0
    first = ZERO
    last = ZERO
    g = int(progress[GROUP])
    at = int(progress[NEXT])
    while (g + 1) * group <= rows.shape[0]:
        source = rows[g * group : (g + 1) * group]
        if source[0, 0] != known:
            known = source[0, 0]
            first, last = _find(known, calendar)
        at = max(at, first)
        if group == 1 and source[0, 2] < least:
            at = last
        while at < last:
            if filled + group > out.shape[0]:
                progress[GROUP] = g
                progress[NEXT] = at
                return filled
            if not progress[WINDOW_BEGIN] <= at < progress[WINDOW_END]:
                progress[WINDOW_BEGIN] = at
                progress[WINDOW_END] = min(at + stamps.shape[0], last)
                for i in range(at, progress[WINDOW_END]):
                    period = calendar.period_numbers[i]
                    weights = calendar.weights[min(period, len(calendar.weights)) - 1]
                    _stamp(period, calendar.dates[i], granular, weights, stamps[i - at])
            room = (out.shape[0] - filled) // group
            count = min(progress[WINDOW_END] - at, room)
            begin = at - progress[WINDOW_BEGIN]
            _copy(source, stamps[begin : begin + count], head, out[filled:])
            filled += count * group
            at += count
        g += 1
        at = -1
    progress[GROUP] = g
    progress[NEXT] = -1
    return filled
