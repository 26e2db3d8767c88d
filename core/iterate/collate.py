"""Ragged columns as arrays: padded to the longest item, to a multiple, or to a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Indices
from ..errors import CastingError, OptionError, PipelineError, TransformError
from .base import Block, Column, Field, Ragged, Schema

LENGTHS = "_length"
"""What the name of a field ends with that says how long its items were."""
OPEN = -1
"""In the shape of a field: an axis that differs from batch to batch."""


@dataclass(frozen=True, slots=True)
class Padding:
    """How ragged columns become arrays.

    Raises:
        OptionError: a length or multiple below 1, or both; truncation without a length.
    """

    fields: tuple[str, ...] | None = None
    """Which; None for every ragged one."""
    length: int | None = None
    """What every item becomes; None for as long as the longest of its batch."""
    multiple: int = 1
    """The longest is rounded up to a multiple of this."""
    value: float = 0
    """What lies after the end of an item."""
    truncate: bool = False
    """Whether what is longer than ``length`` is cut; otherwise it is an error."""

    def __post_init__(self) -> None:
        if self.multiple < 1 or (self.length is not None and self.length < 1):
            raise OptionError("items are padded to a length or multiple of at least 1")
        if self.length is not None and self.multiple != 1:
            raise OptionError("items are padded to a length or to a multiple, not both")
        if self.truncate and self.length is None:
            raise OptionError("items are cut at a length, and none was given")

    def chosen(self, schema: Schema) -> tuple[str, ...]:
        """Names of the fields it pads.

        Raises:
            PipelineError: one is not there, not ragged, or cannot hold the value.
        """
        by_name = {field.name: field for field in schema}
        chosen = self.fields
        if chosen is None:
            chosen = tuple(field.name for field in schema if field.ragged)
        for name in chosen:
            field = by_name.get(name)
            if field is None or not field.ragged:
                raise PipelineError(
                    f"there is no ragged field {name!r} to be padded",
                    field="fields",
                    hint=f"Fields: {', '.join(by_name)}.",
                )
            if name + LENGTHS in by_name:
                raise PipelineError(f"there is a field {name + LENGTHS!r} already", field="fields")
            _filler(field.dtype, self.value)
        return chosen

    def padded(self, schema: Schema) -> Schema:
        """The schema of padded blocks: after each padded field the lengths, int64.

        Raises:
            PipelineError: as :meth:`chosen`.
        """
        chosen = self.chosen(schema)
        result: list[Field] = []
        for field in schema:
            if field.name not in chosen:
                result.append(field)
                continue
            axis = OPEN if self.length is None else self.length
            result.append(Field(field.name, field.dtype, (axis, *field.shape)))
            result.append(Field(field.name + LENGTHS, np.dtype(np.int64)))
        return tuple(result)


def collate(block: Block, padding: Padding) -> Block:
    """A block whose ragged columns are arrays, shape (items, length, ...), with lengths.

    Raises:
        TransformError: an item is longer than the length; names its place in the block.
        PipelineError: a field is not there or not ragged.
    """
    result: dict[str, Column] = {}
    chosen = padding.fields
    for name, column in block.items():
        if not isinstance(column, Ragged) or (chosen is not None and name not in chosen):
            result[name] = column
            continue
        result[name], result[name + LENGTHS] = pad(column, padding)
    return result


def pad(column: Ragged, padding: Padding) -> tuple[Array, Indices]:
    """One column as an array, and how long its items are in it.

    Raises:
        TransformError: an item is longer than the length; names its place in the column.
    """
    lengths = np.diff(column.offsets)
    width = padding.length
    if width is None:
        longest = int(lengths.max()) if len(lengths) else 0
        width = -(-longest // padding.multiple) * padding.multiple
    if len(lengths) and lengths.max() > width and not padding.truncate:
        place = int(np.argmax(lengths > width))
        raise TransformError(
            f"an item of {int(lengths[place])} values does not fit into {width}",
            position=place,
            hint="Raise the length, or have items truncated.",
        )
    cut_lengths = np.minimum(lengths, width)
    shape = (len(lengths), width, *column.values.shape[1:])
    out = np.full(shape, _filler(column.values.dtype, padding.value), column.values.dtype)
    within = np.arange(width) < cut_lengths[:, None]
    rows, columns = np.nonzero(within)
    out[rows, columns] = column.values[column.offsets[rows] + columns]
    return out, cut_lengths


def ragged(values: Sequence[Array]) -> Ragged:
    """Items of differing length as one column; one item at least, all of one dtype.

    Raises:
        OptionError: no items, or items that are no rows of one another.
    """
    if not values:
        raise OptionError("a ragged column needs an item to know its dtype")
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    try:
        return Ragged(np.concatenate(values), offsets)
    except ValueError as error:
        raise OptionError(f"items that do not fit each other: {error}") from None


def _filler(dtype: np.dtype[np.generic], value: float) -> np.generic:
    """The value in that dtype.

    Raises:
        CastingError: it cannot hold it.
    """
    with np.errstate(all="ignore"):
        result: np.generic = np.asarray(value).astype(dtype).reshape(1)[0]
    exact = dtype.kind in "fc" or result == value
    if not exact:
        raise CastingError(f"{dtype} cannot hold the padding value {value}")
    return result
