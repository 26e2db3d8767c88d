"""Encode report rows as tables: csv, packed records and ndjson; Arrow and parquet by name.

Columns that describe summaries are joined to them. A column whose texts are all numbers is one of
numbers in the formats that have types. Numbers with leading zeros are not: they are names, such as
that of a location; nor are texts of which two are the same number. Where a summary is not
described, columns are empty.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from core.arrays import Indices, Rows
from core.errors import InputError, ReportError
from core.losses.inputs import SummaryInfo, csv_line, number_of
from core.losses.reports import Report
from core.losses.tables import BinEncoder, CsvEncoder

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1 << 11
"""Rows that are objects at the same time, where a format is written from objects."""
_APPEND_NEWLINE = orjson.OPT_APPEND_NEWLINE
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def _typed(texts: npt.NDArray[np.str_]) -> list[Any]:
    """The values of a column: integers, floats or texts."""
    values = texts.tolist()
    if all(map(_INTEGER.fullmatch, values)):
        return [int(value) for value in values]
    if all(number_of(value) is not None for value in values):
        numbers = [float(value) for value in values]
        exact = all(Decimal(repr(n)) == Decimal(v) for n, v in zip(numbers, values, strict=True))
        if exact and len(set(numbers)) == len(set(values)):
            return numbers
    return list(values)


def _line(cells: list[str]) -> bytes:
    """Cells as the end of a csv line, quoted where necessary."""
    return f"{csv_line(['', *cells])}\n".encode()


class SummaryColumns:
    """The columns to join to the rows of a report.

    Args:
        info: of the summaries.
        report: whose rows are joined; it has summaries.

    Raises:
        InputError: a column has the name of one of the report.
    """

    def __init__(self, info: SummaryInfo, report: Report) -> None:
        names = {column.name for column in report.columns}
        for name in info.columns:
            if name in names:
                raise InputError(
                    f"{report.name.upper()} has a column {name!r} already",
                    hint="Rename it in the summary info, or in the table that the losses are from",
                )
        self._ids, self._key = info.summary_ids, report.key
        self.names = tuple(info.columns)
        """Names of the columns."""
        # The last entry is that of summaries which are not described.
        values = [[*_typed(column), None] for column in info.columns.values()]
        self._lists = values
        rows = zip(*(column.tolist() for column in info.columns.values()), strict=True)
        lines = [*(_line(list(cells)) for cells in rows), _line([""] * len(self.names))]
        self._lines = np.array(lines, object)
        self.header = _line(list(self.names))
        """End of the header line of csv."""

    @cached_property
    def _values(self) -> list[pa.Array[Any]]:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and most tables are csv

        return [pa.array(column) for column in self._lists]

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of an Arrow schema."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        pairs = zip(self.names, self._values, strict=True)
        return [pa.field(name, values.type) for name, values in pairs]

    def _entries(self, rows: Rows) -> Indices:
        ids = rows[self._key]
        found = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        entries: Indices = np.where(self._ids[found] == ids, found, len(self._ids))
        return entries

    def arrays(self, rows: Rows) -> list[pa.Array[Any]]:
        """Columns for these rows, shape (n,) each."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        entries: Any = pa.array(self._entries(rows))
        return [values.take(entries) for values in self._values]

    def values(self, rows: Rows) -> list[list[Any]]:
        """The same as lists."""
        entries = self._entries(rows).tolist()
        return [[column[entry] for entry in entries] for column in self._lists]

    def join_lines(self, rows: Rows, text: bytes) -> bytes:
        """Append the columns to csv lines, one for each row."""
        ends = self._lines[self._entries(rows)].tolist()
        lines = text.split(b"\n")
        return b"".join([part for pair in zip(lines, ends, strict=False) for part in pair])


