"""The summary sets that a post asks for, within limits.

An xref is a list of items, summaries and sets. The engine looks summaries up in a table with a
row for each item and a column for each set, which may be much larger than the list: one set of a
million items and many of one item are a table of nearly nothing. And each set is an analysis with
tables of its own. So both the sets and the places of the table are bounded before it is built.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.errors import InvalidOptionError, TooLargeError
from core.errors import InputError
from core.losses.format import ID_MAX
from core.losses.inputs import SummaryMap, SummaryXref
from core.losses.summaries import SummarySets
from core.sorting import distinct

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
