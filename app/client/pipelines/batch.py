"""Batches of a pipeline: mappings of fields to arrays, and their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

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

    def padded(self, fill: float = 0) -> Array:
        """All items, filled up to the length of the longest; shape (items, longest, ...)."""
        lengths = np.diff(self.offsets)
        longest = int(lengths.max(initial=0))
        padded = np.full((len(self), longest, *self.values.shape[1:]), fill, self.values.dtype)
        padded[np.arange(longest) < lengths[:, None]] = self.values
        return padded


Column: TypeAlias = Array | Ragged


class Batch(Mapping[str, Column]):
    """Rows of one global batch: a mapping of fields to arrays, and where it belongs.

    Attributes:
        token: to resume with after it.
        sequence: its number among all batches of the pipeline.
        epoch: that it belongs to.
        count: rows of the global batch that hold items; any after them are padding.
        rows: which rows of the global batch these are: first, and one after the last.
    """

    __slots__ = ("_columns", "count", "epoch", "rows", "sequence", "token")

    def __init__(  # noqa: PLR0913 - what a frame holds
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

    # Mappings compare values, but arrays have no single truth value.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def bare(self) -> Batch:
        """The same batch without its values."""
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
    """The end of an epoch; the token of its last batch resumes after it."""
