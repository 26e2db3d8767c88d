"""Labels of dimensions: the currency that they name, and what of them is likely a mistake."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..budget import current
from ..errors import InputError
from ..losses.inputs import SummaryInfo, number_of
from ..slices import slices

Texts = npt.NDArray[np.str_]
_ROWS = 1 << 14
_SHOWN = 40
_CURRENCY = re.compile(r"(?!original).*currency(code)?|ccy", re.IGNORECASE)
"""Names of columns, without underscores, that say what amounts are in; OriginalCurrency says what
they were in before."""
_CODE = re.compile("[A-Z]{3}", re.ASCII)
_INDEX = re.compile(r"(unnamed|index|idx|level|row|record|line)?(id|no|num|number|nr)?\d*|key")
"""Names that tables give to a number of the row."""


def is_currency(name: str) -> bool:
    """Whether a column of this name says what amounts are in."""
    return _CURRENCY.fullmatch(name.replace("_", "")) is not None


def currency_of(
    columns: Mapping[str, Texts], place: Callable[[int], str], source: str | None = None
) -> str | None:
    """The currency that columns named so agree on; None if there are none.

    Raises:
        InputError: they name several, or none.
    """
    found: str | None = None
    for name in filter(is_currency, columns):
        texts = columns[name]
        if (texts == "").all():
            continue
        first = found or str(texts[0])
        other = texts != first
        if other.any():
            row = int(np.argmax(other))
            text = f"{place(row)}: {name} {str(texts[row])[:_SHOWN]!r} is not {first!r}, as before"
            hint = "A loss set is in one currency: make one of each, which a query adds by rates"
            raise InputError(text, hint=hint, source=source)
        if not _CODE.fullmatch(first):
            text = f"{place(0)}: {name} {first[:_SHOWN]!r} is no currency such as EUR"
            raise InputError(text, hint="Write its code, or name the column otherwise")
        found = first
    return found


def stripped(columns: Mapping[str, Texts]) -> dict[str, Texts]:
    """Labels without blanks at their ends."""
    current().hold("input", sum(texts.nbytes for texts in columns.values()))
    stripped = {name: np.empty_like(texts) for name, texts in columns.items()}
    for name, texts in columns.items():
        for a, b in slices(len(texts), "input", _ROWS):
            stripped[name][a:b] = np.strings.strip(texts[a:b])
    return stripped


def tidy(info: SummaryInfo) -> SummaryInfo:
    """What summaries are, with labels without blanks at their ends."""
    return SummaryInfo(info.summary_ids, stripped(info.columns))


def notes_of(info: SummaryInfo) -> list[str]:
    """Tell of labels that are nearly alike, and of those that are empty."""
    notes = []
    for name, texts in info.columns.items():
        notes += apart_notes(name, texts)
        if empty := int(np.count_nonzero(texts == "")):
            notes.append(f"{name} is empty in {empty} of {len(texts)} summaries")
    return notes


def apart_notes(name: str, texts: Texts) -> list[str]:
    """Tell of labels that differ in case only, or are the same number."""
    found = defaultdict[object, set[str]](set)
    for a, b in slices(len(texts), "input", _ROWS):
        for text in texts[a:b].tolist():
            number = number_of(text)
            found[text.casefold() if number is None else number].add(text)
    for group in found.values():
        if len(group) > 1:
            shown = " and ".join(repr(text[:_SHOWN]) for text in sorted(group))
            return [f"{name} has {shown}, which are groups apart"]
    return []


def index_notes(columns: Mapping[str, Texts]) -> list[str]:
    """Tell of columns that number the rows, as far as names and values show it."""
    text = "has another number in each row. If it only counts them, leave it out: it hides rows"
    return [
        f"{name} {text} that are there twice"
        for name, texts in columns.items()
        if (_INDEX.fullmatch(name.lower().replace("_", "")) or _counts(texts)) and _differ(texts)
    ]


def number_notes(columns: Mapping[str, Texts]) -> list[str]:
    """Tell of columns that may be amounts: losses by name, or numbers with decimals."""
    text = "has numbers, and is a dimension: losses are grouped by its values, which are not added"
    return [f"{name} {text}" for name, texts in columns.items() if _are_amounts(name, texts)]


def _are_amounts(name: str, texts: Texts) -> bool:
    decimals = "loss" in name.lower()
    for a, b in slices(len(texts), "input", _ROWS):
        try:
            decimals |= bool((texts[a:b].astype(np.float64) % 1).any())
        except ValueError:
            return False
    return decimals


def _counts(texts: Texts) -> bool:
    """Whether texts are 0, 1, 2 ... or 1, 2, 3 ..."""
    first = str(texts[0])
    if first not in {"0", "1"}:
        return False
    return all(
        texts[a:b].tolist() == [str(k + int(first)) for k in range(a, b)]
        for a, b in slices(len(texts), "input", _ROWS)
    )


def _differ(texts: Sequence[str] | Texts) -> bool:
    seen: set[str] = set()
    for a, b in slices(len(texts), "input", _ROWS):
        part = [str(text) for text in texts[a:b]]
        seen.update(part)
        if len(seen) < b or not all(map(str.isdecimal, part)):
            return False
    return len(seen) > 1
