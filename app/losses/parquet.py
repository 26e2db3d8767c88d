"""Files in parquet and Arrow, as columns that isolated processes have decoded.

A client's parquet file is never decoded in the service (:mod:`app.decoding`). The body, which is
in memory, goes to a decoder as a memfd; its columns come back through shared memory, row group by
row group. What a decoder answers is checked like the file itself, whose bytes may have taken it
over: every length against the number of rows, every offset against the values.

A few bytes of parquet can stand for any number of rows, so the rows of a file may take no more
than a multiple of its size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.decoding.base import (
    Decoders,
    Effort,
    LibraryMissingError,
    OpenHandle,
    Parse,
    RefusedError,
    Request,
    T,
)
from app.errors import DatasetUnreadableError
from core.arrays import Array, Octets
from core.errors import InputError
from core.losses.inputs import Columns

from .input_store import digest_of

MAGIC = b"PAR1"
MEDIA_TYPE = "application/vnd.apache.parquet"
ROOM_BYTES = 8 << 20
"""Bytes that the columns of a file may always take, decoded."""
ROOM_PER_BYTE = 16
"""Bytes that they may take for each byte of the file."""

_HINT = "It was read as parquet or Arrow, as its first bytes say"
_PLAIN = re.compile(r"[|<][biuf][1248]|<[Mm]8\[(D|s|ms|us|ns)\]")
_CHARACTER_BYTES = 4


def room_for(nbytes: int) -> int:
    """Return how many bytes the columns of a parquet file of this size may take, decoded."""
    return max(ROOM_BYTES, ROOM_PER_BYTE * nbytes)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as the decoder describes it."""

    name: str
    type: str
    """Name of the Arrow type, for messages."""
    dtype: np.dtype[Any] | None
    """Dtype of its values, bytes if it holds text; None if it cannot be used."""
    is_text: bool


@dataclass(frozen=True, slots=True)
class _Table:
    """A file as the decoder describes it."""

    columns: Sequence[_Column]
    parts: Sequence[tuple[int, int]]
    """(number, rows) of each row group."""


