"""Csv whose columns are chosen by name and may hold any text: summary maps and summary info.

A summary map names the building that each item, or each output of the financial module, is of:
``loc_id``, ``building_id`` and ``item_id`` (gul) or ``output_id`` (fm) among any other columns. The
peer counts affected risks, sidx -4, by them. Summary info is what each summary is, to be joined to
the rows of reports: ``summary_id`` and any others, such as ``LocNumber`` and ``tiv``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...budget import current
from ...errors import InputError
from ...slices import slices
from ...sorting import numbered, order_of
from .rows import INT_MAX, Data, first_again, no_text, text_of

MAX_COLUMNS = 4096
"""Columns of a file: each is a list and a name, however few texts it has."""
_ROWS = 1 << 14
"""Rows that are read between two checks of the budget."""
_CHARACTER_BYTES = 4
_ROOM = 64 << 20
"""Bytes that a column may always take."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,5})?")
_EXACT = 1e15
"""Whole numbers below are written without an exponent."""
_ROOM_PER_BYTE = 16
"""Bytes that a column may take for each byte of the file."""


@dataclass(frozen=True, slots=True, eq=False)
class TextTable:
    """A table of texts with a header."""

    names: tuple[str, ...]
    """Names of all columns, in the order of the file."""
    columns: dict[int, NDArray[np.str_]]
    """Columns that were asked for, by their index; shape (rows,) each, with at least one row."""
    lines: NDArray[np.int64] | None
    """Line of the file on which each row ends, shape (rows,); None if there are no lines."""
    source: str | None

    def column(self, name: str) -> NDArray[np.str_]:
        """The column of this name, whatever the case of its letters.

        Raises:
            InputError: there is none, or several.
        """
        found = [i for i, each in enumerate(self.names) if each.lower() == name.lower()]
        if len(found) == 1:
            return self.columns[found[0]]
        message = f"{'two columns are' if found else 'no column is'} named {name}"
        hint = f"The columns are {','.join(self.names)[:200]}"
        raise InputError(message, hint=hint, source=self.source)

    def integers(self, name: str, low: int) -> NDArray[np.int64]:
        """Values of a column of integers, each required to be in ``low`` to 2147483647.

        Raises:
            InputError: one is not.
        """
        texts = self.column(name)
        try:
            values = np.empty(len(texts), np.int64)
            for a, b in slices(len(texts), "input", _ROWS):
                values[a:b] = plain(texts[a:b]).astype(np.int64)
        except (ValueError, OverflowError):
            row = next(i for i, text in enumerate(texts) if not _is_integer(text))
            raise self.refuse(row, f"{name} {texts[row][:60]!r} is not a 64-bit integer") from None
        good = (values >= low) & (values <= INT_MAX)
        if not good.all():
            row = int(np.argmin(good))
            raise self.refuse(row, f"{name} {values[row]} is not in {low} to {INT_MAX}")
        return values

    def require_unique(self, values: NDArray[np.int64], name: str) -> None:
        """Raise ``InputError`` about the first row whose value came before."""
        if (repeat := first_again(values)) is not None:
            row, earlier = repeat
            raise self.refuse(row, f"{name} {values[row]} is already in {self.place(earlier)}")

    def place(self, row: int) -> str:
        """Name a row, counted from 0, as a person would."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def refuse(self, row: int, text: str) -> InputError:
        """Make the error about one row."""
        hint = f"The columns are {','.join(self.names)[:200]}"
        return InputError(f"{self.place(row)}: {text}", hint=hint, source=self.source)


def decode_texts(
    data: Data, source: str | None, needed: Sequence[str] | None = None, *, comments: bool = False
) -> TextTable:
    """Read a csv with a header, or columns of any types.

    Args:
        data: the whole file, or its columns.
        source: name of the file, for messages.
        needed: names, in lower case, of the columns to keep; None for all.
        comments: whether lines before the header that begin with # are no rows.

    Raises:
        InputError: it is not csv text, has no row, or a line has more or fewer values than
            the header.
    """
    if not isinstance(data, bytes):
        kept = _kept(tuple(data), needed)
        columns = {i: _as_text(data[list(data)[i]]) for i in kept}
        if not all(map(len, data.values())):
            raise InputError("there are no rows", hint="It has to have some", source=source)
        return TextTable(tuple(data), columns, None, source)
    text = text_of(data, source)
    if text is None:
        raise no_text(data, "This file has to be csv: it has no packed form", source)
    _check_columns(text, source)
    rows = _rows(text, source)
    headers = (row for _, row in rows if not (comments and "".join(row).startswith("#")))
    names = tuple(cell.strip() for cell in next(headers, ()))
    cells, lines = _read(rows, names, _kept(names, needed), source)
    if not lines:
        hint = f"The columns were taken to be {','.join(names)[:200]}"
        raise InputError("there is a header line but no other", hint=hint, source=source)
    room = max(_ROOM, _ROOM_PER_BYTE * len(data))
    for i, values in cells.items():
        if _CHARACTER_BYTES * len(values) * max(map(len, values)) > room:
            message = f"column {names[i][:60]} has a text of {max(map(len, values))} characters"
            hint = "All texts of a column take as much memory as the longest: shorten it"
            raise InputError(message, hint=hint, source=source)
    columns = {i: _texts(values) for i, values in cells.items()}
    return TextTable(names, columns, np.array(lines), source)


def _check_columns(text: str, source: str | None) -> None:
    """Refuse too many columns before their names are read."""
    ends = [end for end in (text.find("\n"), text.find("\r")) if end >= 0]
    count = 1 + text.count(",", 0, min(ends, default=len(text)))
    if count > MAX_COLUMNS:
        raise InputError(
            f"the header line has {count} columns",
            hint=f"A file may have {MAX_COLUMNS}",
            source=source,
        )


def _kept(names: Sequence[str], needed: Sequence[str] | None) -> list[int]:
    return [i for i, name in enumerate(names) if needed is None or name.lower() in needed]


def _as_text(values: NDArray[np.generic]) -> NDArray[np.str_]:
    return np.array([_written(value) for value in values.tolist()], np.str_)


def _written(value: object) -> str:
    """A value as csv has it: integers became floats where others of their column were missing."""
    if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        return str(int(value))
    return str(value)


def number_of(text: str) -> Decimal | None:
    """The number that a text is; None of names, such as those with leading zeros."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _rows(text: str, source: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield rows, and the line on which each begins.

    Raises:
        InputError: quotes do not go together, as in a file that was cut; or a cell is too long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 0
    try:
        for row in reader:
            yield line + 1, row
            line = reader.line_num
    except csv.Error as e:
        fault, hint = str(e), 'It has to be csv, with quotes around whole cells: "5"" pipe"'
        if "unexpected end" in fault:
            fault = "a quote is open to the end of the file"
        elif "field limit" in fault:
            fault = f"a cell has more than {csv.field_size_limit():,} characters"
            hint = "If it has fewer, a quote before it is not closed; otherwise shorten it"
        raise InputError(f"line {line + 1}: {fault}", hint=hint, source=source) from e


