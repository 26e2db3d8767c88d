"""Rows of Parquet and Arrow files as items, decoded by row group or record batch."""

from __future__ import annotations

import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.arrays import Array
from core.errors import FormatError
from core.iterate.base import Column, Field, Indexed, Ragged, Schema

from ..files.file_set import FileSet
from .segments import Segmented, select_fields

PARQUET, ARROW = "parquet", "arrow"
_ARROW_FILE = b"ARROW1"
_MIN_MESSAGE = 4
"""Size of an end-of-stream marker, below which nothing can follow in an Arrow stream."""


class FileView(io.RawIOBase):
    """A seekable, read-only file object over a file of a set; for one thread at a time.

    Args:
        files: the set.
        file: index of the file.
    """

    def __init__(self, files: FileSet, file: int) -> None:
        super().__init__()
        self._files = files
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte; return its offset."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._files.size(self._file)}
        self._at = max(base[whence] + offset, 0)
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte to read."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; to the end of the file if negative.

        Raises:
            DataChangedError: the file changed since it was opened.
        """
        stop = self._files.size(self._file) if size < 0 else self._at + size
        piece = self._files.read(self._file, self._at, stop)
        self._at += len(piece)
        return piece


@dataclass(frozen=True, slots=True)
class _Part:
    """A row group or record batch."""

    file: int
    number: int
    """Index in the file; for a batch of an Arrow stream, the offset of its message."""
    rows: int


class TableItems:
    """Rows of one or more tables, in the order of the files.

    Args:
        files: tables of one schema.
        form: ``parquet`` or ``arrow`` (file or stream).

    Raises:
        FormatError: a file is damaged, has no usable column, or has other columns than
            the first file.
    """

    units = ("row",)

    def __init__(self, files: FileSet, form: str) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._tables: list[_Table] = []
        open_one = _Parquet if form == PARQUET else _open_arrow
        for file in range(len(files)):
            with _readable(files, file):
                self._tables.append(open_one(files, file))
        self._arrow = self._tables[0].schema
        for file, table in enumerate(self._tables):
            if not table.schema.equals(self._arrow):
                raise FormatError(
                    "its columns differ from those of the first file", source=files.name(file)
                )
        self._parts = [
            _Part(file, number, rows)
            for file, table in enumerate(self._tables)
            for number, rows in table.parts
            if rows
        ]
        fields = {f.name: _field_of(f) for f in self._arrow}
        if len(fields) < len(self._arrow):
            raise FormatError("two columns have the same name", source=files.name(0))
        self._schema = tuple(field for field in fields.values() if field is not None)
        self._left_out = [name for name, field in fields.items() if field is None]
        if not self._schema:
            raise FormatError(
                "it has no column of numbers, text or lists of them", source=files.name(0)
            )

    def schema(self, unit: str) -> Schema:
        """Return a field for each usable column."""
        assert unit in self.units  # noqa: S101 - there is no other
        return self._schema

    def count(self, unit: str) -> int:
        """Return the number of rows in all files."""
        assert unit in self.units  # noqa: S101 - there is no other
        return sum(part.rows for part in self._parts)

    def source(self, unit: str, fields: Sequence[str] | None) -> Indexed:
        """Return a source of the rows.

        Raises:
            OptionError: there is no such column, or it is not usable as a field.
        """
        schema = select_fields(self.schema(unit), fields)
        starts = np.cumsum([0, *(part.rows for part in self._parts)]).astype(np.int64)

        def load(number: int) -> dict[str, Column]:
            return self._load(self._parts[number], schema)

        return Segmented(schema, starts, load)

    def _load(self, part: _Part, schema: Schema) -> dict[str, Column]:
        names = [field.name for field in schema]
        with self._lock, _readable(self._files, part.file):
            table = self._tables[part.file].read(part.number, names)
        source = self._files.name(part.file)
        return {field.name: _column(table[field.name], field, source) for field in schema}

    def stops(self, unit: str, count: int) -> tuple[int, ...]:
        """Return the sizes of all files: tables do not grow."""
        del unit, count
        return tuple(self._files.size(file) for file in range(len(self._files)))

    def describe(self) -> Mapping[str, Any]:
        """Return the number of rows and parts, and the columns left out."""
        return {
            "rows": sum(part.rows for part in self._parts),
            "parts": len(self._parts),
            "left_out": self._left_out,
        }


@contextmanager
def _readable(files: FileSet, file: int) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, OverflowError) as e:
        # Tell a file that changed while it was read from a file that is damaged.
        files.check((file,))
        reason = str(e).splitlines()[0][:200] if str(e) else type(e).__name__
        raise FormatError(f"it cannot be read: {reason}", source=files.name(file)) from e


def _opened(files: FileSet, file: int) -> pa.PythonFile:
    return pa.PythonFile(FileView(files, file), mode="r")


class _Table(ABC):
    """One file of a table."""

    schema: pa.Schema
    parts: Sequence[tuple[int, int]]
    """(number, rows) of each row group or record batch."""

    @abstractmethod
    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        """Read columns of a part."""


class _Parquet(_Table):
    def __init__(self, files: FileSet, file: int) -> None:
        self._reader = pq.ParquetFile(_opened(files, file))
        self.schema = self._reader.schema_arrow
        metadata = self._reader.metadata
        self.parts = [(k, metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        return self._reader.read_row_group(number, columns=list(names), use_threads=False)


class _ArrowFile(_Table):
    def __init__(self, files: FileSet, file: int) -> None:
        self._reader: Any = pa.ipc.open_file(_opened(files, file))
        self.schema = self._reader.schema
        # The footer lacks the number of rows, so every batch's own header must be read.
        self.parts = [
            (k, self._reader.get_batch(k).num_rows) for k in range(self._reader.num_record_batches)
        ]

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches([self._reader.get_batch(number)]).select(list(names))


class _ArrowStream(_Table):
    def __init__(self, files: FileSet, file: int) -> None:
        self._view: Any = _opened(files, file)
        self.schema = pa.ipc.read_schema(pa.ipc.read_message(self._view))
        if any(pa.types.is_dictionary(field.type) for field in self.schema):
            raise FormatError(
                "dictionaries of an Arrow stream lie between its batches, out of random access",
                hint="Write an Arrow file, which lists its dictionaries",
                source=files.name(file),
            )
        self.parts = list(self._batches(files.size(file)))

    def _batches(self, size: int) -> Iterator[tuple[int, int]]:
        while size - (start := self._view.tell()) > _MIN_MESSAGE:
            try:
                message = pa.ipc.read_message(self._view)
            except EOFError:
                return
            yield start, pa.ipc.read_record_batch(message, self.schema).num_rows

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        self._view.seek(number)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(self._view), self.schema)
        return pa.Table.from_batches([batch]).select(list(names))


def _open_arrow(files: FileSet, file: int) -> _Table:
    head = files.read(file, 0, len(_ARROW_FILE))
    return (_ArrowFile if head == _ARROW_FILE else _ArrowStream)(files, file)


# -- columns --------------------------------------------------------------------------


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


def _field_of(field: Any) -> Field | None:  # noqa: ANN401 - pyarrow's
    """Return the field for a column; None if the column is not usable."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_octets(kind):
        return Field(field.name, np.dtype(np.uint8), ragged=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _plain(kind.value_type)
        return None if inner is None else Field(field.name, inner, ragged=True)
    if pa.types.is_fixed_size_list(kind):
        inner = _plain(kind.value_type)
        return None if inner is None else Field(field.name, inner, (kind.list_size,))
    plain = _plain(kind)
    return None if plain is None else Field(field.name, plain)


def _column(column: Any, field: Field, source: str) -> Column:  # noqa: ANN401 - pyarrow's
    """Convert a column; missing values become NaN in floats and are refused elsewhere."""
    whole: Any = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if field.ragged:
        return _ragged(whole, field, source)
    if field.shape:
        values = _values(whole.flatten(), field, source)
        if whole.null_count:
            raise _missing(field, source)
        return values.reshape(-1, *field.shape)
    return _values(whole, field, source)


def _values(array: Any, field: Field, source: str) -> Array:  # noqa: ANN401 - of any type
    if array.null_count and field.dtype.kind != "f":
        raise _missing(field, source)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    values: Array = array.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, field.dtype)


def _ragged(array: Any, field: Field, source: str) -> Ragged:  # noqa: ANN401 - of any type
    if array.null_count:
        raise _missing(field, source)
    if _is_octets(array.type):
        wide = array.cast(pa.large_binary())
        _, bounds, octets = wide.buffers()
        first, count = wide.offset, len(wide)
        offsets = np.frombuffer(bounds, np.int64)[first : first + count + 1] if count else _NONE
        values = np.frombuffer(octets, np.uint8) if octets is not None else np.zeros(0, np.uint8)
        return Ragged(values[offsets[0] : offsets[-1]], offsets - offsets[0])
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64)
    offsets = offsets if len(offsets) else _NONE
    values = _values(array.values.slice(offsets[0], offsets[-1] - offsets[0]), field, source)
    return Ragged(values, offsets - offsets[0])


_NONE = np.zeros(1, np.int64)


def _missing(field: Field, source: str) -> FormatError:
    return FormatError(
        f"column {field.name!r} has missing values, which {field.dtype} cannot represent",
        hint="Fill them, or leave the column out with fields",
        source=source,
    )
