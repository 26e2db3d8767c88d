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
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from app.datasets.items.tables import parse_columns, parse_table
from app.decoding.base import Decoders, Effort, LibraryMissingError, OpenHandle, Parse, Request, T
from app.decoding.wire import RefusedError
from app.errors import DatasetUnreadableError
from core.arrays import Array
from core.errors import InputError
from core.iterate.base import Field, Ragged
from core.losses.inputs import Columns

from .input_store import digest_of

MAGIC = b"PAR1"
MEDIA_TYPE = "application/vnd.apache.parquet"
ROOM_BYTES = 8 << 20
"""Bytes that the columns of a file may always take, decoded."""
ROOM_PER_BYTE = 16
"""Bytes that they may take for each byte of the file."""

_HINT = "It was read as parquet or Arrow, as its first bytes say"
_CHARACTER_BYTES = 4


def room_for(nbytes: int) -> int:
    """Return how many bytes the columns of a parquet file of this size may take, decoded."""
    return max(ROOM_BYTES, ROOM_PER_BYTE * nbytes)


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
        table = self._ask("describe", {}, parse_table, Effort())
        if len(table.fields) < len(table.types):
            raise InputError("two columns have the same name", hint=_HINT)
        fields = [_usable(table.fields[name], name, kind) for name, kind, _ in table.types]
        rows = sum(count for _, count, _ in table.parts)
        if rows * sum(field.dtype.itemsize for field in fields) > self._room:
            raise self._too_large()
        pieces: dict[str, list[Array]] = {field.name: [] for field in fields}
        left = self._room
        for number, count, _ in table.parts:
            for field, values in zip(fields, self._read(number, count, fields), strict=True):
                left -= values.nbytes
                pieces[field.name].append(values)
            if left < 0:
                raise self._too_large()
        return {field.name: _joined(field, pieces[field.name], self._room) for field in fields}

    def _read(self, number: int, rows: int, fields: Sequence[Field]) -> list[Array]:
        """Read a row group: values of numbers, and objects of text."""
        effort = Effort(max_bytes=min(2 * self._room, self._decoders.max_bytes), work=self._room)
        arguments = {"number": number, "names": [field.name for field in fields]}
        columns = self._ask("read", arguments, partial(parse_columns, fields, rows), effort)
        return [_texts(each) if isinstance(each, Ragged) else each for each in columns.values()]

    def _ask(self, action: str, arguments: Mapping[str, Any], parse: Parse[T], effort: Effort) -> T:
        request = Request(
            f"the {self._subject.form} file", self._subject, action, arguments, effort=effort
        )
        try:
            return self._decoders.ask(request, parse)
        except RefusedError as e:
            message = f"the {self._subject.form} file is damaged or unusable: {e.message}"
            raise InputError(message, hint=e.hint or _HINT) from e
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


def _usable(field: Field | None, name: str, kind: str) -> Field:
    # Their values are those of UTC, where the day may be another one.
    zoned = "tz=" in kind
    if field is None or field.shape or zoned or (field.ragged and "string" not in kind):
        message = f"column {name[:60]} is of the type {kind[:60]}"
        raise InputError(message, hint="Write numbers, text, or dates without a time zone")
    return field


def _texts(column: Ragged) -> Array:
    data, bounds = column.values.tobytes(), column.offsets.tolist()
    texts = np.empty(len(bounds) - 1, object)
    for row, (start, stop) in enumerate(pairwise(bounds)):
        texts[row] = data[start:stop]
    return texts


def _joined(field: Field, pieces: Sequence[Array], room: int) -> Array:
    """The whole column.

    Raises:
        InputError: it has missing values, bytes that are no text, or a text that is too long.
    """
    dtype = np.dtype(object) if field.ragged else field.dtype
    values: Array = np.concatenate(pieces) if pieces else np.zeros(0, dtype)
    if values.dtype.kind == "f" and np.isnan(values).any():
        row = int(np.argmax(np.isnan(values))) + 1
        raise InputError(
            f"column {field.name} has missing values, the first in row {row}", hint=_HINT
        )
    if not field.ragged:
        return values
    try:
        texts = [octets.decode() for octets in values]
    except UnicodeDecodeError as e:
        raise InputError(f"column {field.name} holds bytes that are not UTF-8", hint=_HINT) from e
    longest = max(map(len, texts), default=0)
    if _CHARACTER_BYTES * longest * len(texts) > room:
        message = f"column {field.name[:60]} has a text of {longest} characters"
        hint = "All texts of a column take as much memory as the longest: shorten it"
        raise InputError(message, hint=hint)
    values[:] = texts
    return values
