"""Rows of Parquet and Arrow files as items, decoded by row group or record batch.

Isolated processes read what is complicated about them (:mod:`app.decoding`), which leaves two
ways to the values of a column:

    parquet, compressed Arrow    file ──▶ decoder ──▶ shared memory ──▶ column
    Arrow as it lies in memory   file ───────────────────────────────▶ column
                                      the decoder only says at which byte

Whatever a decoder answers is checked here: sizes against the number of rows and the length of the
file, and every offset of columns of variable length (:mod:`.stored`).
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from app.decoding.base import Decoders, Effort
from core.arrays import Array, Indices, Octets
from core.errors import FormatError
from core.iterate.base import Column, Field, Indexed, Ragged, Schema

from ..files.file_set import FileSet
from ..files.foreign import ForeignFile, number, sequence, text
from .segments import Segmented, select_fields

ARROW = "arrow"
_DTYPE = re.compile(r"[|<][biuf][1248]|<[Mm]8\[(D|s|ms|us|ns)\]")
_LOCATED = 32
"""Parts whose columns are located at once."""
_MAX_ITEMS = 1 << 31
"""Values per item of a fixed number."""
Place = tuple[int, ...]
PartPlaces = tuple[Place | None, ...] | None
"""Place of each column of a part, None for a column that has none; None if the part has to be
decompressed."""
_MAX_PLACES = 1 << 16
"""Places that are remembered."""
_FIXED, _VARIABLE = 1, 4
"""Numbers in a place."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A row group or record batch."""

    file: int
    number: int
    """Index in the file; for a batch of an Arrow stream, the offset of its message."""
    rows: int
    work: int
    """Bytes to decode."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What a worker says of a file."""

    types: Sequence[Any]
    """(name, type, whether it can be missing) of each column, to compare files by."""
    fields: Mapping[str, Field | None]
    """The field of each column; None if the column is not usable."""
    parts: Sequence[tuple[int, int, int]]
    """(number, rows, bytes) of each part."""


class TableItems:
    """Rows of one or more tables, in the order of the files.

    Args:
        files: tables of one schema.
        form: ``parquet`` or ``arrow`` (file or stream).
        decoders: read the files.

    Raises:
        FormatError: a file is damaged, has no usable column, or has other columns than
            the first file.
        DatasetUnreadableError: reading a file crashed, hung or needed too much memory.
    """

    units = ("row",)

    def __init__(self, files: FileSet, form: str, decoders: Decoders) -> None:
        self._files = files
        self._form = form
        self._max_bytes = decoders.max_bytes
        self._tables = [ForeignFile(files, file, form, decoders) for file in range(len(files))]
        described = [
            # An Arrow file has the numbers of rows in the batches, all of which are read.
            table.ask(
                "describe", {}, parse_table, Effort(work=files.size(k) if form == ARROW else 0)
            )
            for k, table in enumerate(self._tables)
        ]
        for file, one in enumerate(described):
            if one.types != described[0].types:
                raise FormatError(
                    "its columns differ from those of the first file", source=files.name(file)
                )
        self._parts = [
            _Part(file, *part)
            for file, one in enumerate(described)
            for part in one.parts
            if part[1]
        ]
        fields = described[0].fields
        if len(fields) < len(described[0].types):
            raise FormatError(
                "two columns have the same name", source=files.name(0), hint="Rename one of them"
            )
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

        places = Places(partial(self._locate, schema), len(schema))

        def load(number: int) -> dict[str, Column]:
            part = self._parts[number]
            known = places.of(number, part.file) if self._form == ARROW else None
            columns: dict[str, Column] = {}
            if known is not None:
                for field, place in zip(schema, known, strict=True):
                    if place is not None:
                        file = (self._files, part.file)
                        columns[field.name] = stored_column(file, field, part.rows, place)
            rest = tuple(field for field in schema if field.name not in columns)
            return columns | self._decode(part, rest) if rest else columns

        return Segmented(schema, starts, load)

    def _locate(self, schema: Schema, number: int) -> list[PartPlaces]:
        """Ask where the columns of some parts lie in their file, from a part on."""
        first = self._parts[number]
        parts = self._parts[number : number + _LOCATED]
        parts = [part for part in parts if part.file == first.file]
        names = [field.name for field in schema]
        arguments = {"numbers": [part.number for part in parts], "names": names}

        def parse(values: Mapping[str, Any], _octets: Octets) -> list[PartPlaces]:
            answer = sequence(values["parts"])
            if not 1 <= len(answer) <= len(parts):
                raise ValueError("places of other parts")
            return [parse_places(places, schema) for places in answer]

        # A part that has to be decompressed is the last one that a decoder looks at.
        effort = Effort(work=min(max(part.work for part in parts), self._max_bytes))
        return self._tables[first.file].ask("locate", arguments, parse, effort)

    def _decode(self, part: _Part, schema: Schema) -> dict[str, Column]:
        arguments = {"number": part.number, "names": [field.name for field in schema]}

        return self._tables[part.file].ask(
            "read",
            arguments,
            partial(parse_columns, schema, part.rows),
            Effort(max_bytes=self._max_bytes, work=min(part.work, self._max_bytes)),
        )

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


