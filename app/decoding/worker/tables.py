"""Rows of parquet and Arrow files, through pyarrow.

Columns become arrays of plain values. Those of variable length become all values, one after the
other, and an offset per row. Their size is known once they are decoded, so that shared memory is
asked for then, and each column is copied into it once.

Arrow files are memory as it was: offsets in them may point anywhere. Their batches are validated
in full before anything follows an offset.
"""

from __future__ import annotations

import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from .faults import Fault, Pending
from .octets import DescriptorFile
from .requests import Files

Array = npt.NDArray[Any]

_ARROW_FILE = b"ARROW1"
_MIN_MESSAGE = 4
"""Size of an end-of-stream marker, below which nothing can follow in an Arrow stream."""
_ALIGNMENT = 64
_MAX_PARTS = 1_000_000
_NONE = np.zeros(1, np.int64)


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow imports on first use, and which takes a second."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
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


def rehearse() -> None:
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
        subject = Table("parquet" if form == "parquet" else "arrow", memory, len(memory.getvalue()))
        subject.act("describe", {}, Files(None, []), None)
        names = [name for name in table.column_names if name not in {"nested", "kind"}]
        arguments = {"number": subject.parts[0][0], "names": names}
        pending = subject.act("read", arguments, Files(None, []), None)
        if isinstance(pending, Pending):
            pending.write(memoryview(bytearray(pending.nbytes)))


def open_subject(form: str, arguments: Mapping[str, Any], descriptors: Sequence[int]) -> Table:
    """Open a file; see ``serving.Format``."""
    size = arguments["size"]
    file = DescriptorFile(descriptors[0], size)
    try:
        return Table(form, file, size)
    except BaseException:
        file.close()
        raise


