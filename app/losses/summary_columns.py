"""Columns that describe summaries, joined to the rows of reports.

A column whose texts are all numbers is one of numbers in the formats that have types. Numbers
with leading zeros are not: they are names, such as that of a location. Where a summary is not
described, columns are empty.
"""

from __future__ import annotations

import csv
import io
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from core.arrays import Indices, Rows
from core.errors import InputError
from core.losses.inputs import SummaryInfo
from core.losses.reports import Report

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def _typed(texts: npt.NDArray[np.str_]) -> list[Any]:
    """The values of a column: integers, floats or texts."""
    values = texts.tolist()
    if all(map(_INTEGER.fullmatch, values)):
        return [int(value) for value in values]
    if all(map(_NUMBER.fullmatch, values)):
        return [float(value) for value in values]
    return list(values)


def _line(cells: list[str]) -> bytes:
    """Cells as the end of a csv line, quoted where necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(["", *cells])
    return text.getvalue().encode()


class SummaryColumns:
    """The columns to join to the rows of a report.

    Args:
        info: of the summaries.
        report: whose rows are joined; it has summaries.

    Raises:
        InputError: a column has the name of one of the report.
    """

    def __init__(self, info: SummaryInfo, report: Report) -> None:
        taken = {column.name for column in report.columns}
        for name in info.columns:
            if name in taken:
                raise InputError(
                    f"{report.name.upper()} has a column {name!r} already",
                    hint="Rename it in the summary info",
                )
        self._ids = info.summary_ids
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
        ids = rows["SummaryId"]
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
