"""Columns of Arrow files that are read without decoding, from places that a decoder names.

A place is as in :mod:`app.decoding.worker.stored`. It comes from a process that hostile bytes may
have taken over, so it is a claim: reads stay within the file, and offsets are checked after they
are read. A wrong place gives wrong values at worst, as a wrong file would.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core.arrays import Array, Indices
from core.errors import FormatError
from core.iterate.base import Column, Field, Ragged, Schema

from ..files.file_set import FileSet
from ..files.foreign import number, sequence

Place = tuple[int, ...]
PartPlaces = tuple[Place | None, ...] | None
"""Place of each column of a part, None for a column that has none; None if the part has to be
decompressed."""

_MAX_PLACES = 1 << 16
"""Places that are remembered."""
_FIXED, _VARIABLE = 1, 4
"""Numbers in a place."""


def parse_places(values: Any, schema: Schema) -> PartPlaces:  # noqa: ANN401 - JSON
    """Parse the places of columns.

    Raises:
        TypeError, ValueError: they are none.
    """
    if values is None:
        return None
    return tuple(
        None if place is None else _parse_place(place, field)
        for place, field in zip(sequence(values), schema, strict=True)
    )


def _parse_place(values: Any, field: Field) -> Place:  # noqa: ANN401 - JSON
    place = tuple(number(value) for value in sequence(values))
    if len(place) != (_VARIABLE if field.ragged else _FIXED):
        raise ValueError("not a place")
    if field.ragged and place[1] not in {4, 8}:
        raise ValueError("no size of offsets")
    return place


class Places:
    """Places of the columns of parts, asked for when needed; several threads may ask at once.

    Args:
        locate: returns the places of a part and of some after it.
        columns: number of columns of a part.
    """

    def __init__(self, locate: Callable[[int], Sequence[PartPlaces]], columns: int) -> None:
        self._locate = locate
        self._limit = max(_MAX_PLACES // columns, 1)
        self._known: OrderedDict[int, PartPlaces] = OrderedDict()
        self._compressed: set[int] = set()
        self._lock = threading.Lock()

    def of(self, part: int, file: int) -> PartPlaces:
        """Return the places of the columns of a part.

        Args:
            part: index of the part.
            file: index of its file. A file with one compressed part is not asked for again.
        """
        with self._lock:
            if file in self._compressed:
                return None
            if part in self._known:
                return self._known[part]
        located = self._locate(part)
        with self._lock:
            if located[-1] is None:
                self._compressed.add(file)
            self._known.update(enumerate(located, part))
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return located[0]


def stored_column(file: tuple[FileSet, int], field: Field, rows: int, place: Place) -> Column:
    """Read a column.

    Args:
        file: the set and the index of the file.
        field: the column.
        rows: number of rows.
        place: where it lies.

    Raises:
        FormatError: it is not there, or its offsets do not ascend within its values.
        DataChangedError: the file changed since it was opened.
        ReadFailedError: the disk failed.
    """
    if not field.ragged:
        return _values(file, field, (rows, *field.shape), place[0])
    at, width, start, size = place
    offsets = _read(file, field, np.dtype(f"<i{width}"), (at, rows + 1))
    first, last = int(offsets[0]), int(offsets[-1])
    itemsize = field.dtype.itemsize
    if not (first >= 0 and last * itemsize <= size and is_ascending(offsets)):
        raise _damaged(file, field, "has offsets that lead beyond its values")
    values = _read(file, field, field.dtype, (start + first * itemsize, last - first))
    return Ragged(values, offsets.astype(np.int64) - first)


def _values(file: tuple[FileSet, int], field: Field, shape: tuple[int, ...], at: int) -> Array:
    count = int(np.prod(shape, dtype=object))
    return _read(file, field, field.dtype, (at, count)).reshape(shape)


def _read(
    file: tuple[FileSet, int], field: Field, dtype: np.dtype[Any], where: tuple[int, int]
) -> Array:
    """Read ``count`` values from an offset on; ``where`` is (offset, count)."""
    files, index = file
    at, count = where
    nbytes = count * dtype.itemsize
    if at + nbytes > files.size(index):
        raise _damaged(file, field, "reaches beyond its end")
    return np.frombuffer(files.read(index, at, at + nbytes), dtype)


def _damaged(file: tuple[FileSet, int], field: Field, what: str) -> FormatError:
    files, index = file
    return FormatError(
        f"column {field.name!r} {what}",
        source=files.name(index),
        hint="Check that the file is neither damaged nor being written",
    )


def is_ascending(offsets: Indices) -> bool:
    """Whether no offset is below the one before it."""
    # Compared, because differences of hostile offsets could overflow.
    return bool((offsets[1:] >= offsets[:-1]).all())
