"""The rows that a caller wants of a report, of some summaries and events, and the summary sets.

An xref is a list of items, summaries and sets. The engine looks summaries up in a table with a
row for each item and a column for each set, which may be much larger than the list: one set of a
million items and many of one item are a table of nearly nothing. And each set is an analysis with
tables of its own. So both the sets and the places of the table are bounded before it is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from app.errors import InvalidOptionError, TooLargeError
from app.http.media_types import PICTURE_TYPES
from core.arrays import Rows
from core.errors import InputError
from core.losses.format import ID_MAX
from core.losses.inputs import SummaryMap, SummaryXref
from core.losses.reports import REPORTS
from core.losses.summaries import SummarySets
from core.sorting import distinct

Ids: TypeAlias = npt.NDArray[np.int32]
_IDS = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_MAX_IDS = 1_000_000
_COLUMNS = {"summary_ids": "SummaryId", "event_ids": "EventId"}
"""Columns by which rows are selected."""
_LISTED = 40
"""Ranges of missing ids that are named: a header holds them."""
Seen: TypeAlias = Mapping[str, npt.NDArray[np.bool_]]
"""By option, which of its ids there are."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Ids to select rows by, ascending, without repeats; None for all."""

    summary_ids: Ids | None = None
    event_ids: Ids | None = None

    def __bool__(self) -> bool:
        return self.summary_ids is not None or self.event_ids is not None

    def __call__(self, rows: Rows, seen: Seen | None = None) -> Rows:
        """Return the selected rows; mark the ids that any of the rows has in ``seen``."""
        kept = rows
        for option, column in _COLUMNS.items():
            ids: Ids | None = getattr(self, option)
            if ids is None:
                continue
            kept = kept[_find(ids, kept[column])[1]]
            if seen is not None:
                at, found = _find(ids, rows[column])
                seen[option][at[found]] = True
        return kept

    def check(self, report: str, form: str = "csv") -> None:
        """Check that a report has the columns, and a format that shows them.

        Raises:
            InvalidOptionError: it has not.
        """
        if form in PICTURE_TYPES and self.event_ids is not None:
            raise InvalidOptionError(
                "a picture shows the losses of all events",
                hint="Leave event_ids out, or choose the format of a table",
                option="event_ids",
            )
        columns = {column.name for column in REPORTS[report].columns}
        for option, column in _COLUMNS.items():
            if getattr(self, option) is not None and column not in columns:
                raise InvalidOptionError(
                    f"the report {report} has no column {column}",
                    hint=f"Leave {option} out, or ask for reports that have the column",
                    option=option,
                )

    def check_sets(self, sets: SummarySets | None) -> None:
        """Check that a summary asked for is in the sets of a stream of items.

        Raises:
            InvalidOptionError: none is.
        """
        if sets is not None and self.summary_ids is not None:
            known = sets.places.summary_ids
            if not np.isin(self.summary_ids, known).any():
                raise InvalidOptionError(
                    f"none of summary_ids is in the summary sets, such as {self.summary_ids[0]}",
                    hint=f"Their summaries are {known.min()} to {known.max()}",
                    option="summary_ids",
                )

    @property
    def octets(self) -> bytes:
        """What identifies the selection."""
        ids = (self.summary_ids, self.event_ids)
        return b"|".join(b"" if array is None else array.tobytes() for array in ids)


