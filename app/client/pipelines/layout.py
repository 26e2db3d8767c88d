"""The layout of batches: which arrays a frame must hold, and the batches of an answer.

The service describes the fields of a pipeline once. From then on everything about a batch
is known but its number of rows, so a wrong one is noticed before it gets memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..errors import ProtocolError
from ..transport.frames import Array, Frame, FrameAnswer, Octets, parse_dtype
from .batch import Batch, Column, EpochEnd, Ragged
from .selection import is_token

_ALIGNMENT = 64
"""Bytes: arrays of a payload begin at multiples of this."""
_MOST_AXES = 32
_MOST_BYTES = 1 << 31
"""Size of an array: as many as a frame may hold."""
_OFFSET = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the items of a pipeline.

    Attributes:
        name: of the field.
        dtype: of its values.
        shape: of one item; of one element of it if ragged. -1 for an axis whose length
            varies from batch to batch.
        ragged: whether items differ in length.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of every batch of a pipeline.

    Attributes:
        fields: in the order of the payload.
    """

    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, schema: Any) -> Layout:  # noqa: ANN401 - JSON
        """The layout that a schema describes.

        Raises:
            ProtocolError: it describes none.
        """
        if not isinstance(schema, list) or not schema:
            raise ProtocolError("the pipeline has no schema")
        fields = tuple(_field(entry) for entry in schema)
        if len({field.name for field in fields}) < len(fields):
            raise ProtocolError("two fields of the pipeline have the same name")
        return cls(fields)

    def rows(self, header: Mapping[str, Any]) -> tuple[int, int]:
        """Which rows of the global batch a frame has.

        Raises:
            ProtocolError: it does not say.
        """
        rows = header.get("rows")
        if not isinstance(rows, list) or len(rows) != 2 or not all(map(_is_size, rows)):  # noqa: PLR2004 - first and stop
            raise ProtocolError("a frame does not say which rows it holds")
        first, stop = rows
        if first > stop:
            raise ProtocolError(f"a frame has rows from {first} to {stop}")
        return first, stop

    def check(self, header: Mapping[str, Any], size: int) -> None:
        """Check the arrays that a frame announces, before its payload gets memory.

        Args:
            header: of the frame.
            size: bytes of the payload.

        Raises:
            ProtocolError: a batch cannot look like that.
        """
        first, stop = self.rows(header)
        entries = header.get("arrays")
        expected = [part for field in self.fields for part in self._parts(field, stop - first)]
        if not isinstance(entries, list) or len(entries) != len(expected):
            raise ProtocolError("a batch has other arrays than its pipeline")
        at = 0
        for entry, (name, dtype, shape) in zip(entries, expected, strict=True):
            at = self._check_array(entry, name, dtype, shape, at)
        if at != size:
            raise ProtocolError(f"a batch of {at} bytes came with {size}")

    @staticmethod
    def _parts(field: Field, rows: int) -> list[tuple[str, np.dtype[Any], tuple[int | None, ...]]]:
        if not field.ragged:
            return [(field.name, field.dtype, (rows, *field.shape))]
        return [
            (field.name, field.dtype, (None, *field.shape)),
            (f"{field.name}.offsets", _OFFSET, (rows + 1,)),
        ]

    def _check_array(
        self,
        entry: Any,  # noqa: ANN401 - JSON
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int | None, ...],
        at: int,
    ) -> int:
        """Check an array that begins at ``at``, rounded up to the alignment; its end."""
        if not isinstance(entry, dict):
            raise ProtocolError("an array of a batch is not described")
        # The only array of a frame may be called "data", as those of tiles are.
        names = {name, "data"} if len(self.fields) == 1 and shape[0] is not None else {name}
        lengths, offset, nbytes = entry.get("shape"), entry.get("offset"), entry.get("nbytes")
        if (
            entry.get("name") not in names
            or parse_dtype(entry.get("dtype")) != dtype
            or not isinstance(lengths, list)
            or len(lengths) != len(shape)
            or not all(map(_is_size, lengths))
            or any(due not in {None, _VARIES, n} for due, n in zip(shape, lengths, strict=True))
            or nbytes != math.prod(lengths) * dtype.itemsize
            or offset != -(-at // _ALIGNMENT) * _ALIGNMENT
        ):
            described = f"{name} {dtype} {list(shape)} from byte {at}"
            raise ProtocolError(f"an array came as {str(entry)[:400]}, not {described}")
        return int(offset) + int(nbytes)

    def columns(self, described: Iterable[Mapping[str, Any]], payload: Octets) -> dict[str, Column]:
        """The arrays of a frame, as views of its payload; their descriptions have been checked.

        Raises:
            ProtocolError: the offsets of a ragged field are not in order.
        """
        arrays = iter(described)
        columns: dict[str, Column] = {}
        for field in self.fields:
            values = _array(next(arrays), field.dtype, payload)
            if not field.ragged:
                columns[field.name] = values
                continue
            offsets = _array(next(arrays), _OFFSET, payload)
            if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
                raise ProtocolError(f"the offsets of {field.name} are not in order")
            columns[field.name] = Ragged(values, offsets)
        return columns


_VARIES: Final = -1
"""Length of an axis that varies from batch to batch: of items padded to the longest."""


def _array(entry: Mapping[str, Any], dtype: np.dtype[Any], payload: Octets) -> Array:
    octets = payload[entry["offset"] : entry["offset"] + entry["nbytes"]]
    return octets.view(dtype).reshape(entry["shape"])


def _field(entry: Any) -> Field:  # noqa: ANN401 - JSON
    if not isinstance(entry, dict):
        raise ProtocolError("a field of the pipeline is not described")
    name, shape, ragged = entry.get("name"), entry.get("shape", []), entry.get("ragged", False)
    if (
        not isinstance(name, str)
        or not isinstance(shape, list)
        or len(shape) >= _MOST_AXES
        or not all(length == _VARIES or _is_size(length) for length in shape)
        or not isinstance(ragged, bool)
    ):
        raise ProtocolError(f"a field of the pipeline is wrong: {str(entry)[:200]}")
    field = Field(name, parse_dtype(entry.get("dtype")), tuple(shape), ragged)
    known = (length for length in shape if length != _VARIES)
    if math.prod(known) * field.dtype.itemsize > _MOST_BYTES:
        raise ProtocolError(f"an item of {name} has more bytes than a frame")
    return field


def _is_size(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_BYTES


@dataclass(frozen=True, slots=True)
class BatchesEnd:
    """How an answer ended.

    Attributes:
        reason: exhausted, count, bytes, time, epoch or drain.
        data_finished: no batch follows.
        profile: seconds per stage, as the service measured them.
        notes: what people should know, such as why there is no batch.
    """

    reason: str
    data_finished: bool
    profile: Mapping[str, Any]
    notes: tuple[str, ...]


class BatchReader(FrameAnswer[Batch | EpochEnd, BatchesEnd]):
    """The batches of one answer, each checked against the layout before it gets memory.

    Args:
        layout: of the batches.
        first: number of the batch that must come first; None if only the token knows.
        every: distance from one batch to the next.
    """

    def __init__(self, layout: Layout, first: int | None, every: int = 1) -> None:
        self._layout = layout
        self._next = first
        self._every = every
        self._checked: tuple[Any, Any, int] = None, None, -1
        self._rows = 0, 0

    def _memory(self, header: dict[str, Any], size: int) -> Octets:
        # Most batches are as the one before: their arrays need not be looked at again.
        described = header.get("arrays"), header.get("rows"), size
        if described != self._checked:
            self._layout.check(header, size)
            self._rows = self._layout.rows(header)
            self._checked = described
        return np.empty(size, np.uint8)

    def _epoch(self) -> EpochEnd:
        return EpochEnd()

    def _data(self, frame: Frame) -> Batch:
        header = frame.header
        sequence = _number(header, "seq")
        if self._next is not None and sequence != self._next:
            raise ProtocolError(f"batch {sequence} came where {self._next} was due")
        token: Any = header.get("token")
        if not is_token(token):
            raise ProtocolError("a frame does not say where to resume")
        self._next = sequence + self._every
        return Batch(
            self._layout.columns(self._checked[0], frame.payload),
            token=token,
            sequence=sequence,
            epoch=_number(header, "epoch"),
            count=_number(header, "count"),
            rows=self._rows,
        )

    def _finish(self, header: Mapping[str, Any]) -> None:
        reason, finished = header.get("reason"), header.get("data_finished")
        if not isinstance(reason, str) or not isinstance(finished, bool):
            raise ProtocolError("the END frame does not say how it ended")
        if reason == "exhausted" and not finished:
            raise ProtocolError("the data is exhausted, but not finished")
        profile, notes = header.get("profile"), header.get("notes")
        self.end = BatchesEnd(
            reason,
            finished,
            profile if isinstance(profile, dict) else {},
            tuple(map(str, notes)) if isinstance(notes, list) else (),
        )


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"a frame does not say its {name}")
    return value