def _read(
    rows: Iterable[tuple[int, list[str]]],
    names: Sequence[str],
    kept: Sequence[int],
    source: str | None,
) -> tuple[dict[int, list[str]], list[int]]:
    """Cells of the columns kept, and the line on which each row begins."""
    cells: dict[int, list[str]] = {i: [] for i in kept}
    lines: list[int] = []
    budget = current()
    for number, (line, row) in enumerate(rows):
        if number % _ROWS == 0:
            budget.check("input")
        if not row:
            continue
        if len(row) != len(names):
            message = f"line {line}: the number of columns is {len(row)} and has to be {len(names)}"
            hint = f"The header line is {','.join(names)[:200]}"
            raise InputError(message, hint=hint, source=source)
        for i, column in cells.items():
            column.append(row[i])
        lines.append(line)
    return cells, lines


def _texts(values: Sequence[str]) -> NDArray[np.str_]:
    """Texts as an array, filled in slices."""
    texts = np.empty(len(values), f"<U{max(map(len, values))}")
    for a, b in slices(len(values), "input", _ROWS):
        texts[a:b] = values[a:b]
    return texts


def plain(texts: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return texts that may be numbers.

    Raises:
        ValueError: one has _ between its digits, as no other program reads them.
    """
    if (np.strings.find(texts, "_") >= 0).any():
        raise ValueError("_ between digits")
    return texts


def encode_texts(names: Sequence[str], columns: Sequence[NDArray[np.str_]]) -> bytes:
    """Write a csv with a header, quoting only what has to be quoted."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return "".join(f"{csv_line(row)}\n" for row in (names, *rows)).encode()


def csv_line(cells: Sequence[str]) -> str:
    """Write cells as a line of csv, without its end, quoting only what has to be quoted."""
    text = io.StringIO(newline="")
    # The writer quotes cells that hold a part of the end: a carriage return ends lines, too.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _is_integer(text: str) -> bool:
    try:
        return "_" not in text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


MapColumn = Literal["item_id", "output_id"]
_COLUMNS: Final[tuple[MapColumn, ...]] = ("output_id", "item_id")


@dataclass(frozen=True, slots=True, eq=False)
class SummaryMap:
    """Locations and buildings of items or outputs, in the order of the file."""

    ids: NDArray[np.int32]
    """Items or outputs, at least 1 and unique; shape (n,)."""
    loc_ids: NDArray[np.int32]
    """Shape (n,)."""
    building_ids: NDArray[np.int32]
    """Buildings of a location, shape (n,)."""
    id_column: MapColumn
    """What ``ids`` are."""

    def risks(self) -> NDArray[np.int64]:
        """The risk of each item or output, from 0: a building of a location; shape (n,)."""
        keys = self.loc_ids.astype(np.int64) << 32 | self.building_ids
        return numbered(keys, "summary_map")[1]


def parse_summary_map(data: Data, source: str | None = None) -> SummaryMap:
    """Read a summary map.

    Args:
        data: the whole file, or its columns; of both ids, outputs count.
        source: name of the file, for messages.

    Raises:
        InputError: it is not csv, is empty, lacks a column, has an id out of range, or an item
            or output in two locations or buildings.
    """
    table = decode_texts(data, source, (*_COLUMNS, "loc_id", "building_id"))
    names = {name.lower() for name in table.names}
    column = next((name for name in _COLUMNS if name in names), None)
    if column is None:
        hint = f"The columns are {','.join(table.names)[:200]}"
        raise InputError("no column is named item_id or output_id", hint=hint, source=source)
    ids = table.integers(column, 1)
    loc_ids, building_ids = table.integers("loc_id", 0), table.integers("building_id", 0)
    # The peer writes an output once for each item it comes from.
    ordered, order = order_of(ids, "summary_map")
    first = np.append(True, ordered[1:] != ordered[:-1])
    places = (loc_ids << 32 | building_ids)[order]
    moved = np.append(False, places[1:] != places[:-1]) & ~first
    if moved.any():
        row = int(order[moved].min())
        raise table.refuse(row, f"{column} {ids[row]} is in another building before")
    distinct = np.sort(order[first])
    return SummaryMap(
        ids[distinct].astype(np.int32),
        loc_ids[distinct].astype(np.int32),
        building_ids[distinct].astype(np.int32),
        column,
    )


def encode_summary_map(summary_map: SummaryMap) -> bytes:
    """Write a summary map as csv with the three columns that matter."""
    columns = (summary_map.loc_ids, summary_map.ids, summary_map.building_ids)
    names = ("loc_id", summary_map.id_column, "building_id")
    return encode_texts(names, [column.astype(np.str_) for column in columns])


_ID: Final = "summary_id"


@dataclass(frozen=True, slots=True, eq=False)
class SummaryInfo:
    """Descriptions of summaries, by ascending summary."""

    summary_ids: NDArray[np.int32]
    """Ascending and unique, at least 1; shape (n,)."""
    columns: Mapping[str, NDArray[np.str_]]
    """Texts as in the file, by the name of their column and in its order; shape (n,) each."""


def parse_summary_info(data: Data, source: str | None = None) -> SummaryInfo:
    """Read what summaries are.

    Args:
        data: the whole file, or its columns.
        source: name of the file, for messages.

    Raises:
        InputError: it is not csv, is empty, has no column ``summary_id`` or only that, a column
            twice, or a summary below 1 or twice.
    """
    table = decode_texts(data, source)
    ids = table.integers(_ID, 1)
    table.require_unique(ids, _ID)
    for name in table.names:
        table.column(name)
    order = np.argsort(ids)
    columns = {
        name: table.columns[i][order] for i, name in enumerate(table.names) if name.lower() != _ID
    }
    if not columns:
        hint = "Add a column that describes them"
        raise InputError("summaries have no column but their id", hint=hint, source=source)
    return SummaryInfo(ids[order].astype(np.int32), columns)


def encode_summary_info(info: SummaryInfo) -> bytes:
    """Write what summaries are as csv, which is their only form."""
    names = (_ID, *info.columns)
    return encode_texts(names, [info.summary_ids.astype(np.str_), *info.columns.values()])