def read_parquet(
    data: bytes, decoders: Decoders, form: Literal["parquet", "arrow"] = "parquet"
) -> Columns:
    """Decode a parquet file, or one of Arrow.

    Args:
        data: the whole file.
        decoders: decode it.
        form: which of them it is.

    Returns:
        Its columns by name, shape (rows,) each: numbers as they are, texts as objects.

    Raises:
        InputError: it is damaged or too large, or a column has missing values or is of a type
            other than numbers, dates and text.
        BusyError: no decoder became free.
    """
    descriptor = os.memfd_create("thalweg-input", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        subject = OpenHandle(f"input {digest_of(data)}", form, {"size": len(data)}, (descriptor,))
        reading = _Reading(decoders, subject, room_for(len(data)))
        try:
            return reading.columns()
        finally:
            decoders.forget(subject.key)
    finally:
        os.close(descriptor)


class _Reading:
    """Reads one file.

    Args:
        decoders: decode it.
        subject: the file.
        room: bytes that its columns may take.
    """

    def __init__(self, decoders: Decoders, subject: OpenHandle, room: int) -> None:
        self._decoders = decoders
        self._subject = subject
        self._room = room

    def columns(self) -> Columns:
        table = self._ask("describe", {}, _parse_table, Effort())
        names = [column.name for column in table.columns]
        if len(set(names)) < len(names):
            raise InputError("two columns have the same name", hint=_HINT)
        for column in table.columns:
            if column.dtype is None:
                message = f"column {column.name[:60]} is of the type {column.type[:60]}"
                raise InputError(message, hint="Write numbers, dates or text")
        rows = sum(count for _, count in table.parts)
        if rows * sum(c.dtype.itemsize for c in table.columns if c.dtype) > self._room:
            raise self._too_large()
        pieces: dict[str, list[Array]] = {name: [] for name in names}
        left = self._room
        for number, count in table.parts:
            for column, values in zip(
                table.columns, self._read(number, count, table.columns), strict=True
            ):
                left -= values.nbytes
                pieces[column.name].append(values)
            if left < 0:
                raise self._too_large()
        return {c.name: _joined(c, pieces[c.name], self._room) for c in table.columns}

    def _read(self, number: int, rows: int, columns: Sequence[_Column]) -> list[Array]:
        """Read a row group: values of numbers, and objects of text."""

        def parse(values: Mapping[str, Any], octets: Octets) -> list[Array]:
            layouts = zip(columns, _sequence(values["columns"]), strict=True)
            return [_parse_column(column, layout, rows, octets) for column, layout in layouts]

        effort = Effort(max_bytes=min(2 * self._room, self._decoders.max_bytes), work=self._room)
        names = [column.name for column in columns]
        return self._ask("read", {"number": number, "names": names}, parse, effort)

    def _ask(self, action: str, arguments: Mapping[str, Any], parse: Parse[T], effort: Effort) -> T:
        request = Request(
            f"the {self._subject.form} file", self._subject, action, arguments, effort=effort
        )
        try:
            return self._decoders.ask(request, parse)
        except RefusedError as e:
            message = f"the {self._subject.form} file is damaged or unusable: {e.message}"
            raise InputError(message, hint=_HINT) from e
        except DatasetUnreadableError as e:
            message = f"the {self._subject.form} file is damaged or too large: {e}"
            raise InputError(message, hint=e.hint or _HINT) from e
        except LibraryMissingError as e:
            raise InputError(
                f"reading {self._subject.form} needs the package {e.package}, which is not"
                " installed here",
                hint="Send csv or packed records",
            ) from e

    def _too_large(self) -> InputError:
        return InputError(
            f"the columns of the {self._subject.form} file take more than {self._room} bytes,"
            " decoded",
            hint="Send csv or packed records, which may be as large as any input",
        )


def _parse_table(values: Mapping[str, Any], octets: Octets) -> _Table:
    del octets
    described = zip(_sequence(values["types"]), _sequence(values["fields"]), strict=True)
    columns = []
    for (name, kind, _nullable), field in described:
        if not (isinstance(name, str) and isinstance(kind, str)):
            raise TypeError("not a name and a type")
        columns.append(_describe(name, kind, field))
    parts = [(_number(number), _number(rows)) for number, rows, _ in _sequence(values["parts"])]
    return _Table(columns, parts)


def _describe(name: str, kind: str, field: Mapping[str, Any] | None) -> _Column:
    if field is None or _sequence(field["shape"]):
        return _Column(name, kind, None, is_text=False)
    code = field["dtype"]
    if not isinstance(code, str) or not _PLAIN.fullmatch(code):
        raise ValueError("no dtype of a column")
    is_text = bool(field["ragged"])
    if is_text and "string" not in kind:
        return _Column(name, kind, None, is_text=False)
    return _Column(name, kind, np.dtype(code), is_text=is_text)


def _parse_column(column: _Column, layout: Mapping[str, Any], rows: int, octets: Octets) -> Array:
    starts, lengths = _sequence(layout["offsets"]), _sequence(layout["lengths"])
    assert column.dtype is not None  # noqa: S101 - checked before
    if not column.is_text:
        (start,) = starts
        return _array(octets, _number(start), column.dtype, rows)
    start, at = starts
    values = _array(octets, _number(start), np.dtype(np.uint8), _number(lengths[0]))
    offsets = _array(octets, _number(at), np.dtype(np.int64), rows + 1)
    if offsets[0] or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise ValueError("offsets of another column")
    data, bounds = values.tobytes(), offsets.tolist()
    texts = np.empty(rows, object)
    for row in range(rows):
        texts[row] = data[bounds[row] : bounds[row + 1]]
    return texts


def _array(octets: Octets, start: int, dtype: np.dtype[Any], count: int) -> Array:
    """Copy an array out of shared memory, which the decoder could change after a check."""
    nbytes = dtype.itemsize * count
    if start + nbytes > len(octets):
        raise ValueError("an array beyond the end")
    return octets[start : start + nbytes].copy().view(dtype)


def _joined(column: _Column, pieces: Sequence[Array], room: int) -> Array:
    """The whole column.

    Raises:
        InputError: it has missing values, bytes that are no text, or a text that is too long.
    """
    dtype = np.dtype(object) if column.is_text else column.dtype
    values: Array = np.concatenate(pieces) if pieces else np.zeros(0, dtype)
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError(f"column {column.name} has missing values", hint=_HINT)
    if not column.is_text:
        return values
    try:
        texts = [octets.decode() for octets in values]
    except UnicodeDecodeError as e:
        raise InputError(f"column {column.name} holds bytes that are not UTF-8", hint=_HINT) from e
    longest = max(map(len, texts), default=0)
    if _CHARACTER_BYTES * longest * len(texts) > room:
        message = f"column {column.name[:60]} has a text of {longest} characters"
        hint = "All texts of a column take as much memory as the longest: shorten it"
        raise InputError(message, hint=hint)
    values[:] = texts
    return values


def _sequence(value: Any) -> Sequence[Any]:  # noqa: ANN401 - JSON
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _number(value: Any) -> int:  # noqa: ANN401 - JSON
    if type(value) is not int:
        raise TypeError("not an integer")
    if not 0 <= value < 1 << 40:
        raise ValueError("out of range")
    return value
