"""The sink for Arrow IPC streams, apart from :mod:`.sinks` because it imports pyarrow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import Array
from ..errors import OptionError, ShapeError
from .base import Block, Column, Field, Ragged, Schema
from .sinks import BinaryFile, Sink, column_of, write_all


class ArrowWriter(Sink):
    """Writes an Arrow IPC stream, one record batch per block.

    Arrays become nested lists of fixed size, ragged items large lists. The commit writes
    the end marker of the stream.

    Args:
        file: open for writing.
        schema: of the blocks.

    Raises:
        OptionError: Arrow lacks the dtype of a field.
        ShapeError: a field has an axis that is empty or differs from batch to batch.
    """

    def __init__(self, file: BinaryFile, schema: Schema) -> None:
        super().__init__()
        self._fields = schema
        self._schema = pa.schema([(field.name, arrow_type(field)) for field in schema])
        self._writer = pa.ipc.new_stream(_BorrowedFile(file), self._schema)

    def _put(self, block: Block) -> None:
        arrays = [_array(column_of(block, field), field) for field in self._fields]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def _finish(self) -> None:
        self._writer.close()


class _BorrowedFile(io.RawIOBase):
    """Lets Arrow write to a file, but not flush or close it: that is up to its owner."""

    def __init__(self, file: BinaryFile) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        """True; Arrow asks before it writes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer of Arrow's
        """Write a copy of the bytes, since Arrow reuses its buffer."""
        copy = bytes(data)
        write_all(self._file, copy)
        return len(copy)


def arrow_type(field: Field) -> pa.DataType:
    """The Arrow type of the items of a field.

    Raises:
        OptionError: Arrow has no type for its dtype.
        ShapeError: an axis is empty, or differs from batch to batch.
    """
    try:
        result: pa.DataType = pa.from_numpy_dtype(field.dtype.newbyteorder("="))
    except (NotImplementedError, pa.ArrowException):
        raise OptionError(f"{field.name!r} is of dtype {field.dtype}, which Arrow lacks") from None
    if field.dtype.kind not in "biufmM":
        raise OptionError(f"{field.name!r} is of dtype {field.dtype}, which Arrow lacks")
    if min(field.shape, default=1) < 1:
        raise ShapeError(
            f"items of {field.name!r} are of shape {field.shape}", hint="Pad them to a length."
        )
    for size in reversed(field.shape):
        result = pa.list_(result, size)
    return pa.large_list(result) if field.ragged else result


def _array(column: Column, field: Field) -> pa.Array[Any]:
    if not isinstance(column, Ragged):
        return fixed_array(column)
    values = column.values[column.offsets[0] : column.offsets[-1]]
    offsets = pa.array(column.offsets - column.offsets[0])
    return pa.LargeListArray.from_arrays(offsets, fixed_array(values), type=arrow_type(field))


def fixed_array(values: Array) -> pa.Array[Any]:
    """The values as an Arrow array; axes after the first become lists of fixed size."""
    flat = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    result: pa.Array[Any] = pa.array(flat.reshape(-1))
    for size in reversed(values.shape[1:]):
        result = pa.FixedSizeListArray.from_arrays(result, size)
    return result