def parse_table(values: Mapping[str, Any], _octets: Octets) -> TableDescription:
    """Parse what a worker says of a file.

    Raises:
        KeyError, TypeError, ValueError: it cannot be so.
    """
    types = [
        (text(name, 1 << 16), text(kind, 1 << 16), bool(nullable))
        for name, kind, nullable in sequence(values["types"])
    ]
    described = zip(types, sequence(values["fields"]), strict=True)
    fields = {name: _field(name, field) for (name, _, _), field in described}
    parts = [
        (number(place), number(rows), number(nbytes))
        for place, rows, nbytes in sequence(values["parts"])
    ]
    return TableDescription(types, fields, parts)


def _field(name: str, described: Mapping[str, Any] | None) -> Field | None:
    """Build the field of a column; None if the column is not usable."""
    if described is None:
        return None
    code = text(described["dtype"])
    if not _DTYPE.fullmatch(code):
        raise ValueError("no dtype of a column")
    shape = tuple(number(n, _MAX_ITEMS) for n in sequence(described["shape"]))
    return Field(name, np.dtype(code), shape[:1], ragged=bool(described["ragged"]))


def parse_columns(
    schema: Sequence[Field], rows: int, values: Mapping[str, Any], octets: Octets
) -> dict[str, Column]:
    """Parse the columns of a part, which a worker has decoded.

    Raises:
        KeyError, TypeError, ValueError: they are not those of the schema.
    """
    layouts = zip(schema, sequence(values["columns"]), strict=True)
    return {field.name: _column(layout, field, rows, octets) for field, layout in layouts}


def _column(layout: Mapping[str, Any], field: Field, rows: int, octets: Octets) -> Column:
    """Find a column in the bytes of a part."""
    starts, lengths = sequence(layout["offsets"]), sequence(layout["lengths"])
    if not field.ragged:
        (start,) = starts
        return _array(octets, number(start), field.dtype, (rows, *field.shape))
    start, at = starts
    values = _array(octets, number(start), field.dtype, (number(lengths[0]),))
    offsets = _array(octets, number(at), np.dtype(np.int64), (rows + 1,))
    if offsets[0] or offsets[-1] != len(values) or not is_ascending(offsets):
        raise ValueError("offsets of another column")
    return Ragged(values, offsets)


def _array(octets: Octets, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Copy an array out of shared memory.

    The worker could change it after it was checked there. And columns are cached for long:
    shared memory, of which each piece takes a descriptor, is better returned.
    """
    nbytes = dtype.itemsize * int(np.prod(shape, dtype=object))
    if start + nbytes > len(octets):
        raise ValueError("an array beyond the end")
    return octets[start : start + nbytes].copy().view(dtype).reshape(shape)


def parse_places(values: Any, schema: Schema) -> PartPlaces:  # noqa: ANN401 - JSON
    """Parse the places of columns.

    A place is as :data:`app.decoding.worker.tables.Places` says. It comes from a process that
    hostile bytes may have taken over, so it is a claim: reads stay within the file, and offsets are
    checked after they are read. A wrong place gives wrong values at worst, as a wrong file would.

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


def _damaged(file: tuple[FileSet, int], field: Field, subject: str) -> FormatError:
    files, index = file
    return FormatError(
        f"column {field.name!r} {subject}",
        source=files.name(index),
        hint="Check that the file is neither damaged nor being written",
    )


def is_ascending(offsets: Indices) -> bool:
    """Whether no offset is below the one before it."""
    # Compared, because differences of hostile offsets could overflow.
    return bool((offsets[1:] >= offsets[:-1]).all())
