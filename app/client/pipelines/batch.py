"""Batches of a pipeline: mappings of fields to arrays, and their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from ..transport.frames import Array


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Items of differing length, one after the other; item k is ``ragged[k]``.

    Attributes:
        values: shape (total, ...).
        offsets: start of each item and end of the last one; shape (items + 1,).
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

    def text(self, encoding: str = "utf-8") -> list[str]:
        """Items of bytes, such as lines, as strings.

        Raises:
            TypeError: they are not bytes.
            UnicodeDecodeError: one is not text of this encoding.
        """
        if self.values.dtype != np.uint8 or self.values.ndim != 1:
            raise TypeError(f"items of {self.values.dtype} are not text")
        return [item.tobytes().decode(encoding) for item in self]

    def padded(self, fill: float = 0) -> Array:
        """All items, filled up to the length of the longest; shape (items, longest, ...)."""
        lengths = np.diff(self.offsets)
        longest = int(lengths.max(initial=0))
        padded = np.full((len(self), longest, *self.values.shape[1:]), fill, self.values.dtype)
        padded[np.arange(longest) < lengths[:, None]] = self.values
        return padded


Column: TypeAlias = Array | Ragged


@dataclass(slots=True, eq=False, repr=False)
class Batch(Mapping[str, Column]):
    """Rows of one global batch: a mapping of fields to arrays, and where it belongs.

    Attributes:
        columns: arrays by field.
        token: to resume with after it.
        sequence: its number among all batches of the pipeline.
        epoch: that it belongs to.
        count: rows of the global batch that hold items; any after them are padding.
        rows: which rows of the global batch these are: first, and one after the last.
    """

    columns: Mapping[str, Column]
    _: KW_ONLY
    token: str
    sequence: int
    epoch: int
    count: int
    rows: tuple[int, int]

    # Mappings compare values, but arrays have no single truth value.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError as e:
            raise KeyError(f"there is no field {name!r}, only {', '.join(self)}") from e

    def __getattr__(self, name: str) -> NoReturn:
        known = name != "columns" and name in self.columns  # which a copy in the making lacks
        hint = f": the field is batch[{name!r}]" if known else ""
        raise AttributeError(f"a batch has no attribute {name!r}{hint}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"<Batch {self.sequence} of epoch {self.epoch}: {', '.join(self)}, rows {self.rows}>"


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of an epoch; the token of its last batch resumes after it."""
