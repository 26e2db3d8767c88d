"""Batches of a pipeline, and how frames describe them. No input or output.

The service says once which fields there are, so that every batch that comes is known but
for its number of rows, and one that is not what it should be is noticed before there is
memory for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from ..tiles.plan import Array

_ALIGNMENT = 64
"""Bytes: arrays of a payload begin at multiples of this."""
_MOST_AXES = 32
_MOST_BYTES = 1 << 31
"""Of an array: as many as a frame may have."""
_OFFSET = np.dtype("<i8")

Octets: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Items of differing length, one behind the other; item k is ``ragged[k]``.

    Attributes:
        values: shape (total, ...).
        offsets: where each item begins, and where the last one ends; shape (items + 1,).
    """

    values: Array
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Array:
        at = range(len(self))[index]
        item: Array = self.values[self.offsets[at] : self.offsets[at + 1]]
        return item

    def __iter__(self) -> Iterator[Array]:
        return (self[index] for index in range(len(self)))

    def padded(self, fill: float = 0) -> Array:
        """All items behind ``fill`` to the length of the longest, shape (items, longest, ...)."""
        lengths = np.diff(self.offsets)
        longest = int(lengths.max(initial=0))
        made = np.full((len(self), longest, *self.values.shape[1:]), fill, self.values.dtype)
        made[np.arange(longest) < lengths[:, None]] = self.values
        return made


Column: TypeAlias = Array | Ragged


