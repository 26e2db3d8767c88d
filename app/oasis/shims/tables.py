"""Tables in the peer's formats: csv, packed records and parquet with the columns of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from app.losses.outputs import Output, OutputFile
from core.arrays import Rows
from core.errors import OptionError
from core.losses.reports import REPORTS, Report
from core.losses.tables import BinEncoder, CsvEncoder

from .environment import tool_outputs

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 18
"""Rows per parquet row group, however they arrive."""


class _PlainTable:
    """Csv or packed records."""

    def __init__(self, file: Output, encoder: CsvEncoder | BinEncoder, *, header: bool) -> None:
        self._encoder = encoder
        self._file = file
        if header:
            self._file.write(encoder.header())

    def write(self, rows: Rows) -> None:
        self._file.write(self._encoder.encode(rows))

    def end(self) -> None:
        pass


class _ParquetTable:
    def __init__(self, file: Output, report: Report, float_width: int) -> None:
        import pyarrow as pa  # noqa: PLC0415 - most tables are not parquet, and Arrow is slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        self._arrow = pa
        dtype = report.dtype(float_width)
        self._names = dtype.names or ()
        fields = [(name, pa.from_numpy_dtype(dtype[name])) for name in self._names]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(pa.PythonFile(OutputFile(file), "w"), self._schema)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, rows: Rows) -> None:
        # Arrays of Arrow are copies: rows are valid during the call only.
        columns = [self._arrow.array(rows[name].copy()) for name in self._names]
        self._waiting.append(self._arrow.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += len(rows)
        if self._rows >= ROW_GROUP:
            self._write_waiting()

    def _write_waiting(self) -> None:
        table = self._arrow.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._waiting.clear()
        self._rows = 0

    def end(self) -> None:
        if self._rows:
            self._write_waiting()
        self._writer.close()


class Tables:
    """Several tables, committed together or not at all.

    Args:
        paths: of the files, by report; None of those that are not asked for.
        form: ``csv``, ``bin`` or ``parquet``.
        float_width: bytes of a loss.
        header: whether csv has a header line.

    Raises:
        OptionError: a name says another format; one without suffix, as of a fifo, says none.
    """

    def __init__(
        self, paths: Mapping[str, str | None], form: str, float_width: int, *, header: bool
    ) -> None:
        self._paths = {report: path for report, path in paths.items() if path is not None}
        for path in self._paths.values():
            if Path(path).suffix not in {"", f".{form}"}:
                hint = f"Name it {Path(path).with_suffix(f'.{form}')}, or give its format with -E"
                raise OptionError(f"the name {path} is not one of a {form} file", hint=hint)
        self._form = form
        self._float_width = float_width
        self._header = header
        self._outputs = tool_outputs()
        self._open: dict[str, _PlainTable | _ParquetTable] = {}

    @property
    def reports(self) -> list[str]:
        """Reports of the tables."""
        return list(self._paths)

    def begin(self) -> None:
        """Open the files that are not open yet.

        Raises:
            InputError: one cannot be written.
        """
        for report, path in self._paths.items():
            if report not in self._open:
                self._open[report] = self._begun(self._outputs.open(path), REPORTS[report])

    def _begun(self, file: Output, report: Report) -> _PlainTable | _ParquetTable:
        if self._form == "parquet":
            return _ParquetTable(file, report, self._float_width)
        encoder = CsvEncoder(report, self._float_width) if self._form == "csv" else BinEncoder()
        return _PlainTable(file, encoder, header=self._header)

    def write(self, report: str, rows: Rows) -> None:
        """Write the next rows of a report; with the first of all, the files are opened."""
        self.begin()
        self._open[report].write(rows)

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """A context in which the tables are written: they are complete at its end."""
        with self._outputs:
            yield self
            for table in self._open.values():
                table.end()