class Table:
    """An open file of one table; see ``serving.Subject``.

    Args:
        form: ``parquet`` or ``arrow``.
        file: the file, which ``close`` closes.
        size: its size in bytes.
    """

    def __init__(self, form: str, file: io.RawIOBase | io.BytesIO, size: int) -> None:
        self._file = file
        view = pa.PythonFile(file, mode="r")
        if form == "parquet":
            self._reader: _Reader = _Parquet(view)
        else:
            head = file.read(min(len(_ARROW_FILE), size))
            file.seek(0)
            self._reader = _ArrowFile(view) if head == _ARROW_FILE else _ArrowStream(view, size)
        if len(self.parts) > _MAX_PARTS:
            raise Fault(f"it has more than {_MAX_PARTS} parts", "Write it with larger ones")

    @property
    def parts(self) -> Sequence[tuple[int, int, int]]:
        """(number, rows, decoded bytes) of each row group or record batch."""
        return self._reader.parts

    def act(
        self,
        action: str,
        arguments: Mapping[str, Any],
        files: Files,
        out: memoryview | None,
    ) -> dict[str, Any] | Pending:
        """Describe the table, or read columns of a part."""
        del files, out
        schema = self._reader.schema
        if action == "describe":
            return {
                "fields": [_describe(field) for field in schema],
                "types": [[field.name, str(field.type), field.nullable] for field in schema],
                "parts": [list(part) for part in self.parts],
            }
        if action == "read":
            table = self._reader.read(arguments["number"], arguments["names"])
            return _columns(table, arguments["names"])
        raise ValueError(action)

    def explain(self, error: Exception) -> Fault:
        """See ``serving.Subject``."""
        text = str(error)
        return Fault(f"it cannot be read: {text.splitlines()[0][:200] if text else type(error)}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Reader(ABC):
    """The file, as its format has it."""

    schema: pa.Schema
    parts: Sequence[tuple[int, int, int]]
    """(number, rows, bytes) of each row group or record batch."""

    @abstractmethod
    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        """Read columns of a part."""


class _Parquet(_Reader):
    def __init__(self, view: pa.PythonFile) -> None:
        self._reader = pq.ParquetFile(view, pre_buffer=False)
        self.schema = self._reader.schema_arrow
        groups = [
            self._reader.metadata.row_group(k) for k in range(self._reader.metadata.num_row_groups)
        ]
        self.parts = [
            (k, group.num_rows, max(group.total_byte_size, 0)) for k, group in enumerate(groups)
        ]

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        table = self._reader.read_row_group(number, columns=list(names), use_threads=False)
        table.validate()
        return table


class _ArrowFile(_Reader):
    def __init__(self, view: pa.PythonFile) -> None:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        self._reader: Any = pa.ipc.open_file(view, options=options)
        self.schema = self._reader.schema
        # The footer lacks the number of rows, so every batch's own header must be read.
        batches = (self._reader.get_batch(k) for k in range(self._reader.num_record_batches))
        self.parts = [(k, *_sizes(batch)) for k, batch in enumerate(batches)]

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        return _validated(self._reader.get_batch(number), names)


class _ArrowStream(_Reader):
    def __init__(self, view: pa.PythonFile, size: int) -> None:
        self._view: Any = view
        self.schema = pa.ipc.read_schema(pa.ipc.read_message(self._view))
        if any(pa.types.is_dictionary(field.type) for field in self.schema):
            raise Fault(
                "dictionaries of an Arrow stream lie between its batches, out of random access",
                "Write an Arrow file, which lists its dictionaries",
            )
        self.parts = list(self._batches(size))

    def _batches(self, size: int) -> Iterator[tuple[int, int, int]]:
        while size - (start := self._view.tell()) > _MIN_MESSAGE:
            try:
                message = pa.ipc.read_message(self._view)
            except EOFError:
                return
            yield start, *_sizes(pa.ipc.read_record_batch(message, self.schema))

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        self._view.seek(number)
        message = pa.ipc.read_message(self._view)
        return _validated(pa.ipc.read_record_batch(message, self.schema), names)


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


# -- columns --------------------------------------------------------------------------


def _describe(field: Any) -> dict[str, Any] | None:  # noqa: ANN401 - pyarrow's
    """Describe a column: name, dtype, shape of an item; None if it is not usable."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    described: dict[str, Any] = {"name": field.name, "shape": [], "ragged": False}
    if _is_octets(kind):
        return {**described, "dtype": "|u1", "ragged": True}
    inner = kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        described["ragged"], inner = True, kind.value_type
    elif pa.types.is_fixed_size_list(kind):
        described["shape"], inner = [kind.list_size], kind.value_type
    dtype = _plain(inner)
    return None if dtype is None else {**described, "dtype": dtype.str}


def _plain(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the numpy dtype of an Arrow type, if there is one."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        letter = "M" if pa.types.is_timestamp(kind) else "m"
        return np.dtype(f"<{letter}8[{kind.unit}]")
    if pa.types.is_date(kind):
        return np.dtype("<M8[D]")
    return None


def _is_octets(kind: pa.DataType) -> bool:
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _columns(table: pa.Table, names: Sequence[str]) -> Pending:
    """Lay out the columns one after the other, each aligned."""
    pieces: list[tuple[int, Array]] = []
    layout = []
    at = 0
    for name in names:
        described = _describe(table.schema.field(name))
        if described is None:
            raise Fault(f"column {name!r} is not usable")
        arrays = _arrays(table[name], described)
        offsets = []
        for values in arrays:
            offsets.append(at)
            pieces.append((at, values))
            at += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
        layout.append({"offsets": offsets, "lengths": [len(values) for values in arrays]})

    def write(memory: memoryview) -> dict[str, Any]:
        for start, values in pieces:
            target = (
                np.frombuffer(memory, np.uint8, values.nbytes, start) if values.nbytes else None
            )
            if target is not None:
                target[...] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return {"columns": layout, "rows": table.num_rows}

    return Pending(at, write)


def _arrays(column: Any, described: Mapping[str, Any]) -> list[Array]:  # noqa: ANN401 - pyarrow's
    """Convert a column to its values, and to offsets too if it is ragged."""
    whole: Any = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if described["ragged"]:
        return _ragged(whole, described)
    if described["shape"]:
        values = _values(whole.flatten(), described)
        if whole.null_count:
            raise _missing(described)
        return [values.reshape(-1, *described["shape"])]
    return [_values(whole, described)]


def _values(array: Any, described: Mapping[str, Any]) -> Array:  # noqa: ANN401 - of any type
    dtype = np.dtype(described["dtype"])
    if array.null_count and dtype.kind != "f":
        raise _missing(described)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    values: Array = array.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype)


def _ragged(array: Any, described: Mapping[str, Any]) -> list[Array]:  # noqa: ANN401 - of any type
    if array.null_count:
        raise _missing(described)
    if _is_octets(array.type):
        wide = array.cast(pa.large_binary())
        _, bounds, octets = wide.buffers()
        first, count = wide.offset, len(wide)
        offsets = np.frombuffer(bounds, np.int64)[first : first + count + 1] if count else _NONE
        values = np.frombuffer(octets, np.uint8) if octets is not None else np.zeros(0, np.uint8)
        return [values[offsets[0] : offsets[-1]], offsets - offsets[0]]
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64)
    offsets = offsets if len(offsets) else _NONE
    values = _values(array.values.slice(offsets[0], offsets[-1] - offsets[0]), described)
    return [values, offsets - offsets[0]]


def _missing(described: Mapping[str, Any]) -> Fault:
    return Fault(
        f"column {described['name']!r} has missing values, which {np.dtype(described['dtype'])} "
        "cannot represent",
        "Fill them, or leave the column out with fields",
    )
