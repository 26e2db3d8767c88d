"""Padding: turn ragged columns into arrays as wide as their longest item, or of a given width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Indices
from ..budget import current
from ..errors import CastingError, OptionError, TransformError, names_hint
from .base import Block, Column, Field, Ragged, Schema
from .options import refuse

LENGTHS = "_length"
"""Suffix of the field that holds the lengths of padded items."""
_STRETCH = 1 << 18
"""Elements that are placed at once: their indices take more memory than they do."""
OPEN = -1
"""Marks, in the shape of a field, an axis that differs from batch to batch."""


@dataclass(frozen=True, slots=True)
class Padding:
    """How ragged columns are padded.

    Raises:
        OptionError: a length or multiple is below 1, both are given, or items are to be
            truncated without a length.
    """

    fields: tuple[str, ...] | None = None
    """Names of the fields; None for every ragged field."""
    length: int | None = None
    """Length of every item; None for that of the longest item of the batch."""
    multiple: int = 1
    """The length of the longest item is rounded up to a multiple of this."""
    value: float = 0
    """Fills the end of shorter items."""
    truncate: bool = False
    """Whether items longer than ``length`` are cut; they are an error otherwise."""

    def __post_init__(self) -> None:
        if self.multiple < 1 or (self.length is not None and self.length < 1):
            raise OptionError("length and multiple are at least 1")
        if self.length is not None and self.multiple != 1:
            raise OptionError("length and multiple are both given", hint="Give one of them.")
        if self.truncate and self.length is None:
            raise OptionError("truncate needs a length", hint="Give length as well.")

    def chosen(self, schema: Schema) -> tuple[str, ...]:
        """Names of the fields to pad.

        Raises:
            PipelineError: a field does not exist, is not ragged, or has a lengths field.
            CastingError: a field cannot hold the padding value.
        """
        by_name = {field.name: field for field in schema}
        ragged = tuple(field.name for field in schema if field.ragged)
        chosen = ragged if self.fields is None else self.fields
        if not chosen:
            raise refuse("no field is ragged", "Leave pad out.", "fields")
        for name in chosen:
            if name not in ragged:
                known = "is not ragged and needs no pad" if name in by_name else "does not exist"
                hint = names_hint(name, ragged) if ragged else "No field is ragged: leave pad out"
                raise refuse(f"field {name!r} {known}", f"{hint}.", "fields")
            if name + LENGTHS in by_name:
                raise refuse(f"there is a field {name + LENGTHS!r} already", option="fields")
            try:
                _filler(by_name[name].dtype, self.value)
            except CastingError as e:
                hint = "Give a value that this type holds."
                raise CastingError(f"field {name!r}: {e.message}", field="value", hint=hint) from e
        return chosen

    def padded(self, schema: Schema) -> Schema:
        """The schema of padded blocks; the lengths follow each padded field as int64.

        Raises:
            CoreError: as in :meth:`chosen`.
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
    """Pad ragged columns of a block to arrays of shape (items, length, ...), with lengths.

    Raises:
        TransformError: an item is longer than the length; ``position`` is its index.
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
    """Pad one column; return the array and the lengths of its items.

    Raises:
        TransformError: an item is longer than the length; ``position`` is its index.
        WorkStoppedError: the array does not fit into the budget, or the work was cancelled.
    """
    lengths = np.diff(column.offsets)
    width = padding.length
    if width is None:
        longest = int(lengths.max()) if len(lengths) else 0
        width = -(-longest // padding.multiple) * padding.multiple
    if len(lengths) and lengths.max() > width and not padding.truncate:
        place = int(np.argmax(lengths > width))
        raise TransformError(
            f"an item of {int(lengths[place])} values does not fit into the length {width}",
            position=place,
            field="length",
            hint="Increase the length, or truncate items.",
        )
    cut_lengths = np.minimum(lengths, width)
    shape = (len(lengths), width, *column.values.shape[1:])
    current().hold("pad", math.prod(shape) * column.values.itemsize)
    out = np.empty(shape, column.values.dtype)
    filler = _filler(column.values.dtype, padding.value)
    step = max(_STRETCH // max(width, 1), 1)
    for first in range(0, len(lengths), step):
        if first:
            current().check("pad")
        rows = out[first : first + step]
        rows.fill(filler)
        _place(column, cut_lengths, first, rows)
    return out, cut_lengths


def _place(column: Ragged, lengths: Indices, first: int, out: Array) -> None:
    """Copy the leading elements of some items into the rows of ``out``."""
    if len(out) == 1:
        start = column.offsets[first]
        out[0, : lengths[first]] = column.values[start : start + lengths[first]]
        return
    within = np.arange(out.shape[1]) < lengths[first : first + len(out), None]
    rows, columns = np.nonzero(within)
    out[rows, columns] = column.values[column.offsets[rows + first] + columns]


def ragged(values: Sequence[Array]) -> Ragged:
    """Join items of different lengths into one column.

    Empty items of float64, the dtype of ``np.array([])``, fit those of any other.

    Raises:
        OptionError: there are no items, they are no arrays, their inner shapes differ, or their
            common dtype does not hold every value of each.
    """
    if not values:
        raise OptionError("a ragged column needs at least one item, for its dtype")
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    try:
        items = [np.asarray(value) for value in values]
        # None but numpy chose the dtype of these.
        named = [item for item in items if item.shape[:1] != (0,) or item.dtype != np.float64]
        joined = np.concatenate(named or items)
    except ValueError as error:
        hint = "Give arrays: of bytes, np.frombuffer(item, np.uint8)."
        raise OptionError(f"the items do not fit together: {error}", hint=hint) from None
    dtypes = list(dict.fromkeys(item.dtype for item in named))
    for dtype in dtypes:
        if not _holds(joined.dtype, dtype):
            other = dtypes[dtype == dtypes[0]]
            raise OptionError(
                f"items of {dtype} and of {other}: {joined.dtype}, which numpy makes of both, does "
                f"not hold every {dtype}",
                hint="Convert all items to one dtype that holds their values: item.astype(dtype).",
            )
    return Ragged(joined, offsets)


def _holds(common: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds all values of another; numpy joins integers to floats and to text."""
    if common.kind == dtype.kind or common.kind in "iu":
        return True
    bits = 8 * dtype.itemsize - (dtype.kind == "i") if dtype.kind in "iu" else 0
    return common.kind in "fc" and bits <= np.finfo(common).nmant + 1


def _filler(dtype: np.dtype[np.generic], value: float) -> np.generic:
    """The padding value, converted to a dtype.

    Raises:
        CastingError: the dtype cannot hold it.
    """
    refused = CastingError(f"{dtype} cannot hold the padding value {value}")
    try:
        with np.errstate(all="ignore"):
            result: np.generic = np.asarray(value).astype(dtype).reshape(1)[0]
    except OverflowError:
        raise refused from None
    # Floats are rounded, but a number must not become infinite.
    if dtype.kind in "fc":
        holds = bool(np.isfinite(result)) or not math.isfinite(value)
    else:
        holds = result.item() == value  # exactly, as numpy would not compare an int with a float
    if not holds:
        raise refused
    return result
