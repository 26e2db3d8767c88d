"""Columns of tables as arrays of plain values, in shared memory.

A column of variable length becomes all its values, one after the other, and an offset per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..wire import RefusedError
from .requests import Pending

Array = npt.NDArray[Any]

_ALIGNMENT = 64
_NONE = np.zeros(1, np.int64)


def describe(field: Any) -> dict[str, Any] | None:  # noqa: ANN401 - pyarrow's
    """Describe a column: name, dtype, shape of an item; None if it is not usable."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    described: dict[str, Any] = {"name": field.name, "shape": [], "ragged": False}
    if is_octets(kind):
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


def is_octets(kind: pa.DataType) -> bool:
    """Whether values of a type are served as their bytes: text and binary."""
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def is_wide(kind: pa.DataType) -> bool:
    """Whether the row offsets of a type of variable length have 64 bits."""
    tests = (pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_large_list)
    return any(test(kind) for test in tests)


def columns(table: pa.Table, names: Sequence[str]) -> Pending:
    """Lay out columns one after the other, each aligned.

    Raises:
        RefusedError: a column is not usable, or has missing values that its type cannot represent.
    """
    pieces: list[tuple[int, Array]] = []
    layout = []
    at = 0
    for name in names:
        described = describe(table.schema.field(name))
        if described is None:
            raise RefusedError(f"column {name!r} is not usable")
        arrays = _arrays(table[name], described)
        offsets = []
        for values in arrays:
            offsets.append(at)
            pieces.append((at, values))
            at += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
        layout.append({"offsets": offsets, "lengths": [len(values) for values in arrays]})

    def write(memory: memoryview) -> dict[str, Any]:
        for start, values in pieces:
            if values.nbytes:
                target = np.frombuffer(memory, np.uint8, values.nbytes, start)
                target[...] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return {"columns": layout, "rows": table.num_rows}

    return Pending(at, write)


def _arrays(column: Any, described: Mapping[str, Any]) -> list[Array]:  # noqa: ANN401 - pyarrow's
    """Convert a column to its values, and to offsets too if it is ragged."""
    # Combining copies, even a single chunk.
    whole: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
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
        first = array.is_null().index(True).as_py() + 1
        raise _missing(described, f" (value {first} of a part is null),")
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    values: Array = array.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype)


def _ragged(array: Any, described: Mapping[str, Any]) -> list[Array]:  # noqa: ANN401 - of any type
    if array.null_count:
        raise _missing(described)
    if is_octets(array.type):
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


def _missing(described: Mapping[str, Any], where: str = ",") -> RefusedError:
    kind = "text" if described["ragged"] else np.dtype(described["dtype"])
    return RefusedError(
        f"column {described['name']!r} has missing values{where} which {kind} cannot represent",
        "Fill them, or leave the column out",
    )
