"""Report rows as the bytes of a table, in every format there is."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import ReportError
from core.losses.reports import Report
from core.losses.tables import BinEncoder, CsvEncoder

Rows = npt.NDArray[np.void]

ROW_GROUP = 1 << 18
"""Rows of a parquet row group: many enough for its readers, few enough to be held."""


class TableEncoder(Protocol):
    """Turns a table into bytes, piece by piece, in bounded memory."""

    def begin(self) -> bytes:
        """What comes before the first row."""

    def encode(self, rows: Rows) -> bytes | memoryview:
        """The next rows, shape (n,); valid until the next call, and possibly empty."""

    def end(self) -> bytes:
        """What comes after the last row."""


class _Plain:
    """Csv and packed records, which have no end."""

    def __init__(self, encoder: CsvEncoder | BinEncoder) -> None:
        self._encoder = encoder

    def begin(self) -> bytes:
        return self._encoder.header()

    def encode(self, rows: Rows) -> memoryview:
        return self._encoder.encode(rows)

    def end(self) -> bytes:
        return b""


class _Ndjson:
    """One JSON object a line; numbers that are no numbers are null."""

    def __init__(self, report: Report) -> None:
        self._names = [column.name for column in report.columns]

    def begin(self) -> bytes:
        return b""

    def encode(self, rows: Rows) -> bytes:
        if not len(rows):
            return b""
        columns = [self._values(rows[name]) for name in self._names]
        lines = [
            orjson.dumps(dict(zip(self._names, row, strict=True)))
            for row in zip(*columns, strict=True)
        ]
        return b"\n".join(lines) + b"\n"

    @staticmethod
    def _values(column: npt.NDArray[Any]) -> list[Any]:
        if column.dtype == np.float32:
            # The shortest number that reads back as the same float32, not its
            # expansion to float64.
            text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
            values: list[Any] = orjson.loads(text)
            return values
        return list(column.tolist())

    def end(self) -> bytes:
        return b""


class _Drain(io.BufferedIOBase):
    """A file that is emptied as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever has the buffer protocol
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        """What was written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _schema(report: Report, float_width: int) -> pa.Schema:
    dtype = report.dtype(float_width)
    fields = []
    for column in report.columns:
        kind = pa.from_numpy_dtype(dtype[column.name])
        description = report.describe(column.name)
        fields.append(pa.field(column.name, kind, nullable=False, metadata=description))
    about: dict[bytes | str, bytes | str] = {
        "report": report.name,
        "title": report.title,
        "float_width": str(float_width),
    }
    return pa.schema(fields, metadata=about)


def _batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(np.ascontiguousarray(rows[name])) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ArrowEncoder:
    """An Arrow IPC stream."""

    def __init__(self, report: Report, float_width: int) -> None:
        self._schema = _schema(report, float_width)
        self._drain = _Drain()
        self._writer = pa.ipc.new_stream(self._drain, self._schema)

    def begin(self) -> bytes:
        """The schema."""
        return self._drain.take()

    def encode(self, rows: Rows, metadata: Mapping[str, str] | None = None) -> bytes:
        """The next rows as a record batch, with metadata of its own."""
        if len(rows):
            about = None
            if metadata is not None:
                pairs = {name.encode(): value.encode() for name, value in metadata.items()}
                about = pa.KeyValueMetadata(pairs)
            self._writer.write_batch(_batch(rows, self._schema), about)
        return self._drain.take()

    def end(self) -> bytes:
        """The end of the stream."""
        self._writer.close()
        return self._drain.take()


class _Parquet:
    """Parquet with row groups of a normal size, however the rows come."""

    def __init__(self, report: Report, float_width: int) -> None:
        self._schema = _schema(report, float_width)
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
        batch = _batch(self._group[: self._count], self._schema)
        self._writer.write_batch(batch, row_group_size=ROW_GROUP)
        self._count = 0

    def end(self) -> bytes:
        if self._count:
            self._write_group()
        self._writer.close()
        return self._drain.take()


_MAKERS: dict[str, Callable[[Report, int], TableEncoder]] = {
    "csv": lambda report, width: _Plain(CsvEncoder(report, width)),
    "bin": lambda _report, _width: _Plain(BinEncoder()),
    "arrow": ArrowEncoder,
    "parquet": _Parquet,
    "ndjson": lambda report, _width: _Ndjson(report),
}

FORMATS = tuple(_MAKERS)
"""Names of the formats, which are their file name endings too."""


def table_encoder(name: str, report: Report, float_width: int) -> TableEncoder:
    """An encoder for one table.

    Args:
        name: one of FORMATS.
        report: the table.
        float_width: bytes of a loss in its rows, 4 or 8.

    Raises:
        ReportError: there is no such format.
    """
    if name not in _MAKERS:
        raise ReportError(f"there is no format {name!r}", hint=f"Choose from {', '.join(FORMATS)}")
    return _MAKERS[name](report, float_width)
