"""Columns of Arrow batches that lie in their file as plain values.

    file   ──┤ metadata │ offsets of a │ values of a │ values of b │ …
                        ▲              ▲             ▲
    told                3 numbers of column a        1 number of column b

Whoever reads these bytes of the file has the column: nothing has to be decoded. Where that is
not so, a column has no place: booleans are bits, dates have another unit, dictionaries are apart,
and missing values have to be filled or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from .columns import describe, is_octets, is_wide
from .octets import MappedFile

Places = list[list[int] | None] | None
"""Place of each column; None for what has none. The place of a column with one value or a fixed
number of them per row is the offset of the first value; otherwise offset of the row offsets, bytes
of one, offset of the values, and bytes of all."""


def places_of(batch: Any, names: Sequence[str], file: MappedFile) -> Places:  # noqa: ANN401 - pyarrow's
    """Return where columns of a batch lie in the file; None if it had to be decompressed.

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
