"""Rows of parquet and Arrow files, through pyarrow.

Columns become arrays of plain values. Their size is known once they are decoded, so that shared
memory is asked for then, and each column is copied into it once (:mod:`.columns`).

Arrow files are memory as it was. Most of it needs no decoding: the service is told where in the
file a column lies (``locate``, :mod:`.stored`), and reads it itself. What is compressed, packed
into bits or has missing values is decoded here. Offsets in a file may point anywhere, so such
batches are validated in full before anything follows one.
"""

from __future__ import annotations

import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..wire import RefusedError
from .columns import columns, describe, is_octets, is_wide
from .octets import DescriptorFile, MappedFile
from .requests import Pending, Request

_ARROW_FILE = b"ARROW1"
_ENDS = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
"""End markers of Arrow streams: since format 0.15, and before."""
_MAX_PARTS = 1_000_000
Places = list[list[int] | None] | None
"""Place of each column; None for what has none. The place of a column with one value or a fixed
number of them per row is the offset of the first value; otherwise offset of the row offsets, bytes
of one, offset of the values, and bytes of all."""


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow imports on first use, and which takes a second."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Refuse pandas.

        Raises:
            ImportError: it is asked for.
        """
        del path, target
        if fullname.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name="pandas")


def touch() -> None:
    """Have pyarrow allocate with malloc, and find that there is no pandas."""
    sys.meta_path.insert(0, _WithoutPandas())
    import_module("pyarrow.compute")
    pa.table({"x": pa.array([1.0, None])}).column(0).to_numpy()
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def preload() -> None:
    """Write and read small tables in memory, so that pyarrow starts its threads."""
    table = pa.table(
        {
            "x": pa.array([1.0, None]),
            "flag": pa.array([True, False]),
            "text": pa.array(["a", "ä"]),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "list": pa.array([[1], []], pa.list_(pa.int16())),
            "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            "day": pa.array([0, 86_400_000], pa.date64()),
            "time": pa.array([0, 1], pa.timestamp("us")),
            "nested": pa.array([{"a": 1}, {"a": 2}]),
        }
    )
    for form in ("parquet", "file", "stream"):
        memory = io.BytesIO()
        if form == "parquet":
            pq.write_table(table, memory, compression="zstd")
        else:
            new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
            written = table if form == "file" else table.drop_columns(["kind"])
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with new(pa.output_stream(memory), written.schema, options=options) as writer:
                writer.write_table(written)
            memory = io.BytesIO(memory.getvalue())
        descriptor = os.memfd_create("rehearsal", os.MFD_CLOEXEC)
        size = os.write(descriptor, memory.getvalue())
        kind = "parquet" if form == "parquet" else "arrow"
        subject = open_subject(kind, {"size": size}, [descriptor])
        subject.act(Request("describe"))
        names = [name for name in table.column_names if name not in {"nested", "kind"}]
        number = subject.parts[0][0]
        subject.act(Request("locate", {"numbers": [number], "names": names}))
        pending = subject.act(Request("read", {"number": number, "names": names}))
        if isinstance(pending, Pending):
            pending.write(memoryview(bytearray(pending.nbytes)))
        subject.close()


def open_subject(form: str, arguments: Mapping[str, Any], descriptors: Sequence[int]) -> Table:
    """Open a file; see ``serving.Format``."""
    kind = DescriptorFile if form == "parquet" else MappedFile
    file = kind.of(arguments, descriptors)
    try:
        return _opened(file, arguments["size"])
    except BaseException:
        file.close()
        raise


def _opened(file: DescriptorFile, size: int) -> Table:
    if isinstance(file, MappedFile):
        head = bytes(file.read(min(len(_ARROW_FILE), size)))
        file.seek(0)
        table: Table = _ArrowFile(file) if head == _ARROW_FILE else _ArrowStream(file, size)
    else:
        table = _Parquet(file)
    if len(table.parts) > _MAX_PARTS:
        raise RefusedError(f"it has more than {_MAX_PARTS} parts", "Write it with larger ones")
    return table


class Table(ABC):
    """An open file of one table; see ``serving.OpenHandle``.

    Args:
        file: the file, which ``close`` closes.
    """

    schema: pa.Schema
    parts: Sequence[tuple[int, int, int]]
    """(number, rows, decoded bytes) of each row group or record batch."""

    def __init__(self, file: DescriptorFile) -> None:
        self._file = file

    @abstractmethod
    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        """Read columns of a part."""

    def _locate(self, numbers: Sequence[int], names: Sequence[str]) -> Iterator[Places]:
        """Yield where columns of parts lie in the file, up to the first that is not in it."""
        del numbers, names
        yield None

    def act(self, request: Request) -> dict[str, Any] | Pending:
        """Describe the table, locate columns of parts, or read columns of a part."""
        schema, arguments = self.schema, request.arguments
        if request.action == "describe":
            return {
                "fields": [describe(field) for field in schema],
                "types": [[field.name, str(field.type), field.nullable] for field in schema],
                "parts": [list(part) for part in self.parts],
            }
        if request.action == "read":
            table = self._read(arguments["number"], arguments["names"])
            return columns(table, arguments["names"])
        if request.action == "locate":
            return {"parts": list(self._locate(arguments["numbers"], arguments["names"]))}
        raise ValueError(request.action)

    def explain(self, error: Exception) -> RefusedError:
        """See ``serving.OpenHandle``."""
        text = str(error)
        return RefusedError(
            f"it cannot be read: {text.splitlines()[0][:200] if text else type(error)}"
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Parquet(Table):
    def __init__(self, file: DescriptorFile) -> None:
        super().__init__(file)
        self._reader = pq.ParquetFile(pa.PythonFile(file, mode="r"), pre_buffer=False)
        self.schema = self._reader.schema_arrow
        groups = [
            self._reader.metadata.row_group(k) for k in range(self._reader.metadata.num_row_groups)
        ]
        self.parts = [
            (k, group.num_rows, max(group.total_byte_size, 0)) for k, group in enumerate(groups)
        ]

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        table = self._reader.read_row_group(number, columns=list(names), use_threads=False)
        table.validate()
        return table


class _Arrow(Table):
    """An Arrow file or stream."""

    _file: MappedFile

    @abstractmethod
    def _batch(self, number: int) -> Any:  # noqa: ANN401 - pyarrow's
        """Return a batch, as it is in the file where nothing has to be decompressed."""

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        return _validated(self._batch(number), names)

    def _locate(self, numbers: Sequence[int], names: Sequence[str]) -> Iterator[Places]:
        for number in numbers:
            places = places_of(self._batch(number), names, self._file)
            yield places
            if places is None:
                # Decompressing further ones would tell the same.
                return


class _ArrowFile(_Arrow):
    def __init__(self, file: MappedFile) -> None:
        super().__init__(file)
        options = pa.ipc.IpcReadOptions(use_threads=False)
        self._reader: Any = pa.ipc.open_file(pa.PythonFile(file, mode="r"), options=options)
        self.schema = self._reader.schema
        # The footer lacks the number of rows, so every batch's own header must be read.
        batches = (self._batch(k) for k in range(self._reader.num_record_batches))
        self.parts = [(k, *_sizes(batch)) for k, batch in enumerate(batches)]

    def _batch(self, number: int) -> Any:  # noqa: ANN401 - pyarrow's
        self._file.forget()
        return self._reader.get_batch(number)


class _ArrowStream(_Arrow):
    def __init__(self, file: MappedFile, size: int) -> None:
        super().__init__(file)
        self._view: Any = pa.PythonFile(file, mode="r")
        self.schema = pa.ipc.read_schema(pa.ipc.read_message(self._view))
        if coded := [each.name for each in self.schema if pa.types.is_dictionary(each.type)]:
            raise RefusedError(
                f"column {coded[0]!r:.80} has a dictionary: those of an Arrow stream lie between"
                " its batches, out of random access",
                "Write an Arrow file, which lists its dictionaries, or the values themselves",
            )
        self.parts = list(self._parts(size))

    def _parts(self, size: int) -> Iterator[tuple[int, int, int]]:
        start = self._view.tell()
        while not (head := bytes(self._view.read(len(_ENDS[0])))).startswith(_ENDS):
            if not head:
                raise RefusedError(
                    f"the stream stops at byte {size} without its end marker, as if it were cut",
                    "Send it to its end, and have its writer closed, which writes the marker",
                )
            yield start, *_sizes(self._batch(start))
            start = self._view.tell()

    def _batch(self, number: int) -> Any:  # noqa: ANN401 - pyarrow's
        self._file.forget()
        self._view.seek(number)
        message = pa.ipc.read_message(self._view)
        return pa.ipc.read_record_batch(message, self.schema)


def _sizes(batch: Any) -> tuple[int, int]:  # noqa: ANN401 - pyarrow's
    """Return the rows and bytes of a batch."""
    return batch.num_rows, batch.get_total_buffer_size()


def _validated(batch: Any, names: Sequence[str]) -> pa.Table:  # noqa: ANN401 - pyarrow's
    """Select columns of a batch, once no offset in them can lead astray.

    Text is served as its bytes, and need not be UTF-8.
    """
    arrays = [batch.column(name) for name in names]
    plain = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    arrays = [a.view(plain[a.type]) if a.type in plain else a for a in arrays]
    for column in arrays:
        column.validate(full=True)
    return pa.Table.from_arrays(arrays, names=list(names))


def places_of(batch: Any, names: Sequence[str], file: MappedFile) -> Places:  # noqa: ANN401 - pyarrow's
    """Return where columns of a batch lie in the file; None if it had to be decompressed.

    Such as this file, and the places that are told of it::

        file   ──┤ metadata │ offsets of a │ values of a │ values of b │ …
                            ▲              ▲             ▲
        told                3 numbers of column a        1 number of column b

    Whoever reads these bytes of the file has the column: nothing has to be decoded. Where that is
    not so, a column has no place: booleans are bits, dates have another unit, dictionaries are
    apart, and missing values have to be filled or refused.

    Raises:
        pa.ArrowException: a buffer of a column is shorter than the column needs.
    """
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size and _place(buffer, buffer.size, file) is None:
                return None
    return [_column(batch.schema.field(name), batch.column(name), file) for name in names]


def _column(field: Any, column: Any, file: MappedFile) -> list[int] | None:  # noqa: ANN401 - pyarrow's
    described = describe(field)
    kind = column.type
    if described is None or pa.types.is_dictionary(kind) or column.null_count or column.offset:
        return None
    column.validate()
    dtype = np.dtype(described["dtype"])
    if is_octets(kind):
        return _ragged(column, column.buffers()[2], file)
    if not described["ragged"] and not described["shape"]:
        return _fixed(column, dtype, len(column), file)
    inner = column.values
    if described["shape"]:
        return _fixed(inner, dtype, len(column) * described["shape"][0], file)
    if not _is_plain(inner, dtype):
        return None
    return _ragged(column, inner.buffers()[1], file)


def _is_plain(values: Any, dtype: np.dtype[Any]) -> bool:  # noqa: ANN401 - pyarrow's
    """Whether the buffer of an array is what numpy would have."""
    if pa.types.is_date(values.type) or values.null_count or values.offset:
        return False
    return bool(values.type.bit_width == 8 * dtype.itemsize)


def _fixed(values: Any, dtype: np.dtype[Any], count: int, file: MappedFile) -> list[int] | None:  # noqa: ANN401 - pyarrow's
    if not _is_plain(values, dtype):
        return None
    place = _place(values.buffers()[1], count * dtype.itemsize, file)
    return None if place is None else [place]


def _ragged(column: Any, values: Any, file: MappedFile) -> list[int] | None:  # noqa: ANN401 - pyarrow's
    width = 8 if is_wide(column.type) else 4
    offsets = _place(column.buffers()[1], (len(column) + 1) * width, file)
    size = 0 if values is None else values.size
    start = _place(values, size, file) if size else 0
    return None if offsets is None or start is None else [offsets, width, start, size]


def _place(buffer: Any, size: int, file: MappedFile) -> int | None:  # noqa: ANN401 - pyarrow's
    """Return where the first ``size`` bytes of a buffer lie in the file."""
    if buffer is None or buffer.size < size:
        return None
    return file.place_of(buffer.address, size)