class TableEncoder(ABC):
    """Encodes a table piece by piece, in bounded memory."""

    def begin(self) -> bytes:
        """Encode what comes before the first row."""
        return b""

    @abstractmethod
    def encode(self, rows: Rows) -> bytes | bytearray | memoryview:
        """Encode the next rows, shape (n,); the result may be empty.

        It is valid until the next call.
        """

    def end(self) -> bytes:
        """Encode what comes after the last row."""
        return b""


class _Plain(TableEncoder):
    """Csv and packed records, which have no footer."""

    def __init__(self, encoder: CsvEncoder | BinEncoder) -> None:
        self._encoder = encoder

    def begin(self) -> bytes:
        return self._encoder.header()

    def encode(self, rows: Rows) -> memoryview:
        return self._encoder.encode(rows)


class _JoinedCsv(TableEncoder):
    """Csv with columns of summaries at the end of each line."""

    def __init__(self, encoder: CsvEncoder, joined: SummaryColumns) -> None:
        self._encoder = encoder
        self._joined = joined

    def begin(self) -> bytes:
        return self._encoder.header()[:-1] + self._joined.header

    def encode(self, rows: Rows) -> bytes:
        return self._joined.join_lines(rows, bytes(self._encoder.encode(rows)))


class _Ndjson(TableEncoder):
    """One JSON object per line; NaN becomes null."""

    def __init__(self, report: Report, joined: SummaryColumns | None = None) -> None:
        self._names = [column.name for column in report.columns]
        self._joined = joined

    def encode(self, rows: Rows) -> bytearray:
        # Values as objects take thirty times as much as in their columns.
        text = bytearray()
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._add_lines(text, rows[start : start + _ROWS_AT_ONCE])
        return text

    def _add_lines(self, text: bytearray, rows: Rows) -> None:
        columns = [self._values(rows[name]) for name in self._names]
        names = self._names
        if self._joined is not None:
            columns += self._joined.values(rows)
            names = [*names, *self._joined.names]
        for row in zip(*columns, strict=True):
            # A line alone is written into a kilobyte, which a list of them would keep.
            text += orjson.dumps(dict(zip(names, row, strict=True)), option=_APPEND_NEWLINE)

    @staticmethod
    def _values(column: npt.NDArray[Any]) -> list[Any]:
        if column.dtype == np.float32:
            # The shortest text that reads back as the same float32, rather than the
            # digits of its conversion to float64.
            text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
            values: list[Any] = orjson.loads(text)
            return values
        return list(column.tolist())


FORMATS = ("csv", "bin", "arrow", "parquet", "ndjson")
"""Names of the formats, which are also their file name extensions."""


def packed_texts() -> ReportError:
    """Make the error that a format has no columns of text."""
    return ReportError("packed records have no columns of text", hint="Choose csv or parquet")


def table_encoder(
    name: str, report: Report, float_width: int, info: SummaryInfo | None = None
) -> TableEncoder:
    """Return an encoder for one table.

    Args:
        name: format, one of FORMATS.
        report: the report, which defines the columns.
        float_width: bytes per loss in the rows, 4 or 8.
        info: columns to join by summary, in a report that has summaries.

    Raises:
        ReportError: there is no such format, or it cannot have columns of text.
        InputError: a column has the name of one of the report.
    """
    if name not in FORMATS:
        raise ReportError(f"there is no format {name!r}", hint=f"Choose from {', '.join(FORMATS)}")
    joined = None
    if info is not None and report.has_summaries:
        joined = SummaryColumns(info, report)
    if name == "csv":
        encoder = CsvEncoder(report, float_width)
        return _Plain(encoder) if joined is None else _JoinedCsv(encoder, joined)
    if name == "ndjson":
        return _Ndjson(report, joined)
    if name == "bin":
        if joined is not None:
            raise packed_texts()
        return _Plain(BinEncoder())
    from .arrow_tables import ArrowEncoder, ParquetEncoder  # noqa: PLC0415 - takes a tenth of a second

    columnar = ArrowEncoder if name == "arrow" else ParquetEncoder
    return columnar(report, float_width, joined)
