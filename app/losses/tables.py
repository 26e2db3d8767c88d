"""Encode report rows as tables: csv, packed records, Arrow, parquet and ndjson."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from core.arrays import Rows
from core.errors import ReportError
from core.losses.inputs import SummaryInfo
from core.losses.reports import Report
from core.losses.tables import BinEncoder, CsvEncoder

from .summary_columns import SummaryColumns

ROW_GROUP = 1 << 18
"""Rows per parquet row group: enough for efficient reading, few enough to hold in memory."""


class TableEncoder(Protocol):
    """Encodes a table piece by piece, in bounded memory."""

    def begin(self) -> bytes:
        """Encode what comes before the first row."""

    def encode(self, rows: Rows) -> bytes | memoryview:
        """Encode the next rows, shape (n,); the result may be empty.

        It is valid until the next call.
        """

    def end(self) -> bytes:
        """Encode what comes after the last row."""


class _Plain:
    """Csv and packed records, which have no footer."""

    def __init__(self, encoder: CsvEncoder | BinEncoder) -> None:
        self._encoder = encoder

    def begin(self) -> bytes:
        return self._encoder.header()

    def encode(self, rows: Rows) -> memoryview:
        return self._encoder.encode(rows)

    def end(self) -> bytes:
        return b""


class _JoinedCsv:
    """Csv with columns of summaries at the end of each line."""

    def __init__(self, encoder: CsvEncoder, joined: SummaryColumns) -> None:
        self._encoder = encoder
        self._joined = joined

    def begin(self) -> bytes:
        return self._encoder.header()[:-1] + self._joined.header

    def encode(self, rows: Rows) -> bytes:
        return self._joined.join_lines(rows, bytes(self._encoder.encode(rows)))

    def end(self) -> bytes:
        return b""


class _Ndjson:
    """One JSON object per line; NaN becomes null."""

    def __init__(self, report: Report, joined: SummaryColumns | None = None) -> None:
        self._names = [column.name for column in report.columns]
        self._joined = joined

    def begin(self) -> bytes:
        return b""

    def encode(self, rows: Rows) -> bytes:
        if not len(rows):
            return b""
        columns = [self._values(rows[name]) for name in self._names]
        names = self._names
        if self._joined is not None:
            columns += self._joined.values(rows)
            names = [*names, *self._joined.names]
        lines = [
            orjson.dumps(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
        ]
        return b"\n".join(lines) + b"\n"

    @staticmethod
    def _values(column: npt.NDArray[Any]) -> list[Any]:
        if column.dtype == np.float32:
            # The shortest text that reads back as the same float32, rather than the
            # digits of its conversion to float64.
            text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
            values: list[Any] = orjson.loads(text)
            return values
        return list(column.tolist())

    def end(self) -> bytes:
        return b""


class _Drain(io.BufferedIOBase):
    """A write-only file whose content is taken away while it is being written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _schema(report: Report, float_width: int, joined: SummaryColumns | None) -> pa.Schema:
    dtype = report.dtype(float_width)
    fields = []
    for column in report.columns:
        kind = pa.from_numpy_dtype(dtype[column.name])
        description = report.describe(column.name)
        fields.append(pa.field(column.name, kind, nullable=False, metadata=description))
    metadata: dict[bytes | str, bytes | str] = {
        "report": report.name,
        "title": report.title,
        "float_width": str(float_width),
    }
    fields += [] if joined is None else joined.fields
    return pa.schema(fields, metadata=metadata)


def _batch(rows: Rows, schema: pa.Schema, joined: SummaryColumns | None) -> pa.RecordBatch:
    arrays = [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()]
    arrays += [] if joined is None else joined.arrays(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ArrowEncoder:
    """An Arrow IPC stream."""

    def __init__(
        self, report: Report, float_width: int, joined: SummaryColumns | None = None
    ) -> None:
        self._joined = joined
        self._schema = _schema(report, float_width, joined)
        self._drain = _Drain()
        self._writer = pa.ipc.new_stream(self._drain, self._schema)

    def begin(self) -> bytes:
        """Encode the schema."""
        return self._drain.take()

    def encode(self, rows: Rows, metadata: Mapping[str, str] | None = None) -> bytes:
        """Encode the next rows as a record batch with this metadata."""
        if len(rows):
            pairs = None
            if metadata is not None:
                pairs = pa.KeyValueMetadata(
                    {name.encode(): value.encode() for name, value in metadata.items()}
                )
            self._writer.write_batch(_batch(rows, self._schema, self._joined), pairs)
        return self._drain.take()

    def end(self) -> bytes:
        """Encode the end of the stream."""
        self._writer.close()
        return self._drain.take()


class _Parquet:
    """Parquet, with row groups of ROW_GROUP rows however the rows arrive."""

    def __init__(
        self, report: Report, float_width: int, joined: SummaryColumns | None = None
    ) -> None:
        self._joined = joined
        self._schema = _schema(report, float_width, joined)
        self._drain = _Drain()
        sink = pa.PythonFile(self._drain, mode="w")
        self._writer = pq.ParquetWriter(sink, self._schema, compression="zstd")
        self._group = np.empty(ROW_GROUP, report.dtype(float_width))
        self._count = 0

    def begin(self) -> bytes:
        return self._drain.take()

    def encode(self, rows: Rows) -> bytes:
        while len(rows):
            part = rows[: ROW_GROUP - self._count]
            self._group[self._count : self._count + len(part)] = part
            self._count += len(part)
            rows = rows[len(part) :]
            if self._count == ROW_GROUP:
                self._write_group()
        return self._drain.take()

    def _write_group(self) -> None:
        batch = _batch(self._group[: self._count], self._schema, self._joined)
        self._writer.write_batch(batch, row_group_size=ROW_GROUP)
        self._count = 0

    def end(self) -> bytes:
        if self._count:
            self._write_group()
        self._writer.close()
        return self._drain.take()


Encoders = Callable[[Report, int, SummaryColumns | None], TableEncoder]


def _csv(report: Report, float_width: int, joined: SummaryColumns | None) -> TableEncoder:
    encoder = CsvEncoder(report, float_width)
    return _Plain(encoder) if joined is None else _JoinedCsv(encoder, joined)


def _bin(_report: Report, _float_width: int, joined: SummaryColumns | None) -> TableEncoder:
    if joined is not None:
        raise ReportError("packed records have no columns of text", hint="Choose csv or parquet")
    return _Plain(BinEncoder())


_ENCODERS: dict[str, Encoders] = {
    "csv": _csv,
    "bin": _bin,
    "arrow": ArrowEncoder,
    "parquet": _Parquet,
    "ndjson": lambda report, _width, joined: _Ndjson(report, joined),
}

FORMATS = tuple(_ENCODERS)
"""Names of the formats, which are also their file name extensions."""


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
    if name not in _ENCODERS:
        raise ReportError(f"there is no format {name!r}", hint=f"Choose from {', '.join(FORMATS)}")
    joined = None
    if info is not None and report.has_summaries:
        joined = SummaryColumns(info, report)
    return _ENCODERS[name](report, float_width, joined)