class Batch(Mapping[str, Column]):
    """Rows of one global batch: a mapping of fields to arrays, and where it belongs.

    Attributes:
        token: what goes on behind it.
        sequence: its number among all batches of the pipeline.
        epoch: it belongs to.
        count: rows of the global batch that are items; those behind them are padding.
        rows: which rows of the global batch these are: first, and behind the last.
    """

    __slots__ = ("_columns", "count", "epoch", "rows", "sequence", "token")

    def __init__(  # noqa: PLR0913 - what a frame says
        self,
        columns: Mapping[str, Column],
        *,
        token: str,
        sequence: int,
        epoch: int,
        count: int,
        rows: tuple[int, int],
    ) -> None:
        self._columns = dict(columns)
        self.token = token
        self.sequence = sequence
        self.epoch = epoch
        self.count = count
        self.rows = rows

    # That of mappings would compare arrays, which have no one truth.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def bare(self) -> Batch:
        """The same place, without values."""
        return Batch(
            {},
            token=self.token,
            sequence=self.sequence,
            epoch=self.epoch,
            count=self.count,
            rows=self.rows,
        )

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<Batch {self.sequence} of epoch {self.epoch}: {', '.join(self)}, rows {self.rows}>"


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch is over. What goes on behind it is the token of its last batch."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the items of a pipeline.

    Attributes:
        name: of the field.
        dtype: of its values.
        shape: of one item; of one element of it if ragged. -1 for an axis whose length
            is another one in every batch.
        ragged: whether items differ in length.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """What every batch looks like.

    Attributes:
        fields: in the order of the payload.
    """

    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, told: Any) -> Layout:  # noqa: ANN401 - JSON
        """The schema that the service tells.

        Raises:
            ProtocolError: it is none.
        """
        if not isinstance(told, list) or not told:
            raise ProtocolError("the pipeline has no schema")
        fields = tuple(_field(each) for each in told)
        if len({field.name for field in fields}) < len(fields):
            raise ProtocolError("two fields of the pipeline have one name")
        return cls(fields)

    def rows(self, header: Mapping[str, Any]) -> tuple[int, int]:
        """Which rows of the global batch a frame has.

        Raises:
            ProtocolError: it does not say.
        """
        rows = header.get("rows")
        if not isinstance(rows, list) or len(rows) != 2 or not all(map(_is_whole, rows)):  # noqa: PLR2004 - first and behind the last
            raise ProtocolError("a frame does not say which rows it has")
        first, stop = rows
        if first > stop:
            raise ProtocolError(f"a frame has rows from {first} to {stop}")
        return first, stop

    def check(self, header: Mapping[str, Any], size: int) -> None:
        """Compare what a frame says of its payload with what it must be.

        Args:
            header: of the frame.
            size: bytes of the payload.

        Raises:
            ProtocolError: they differ.
        """
        first, stop = self.rows(header)
        told = header.get("arrays")
        wanted = [part for field in self.fields for part in self._parts(field, stop - first)]
        if not isinstance(told, list) or len(told) != len(wanted):
            raise ProtocolError("a batch has other arrays than its pipeline")
        at = 0
        for about, (name, dtype, shape) in zip(told, wanted, strict=True):
            at = self._check_array(about, name, dtype, shape, at)
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
        about: Any,  # noqa: ANN401 - JSON
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int | None, ...],
        at: int,
    ) -> int:
        """Where the array ends that may begin at ``at`` or up to 63 bytes behind."""
        if not isinstance(about, dict):
            raise ProtocolError("an array of a batch is not described")
        # The only array of a frame may be named as those of tiles are.
        names = {name, "data"} if len(self.fields) == 1 and shape[0] is not None else {name}
        told, offset, nbytes = about.get("shape"), about.get("offset"), about.get("nbytes")
        if (
            about.get("name") not in names
            or parse_dtype(about.get("dtype")) != dtype
            or not isinstance(told, list)
            or len(told) != len(shape)
            or not all(map(_is_whole, told))
            or any(want not in {None, _DIFFERS, n} for want, n in zip(shape, told, strict=True))
            or nbytes != math.prod(told) * dtype.itemsize
            or offset != -(-at // _ALIGNMENT) * _ALIGNMENT
        ):
            described = f"{name} {dtype} {list(shape)} from byte {at}"
            raise ProtocolError(f"an array came as {str(about)[:400]}, not {described}")
        return int(offset) + int(nbytes)

    def columns(self, header: Mapping[str, Any], payload: Octets) -> dict[str, Column]:
        """The arrays of a frame that was checked, as views of its payload.

        Raises:
            ProtocolError: offsets of a ragged field are not in order.
        """
        arrays = iter(header["arrays"])
        made: dict[str, Column] = {}
        for field in self.fields:
            values = _array(next(arrays), field.dtype, payload)
            if not field.ragged:
                made[field.name] = values
                continue
            offsets = _array(next(arrays), _OFFSET, payload)
            if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
                raise ProtocolError(f"the offsets of {field.name} are not in order")
            made[field.name] = Ragged(values, offsets)
        return made


_DIFFERS: Final = -1
"""Length of an axis that is another one in every batch: of items padded to the longest."""


def _array(about: Mapping[str, Any], dtype: np.dtype[Any], payload: Octets) -> Array:
    octets = payload[about["offset"] : about["offset"] + about["nbytes"]]
    return octets.view(dtype).reshape(about["shape"])


def _field(about: Any) -> Field:  # noqa: ANN401 - JSON
    if not isinstance(about, dict):
        raise ProtocolError("a field of the pipeline is not described")
    name, shape, ragged = about.get("name"), about.get("shape", []), about.get("ragged", False)
    if (
        not isinstance(name, str)
        or not isinstance(shape, list)
        or len(shape) >= _MOST_AXES
        or not all(length == _DIFFERS or _is_whole(length) for length in shape)
        or not isinstance(ragged, bool)
    ):
        raise ProtocolError(f"a field of the pipeline cannot be {str(about)[:200]}")
    field = Field(name, parse_dtype(about.get("dtype")), tuple(shape), ragged)
    known = (length for length in shape if length != _DIFFERS)
    if math.prod(known) * field.dtype.itemsize > _MOST_BYTES:
        raise ProtocolError(f"an item of {name} has more bytes than a frame")
    return field


def _is_whole(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_BYTES


def parse_dtype(told: Any) -> np.dtype[Any]:  # noqa: ANN401 - JSON
    """A type as frames name it: numpy's short text, or a list of the fields of a record.

    Raises:
        ProtocolError: it is none, or values of it are not plain bytes.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(_described(told))
    except (TypeError, ValueError, SyntaxError, RecursionError) as e:
        raise ProtocolError(f"values are of no type: {str(told)[:80]}") from e
    if dtype.hasobject or not dtype.itemsize or dtype.subdtype is not None:
        raise ProtocolError(f"values cannot be of type {str(told)[:80]}")
    return dtype


def _described(told: Any) -> Any:  # noqa: ANN401 - JSON
    """JSON has lists where numpy wants tuples.

    Raises:
        TypeError: it is no description.
    """
    if isinstance(told, str):
        return told
    if not isinstance(told, list) or not told:
        raise TypeError("neither text nor a list")
    return [(str(n), _described(kind), *map(tuple, shape)) for n, kind, *shape in told]
