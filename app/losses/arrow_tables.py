"""Encode report rows as Arrow and parquet; apart from the other formats, which need no Arrow."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.arrays import Rows
from core.budget import Scope
from core.losses.reports import Report

from .tables import SummaryColumns, TableEncoder

ROW_GROUP = 1 << 18
"""Rows per parquet row group: enough for efficient reading, few enough to hold in memory."""
_GROUP_BYTES = 8 << 20
"""Memory of the compressors of the columns of a row group while it is written."""
_GROUP_COPIES = 4
"""The same of its rows, in rows: as they are, in columns, as written, and compressed."""


class _Drain(io.BytesIO):
    """A file whose content is taken away while it is being written."""

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        data = self.getvalue()
        self.seek(0)
        self.truncate()
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


class _Encoder(TableEncoder):
    """Encodes with a writer of Arrow's, which writes into a drain."""

    def __init__(
        self, report: Report, float_width: int, joined: SummaryColumns | None = None
    ) -> None:
        self._joined = joined
        self._schema = _schema(report, float_width, joined)
        self._drain = _Drain()

    def begin(self) -> bytes:
        return self._drain.take()

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        arrays = [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()]
        arrays += [] if self._joined is None else self._joined.arrays(rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ArrowEncoder(_Encoder):
    """An Arrow IPC stream."""

    def __init__(
        self, report: Report, float_width: int, joined: SummaryColumns | None = None
    ) -> None:
        super().__init__(report, float_width, joined)
        self._writer = pa.ipc.new_stream(self._drain, self._schema)

    def encode(self, rows: Rows, metadata: Mapping[str, str] | None = None) -> bytes:
        """Encode the next rows as a record batch with this metadata."""
        if len(rows):
            pairs = None
            if metadata is not None:
                pairs = pa.KeyValueMetadata(
                    {name.encode(): value.encode() for name, value in metadata.items()}
                )
            self._writer.write_batch(self._batch(rows), pairs)
        return self._drain.take()

    def end(self) -> bytes:
        """Encode the end of the stream."""
        self._writer.close()
        return self._drain.take()


class ParquetEncoder(_Encoder):
    """Parquet, with row groups of ROW_GROUP rows however the rows arrive."""

    def __init__(
        self, report: Report, float_width: int, joined: SummaryColumns | None = None
    ) -> None:
        super().__init__(report, float_width, joined)
        sink = pa.PythonFile(self._drain, mode="w")
        self._writer = pq.ParquetWriter(sink, self._schema, compression="zstd")
        self._group = np.empty(ROW_GROUP, report.dtype(float_width))
        self._count = 0

    def encode(self, rows: Rows) -> bytes:
        """Encode the row groups that the next rows complete."""
        while len(rows):
            part = rows[: ROW_GROUP - self._count]
            self._group[self._count : self._count + len(part)] = part
            self._count += len(part)
            rows = rows[len(part) :]
            if self._count == ROW_GROUP:
                self._write_group()
        return self._drain.take()

    def _write_group(self) -> None:
        rows = self._group[: self._count]
        with Scope("parquet", _GROUP_BYTES + _GROUP_COPIES * rows.nbytes):
            batch = self._batch(rows)
            self._writer.write_batch(batch, row_group_size=ROW_GROUP)
        self._count = 0

    def end(self) -> bytes:
        """Encode the last row group and the footer."""
        if self._count:
            self._write_group()
        self._writer.close()
        return self._drain.take()