def _find(ids: Ids, values: Ids) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where each value is in ascending ids, and whether it is."""
    at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    return at, ids[at] == values


class Chosen:
    """Selects rows, and remembers which ids there are.

    Args:
        selection: the rows to select.

    Attributes:
        count: rows selected so far.
    """

    def __init__(self, selection: RowSelection) -> None:
        self._selection = selection
        wanted = {option: getattr(selection, option) for option in _COLUMNS}
        self._ids: dict[str, Ids] = {o: ids for o, ids in wanted.items() if ids is not None}
        self._seen = {option: np.zeros(len(ids), bool) for option, ids in self._ids.items()}
        self.count = 0

    def __call__(self, rows: Rows) -> Rows:
        """Return the selected ones of some rows."""
        chosen = self._selection(rows, self._seen)
        self.count += len(chosen)
        return chosen

    @property
    def missing(self) -> dict[str, str]:
        """Ids that no row has, as ``{"missing_event_ids": "7,60001-70000"}``; see ``_listed``."""
        missing = {option: ids[~self._seen[option]] for option, ids in self._ids.items()}
        return {f"missing_{option}": _listed(ids) for option, ids in missing.items() if len(ids)}


def _listed(ids: Ids) -> str:
    """List ascending ids as ``1,5,10-20``; where it gets long, the first of them, and ``...``."""
    starts = np.flatnonzero(np.diff(ids, prepend=-1) > 1)
    ends = np.append(starts[1:], len(ids)) - 1
    pairs = zip(ids[starts[:_LISTED]], ids[ends[:_LISTED]], strict=True)
    ranges = [f"{low}" if low == high else f"{low}-{high}" for low, high in pairs]
    return ",".join([*ranges, *(["..."] if len(starts) > _LISTED else [])])


def parse_selection(summary_ids: str | None, event_ids: str | None) -> RowSelection:
    """Parse two lists of ids, as ``parse_ids`` does; None for all.

    Raises:
        InvalidOptionError: a list is malformed or too long.
    """
    return RowSelection(
        None if summary_ids is None else parse_ids(summary_ids),
        None if event_ids is None else parse_ids(event_ids, "event_ids"),
    )


def parse_ids(text: str, option: str = "summary_ids", least: int = 1) -> Ids:
    """Parse a list of ids from ``least`` on such as ``1,5,10-20``; ascending, without repeats.

    Raises:
        InvalidOptionError: the list is malformed or too long.
    """
    parts: list[npt.NDArray[np.int64]] = []
    count = 0
    for part in text.split(","):
        match = _IDS.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
        count += high - low + 1
        if not least <= low <= high <= ID_MAX:
            fault = f"is {text[:80]!r}, not a list of ids such as 1,5,10-20"
            raise _invalid_ids(option, fault, least)
        if count > _MAX_IDS:
            fault = f"is {text[:80]!r}, which is more than {_MAX_IDS:,} ids"
            raise _invalid_ids(option, fault, least)
        parts.append(np.arange(low, high + 1))
    ids = np.sort(np.concatenate(parts)).astype(np.int32)
    return ids[np.diff(ids, prepend=-1) > 0]


def _invalid_ids(option: str, fault: str, least: int) -> InvalidOptionError:
    return InvalidOptionError(
        f"{option} {fault}",
        hint=f"List at most {_MAX_IDS:,} ids between {least} and {ID_MAX}; a file is not taken",
        option=option,
    )


MAX_SETS = 100
"""Summary sets of one post."""
MAX_PLACES = 1 << 24
"""Items times sets of one post."""

_SET = re.compile(r"[1-9][0-9]{0,9}")


def parse_sets(text: str) -> tuple[int, ...]:
    """Parse a list of summary sets such as ``1,2``.

    Raises:
        InvalidOptionError: the list is malformed or too long, or names a set twice.
    """
    numbers = [part.strip() for part in text.split(",")]
    valid = len(numbers) <= MAX_SETS and all(_SET.fullmatch(number) for number in numbers)
    sets = tuple(map(int, numbers)) if valid else ()
    if not sets or len(set(sets)) < len(sets) or max(sets) > ID_MAX:
        raise InvalidOptionError(
            f"sets is {text[:80]!r}, not a list of different sets such as 1,2",
            hint=f"List at most {MAX_SETS} sets of the xref",
            option="sets",
        )
    return sets


def choose_sets(
    xref: SummaryXref, requested: Sequence[int] | None, risks: SummaryMap | None
) -> SummarySets:
    """Return the requested sets of an xref.

    Args:
        xref: summaries of items.
        requested: ids of sets, None for all.
        risks: locations and buildings of the items, None for none.

    Raises:
        InvalidOptionError: the xref lacks a set, there are too many, or the map is of other items.
        TooLargeError: the table of items and sets is too large.
    """
    count = len(xref.sets) if requested is None else len(requested)
    if count > MAX_SETS:
        raise InvalidOptionError(
            f"the xref has {count} sets, but a post has at most {MAX_SETS}",
            hint="Choose some with sets=",
            option="sets",
        )
    items = len(distinct(xref.ids, "summary_xref")[0])
    if count * items > MAX_PLACES:
        raise TooLargeError(
            f"{count} sets of {items} items are more than {MAX_PLACES} places",
            hint="Choose fewer sets with sets=, or use thalweg-server aggregate",
            limit="summary_sets",
            allowed=MAX_PLACES,
            setting=None,
        )
    try:
        return SummarySets(xref, requested, risks)
    except InputError as e:
        option = "sets" if e.parameter == "sets" else "summary_map"
        raise InvalidOptionError(e.message, hint=e.hint, option=option) from e
