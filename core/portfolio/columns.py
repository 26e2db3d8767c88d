"""Tables of losses that others have made: columns by name, with the place of every fault.

A csv has a header line, under which columns come in any order; names are compared without case
and underscores. Tables of numbers alone are read in blocks; those with columns of text, such as
dimensions, are read cell by cell. Columns come from files that the caller decodes, such as parquet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Array, Floats, Indices, Mask
from ..budget import current
from ..errors import InputError, names_hint
from ..losses.inputs import Columns, Data
from ..losses.inputs.rows import INT_MAX, csv_rows, is_number, no_text, text_of
from ..losses.inputs.text_tables import MAX_COLUMNS, TextTable, decode_texts, plain
from ..slices import slices
from .labels import is_currency

Texts = npt.NDArray[np.str_]
_ROWS = 1 << 14
_SHOWN = 60
_COMMENT = "#"
_HEADER = re.compile(r"(?:#[^\r\n]*[\r\n]+)*([^\r\n]*)")
_DTYPES = {"integer": "<i8", "number": "<f8", "ignored": "<f8"}
_KINDS = {"integer": "iu", "number": "iuf"}
_FIRST = 305
"""Days from 1 March of year 0 to the day before 1 January of year 1."""
_MINUTES = 1440
_LONGEST_DAY = len("2031-05-28")


Kind = Literal["integer", "number", "date", "ignored"]


class Field(NamedTuple):
    """A column that a kind of table may have."""

    name: str
    kind: Kind = "integer"
    needed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The columns of a table."""

    columns: Mapping[str, Array]
    """Integers and numbers by the name of their field, dates as text or datetime64; shape (rows,)
    each."""
    dimensions: Mapping[str, Texts]
    """Columns of other names, in the order of the file; shape (rows,) each."""
    place: Callable[[int], str]
    """Names a row, counted from 0."""
    source: str | None

    @property
    def rows(self) -> int:
        """Number of rows, at least 1."""
        return len(next(iter(self.columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def refuse(self, row: int, text: str, hint: str | None = None) -> InputError:
        """Make the error about one row."""
        hint = hint or f"The columns are {','.join((*self.columns, *self.dimensions))[:200]}"
        return InputError(f"{self.place(row)}: {text}", hint=hint, source=self.source)

    def require(self, name: str, good: Mask, text: str, hint: str | None = None) -> None:
        """Raise ``InputError`` about the first row that is not good."""
        current().check("input")
        if not good.all():
            row = int(np.argmin(good))
            raise self.refuse(row, f"{name} {self.columns[name][row]} {text}", hint)

    def integers(self, name: str, low: int, high: int = INT_MAX) -> Indices:
        """Values of a column of integers, each required to be in ``low`` to ``high``."""
        values = self.columns[name]
        self.require(name, (values >= low) & (values <= high), f"is not in {low} to {high}")
        return np.ascontiguousarray(values, np.int64)

    def amounts(self, name: str) -> Floats:
        """Values of a column of numbers, each required to be finite and not negative."""
        values = self.columns[name]
        self.require(name, np.isfinite(values), "is not finite")
        self.require(name, values >= 0, "is negative")
        return np.ascontiguousarray(values, np.float64)

    def moments(self, name: str) -> tuple[Indices, bool]:
        """Values of a column of dates, and whether they are minutes: days if all are at midnight.

        Raises:
            InputError: one is no date, has seconds or a time zone, or some have no time of day.
        """
        values = self.columns[name]
        minutes, has_time = np.empty(len(values), np.int64), np.empty(len(values), np.bool_)
        for a, b in slices(len(values), "input", _ROWS):
            for row in range(a, b):
                text = str(values[row])
                minutes[row] = self._minutes(row, name, text)
                has_time[row] = len(text) > _LONGEST_DAY
        differs = (
            "no time of day, as others have" if has_time[0] else "a time of day, and others none"
        )
        hint = "Give every date its time of day, or none"
        self.require(name, has_time == has_time[0], f"has {differs}", hint)
        granular = bool((minutes % _MINUTES).any())
        return (minutes if granular else minutes // _MINUTES), granular

    def _minutes(self, row: int, name: str, text: str) -> int:
        """Minutes to a date and time of day."""
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            time = None
        shown = f"{name} {text[:_SHOWN]!r}"
        if time is None or time.tzinfo is not None:
            such = "a date such as 2031-05-28, or 2031-05-28 23:00 without a time zone"
            raise self.refuse(row, f"{shown} is not {such}")
        if time.second or time.microsecond:
            raise self.refuse(row, f"{shown} has seconds", "Round times to minutes")
        return (time.toordinal() + _FIRST) * _MINUTES + time.hour * 60 + time.minute


def read_table(
    data: Data, fields: Sequence[Field], source: str | None = None, *, dimensions: bool = False
) -> Table:
    """Read a table.

    Args:
        data: csv with a header, or columns.
        fields: what it may have.
        source: name of the file, for messages.
        dimensions: whether columns of other names are dimensions; else they are refused, but for
            a currency.

    Raises:
        InputError: a column is missing, unknown or there twice, or a value is of another kind.
    """
    text = text_of(data, source) if isinstance(data, bytes) else None
    if not isinstance(data, bytes):
        chosen = _choose(list(data), fields, source, dimensions=dimensions)
        return _from_columns(data, chosen, source)
    if text is None:
        raise no_text(data, "Send csv or parquet", source)
    chosen = _choose(_header(text, source), fields, source, dimensions=dimensions)
    plain = all(field is not None and field.kind in _DTYPES for field in chosen.values())
    if not plain or text.startswith(_COMMENT) or '"' in text:
        return _from_texts(decode_texts(data, source, comments=True), chosen)
    layout = np.dtype([(name, _DTYPES[field.kind]) for name, field in chosen.items() if field])
    rows = csv_rows(text, (layout,), source)
    named = {field.name: rows.data[name] for name, field in chosen.items() if field}
    return Table(named, {}, rows.origin.place, source)


def _header(text: str, source: str | None) -> list[str]:
    """Names of the columns of a csv, from its first line that is no comment."""
    found = _HEADER.match(text)
    line = found.group(1) if found else ""
    if line.count(",") >= MAX_COLUMNS:
        message = f"the header line has {line.count(',') + 1} columns"
        raise InputError(message, hint=f"A file may have {MAX_COLUMNS}", source=source)
    return [cell.strip().strip('"') for cell in line.split(",")]


def _key(name: str) -> str:
    return name.lower().replace("_", "")


def _choose(
    header: Sequence[str], fields: Sequence[Field], source: str | None, *, dimensions: bool
) -> dict[str, Field | None]:
    """The field of each column, None of a dimension."""
    known = {_key(field.name): field for field in fields}
    chosen = {name: known.get(_key(name)) for name in header}
    names = [field.name for field in fields]
    if len(header) == 1 and (mark := re.search(r"[;\t|]", header[0])):
        message = f"columns are separated by {mark[0]!r}"
        hint = "Separate them by commas, and write decimals with a point"
        raise InputError(message, hint=hint, source=source)
    for field in fields:
        count = sum(_key(name) == _key(field.name) for name in header)
        if count > 1 or (field.needed and not count):
            message = f"{'two columns are' if count else 'no column is'} named {field.name}"
            hint = f"The columns are {','.join(header)[:200]}"
            raise InputError(message, hint=hint, source=source)
    for name, found in chosen.items():
        of_amounts = is_currency(name)
        if found is None and not of_amounts and not (dimensions and name.isidentifier()):
            message = f"a column is named {name[:_SHOWN]!r}"
            hint = names_hint(name, names)
            if dimensions:
                hint = f"Name a dimension with letters, digits and _, or use {', '.join(names)}"
            raise InputError(message, hint=hint, source=source)
    if len(chosen) < len(header):
        raise InputError("two columns have the same name", hint="Rename one", source=source)
    return chosen


def _from_columns(data: Columns, chosen: Mapping[str, Field | None], source: str | None) -> Table:
    if not all(map(len, data.values())):
        raise InputError("there are no rows", hint="It has to have some", source=source)
    named: dict[str, Array] = {}
    for name, field in chosen.items():
        values = data[name]
        if field is None or field.kind == "ignored":
            continue
        if field.kind == "date":
            named[field.name] = values
        elif values.dtype.kind not in _KINDS[field.kind] or values.dtype == np.uint64:
            message = f"column {name} has values of type {values.dtype}, not {field.kind}s"
            raise InputError(message, hint="Write it with another type", source=source)
        else:
            named[field.name] = values
    other = [name for name, field in chosen.items() if field is None]
    texts = decode_texts({name: data[name] for name in other}, source) if other else None
    columns = {} if texts is None else texts.columns
    return Table(named, dict(zip(other, columns.values(), strict=True)), _row, source)


def _row(row: int) -> str:
    return f"row {row + 1}"


def _from_texts(table: TextTable, chosen: Mapping[str, Field | None]) -> Table:
    if table.names != tuple(chosen):
        hint = "Put it on one line, in names without commas"
        raise InputError("the header line cannot be read", hint=hint, source=table.source)
    named: dict[str, Array] = {}
    other: dict[str, Texts] = {}
    for (name, field), texts in zip(chosen.items(), table.columns.values(), strict=True):
        if field is None:
            other[name] = texts
        elif field.kind == "integer":
            named[field.name] = table.integers(name, -INT_MAX - 1)
        elif field.kind == "number":
            named[field.name] = _numbers(table, name, texts)
        elif field.kind == "date":
            named[field.name] = texts
    return Table(named, other, table.place, table.source)


def _numbers(table: TextTable, name: str, texts: Texts) -> Floats:
    values = np.empty(len(texts))
    for a, b in slices(len(texts), "input", _ROWS):
        try:
            values[a:b] = plain(texts[a:b]).astype(np.float64)
        except ValueError:
            row = next(i for i in range(a, b) if not is_number(texts[i]))
            such = " such as 1234.5" if "," in texts[row] else ""
            text = f"{name} {texts[row][:_SHOWN]!r} is not a number{such}"
            raise table.refuse(row, text) from None
    return values
