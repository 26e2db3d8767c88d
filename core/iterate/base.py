"""Blocks, and the two kinds of stages that produce them.

A *block* holds some items at once, as a dict of columns of equal length. A *stage* produces
blocks:

* An :class:`Indexed` stage has no state. Item k is a function of k, so any position can be
  asked for, in any order.
* A :class:`Sequential` stage maps a state to items and the next state. A state is a few
  non-negative integers that the caller holds; the same state always produces the same
  items, however it was reached.

Reading changes neither kind, so one stage serves any number of readers and threads. A stage
may cache things from one call to the next, but only to save time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Indices

State = tuple[int, ...]
"""Non-negative integers below 2**63."""


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A column of items of different lengths, concatenated.

    Item k is ``values[offsets[k]:offsets[k + 1]]``.
    """

    values: Array
    """Shape (total, ...)."""
    offsets: Indices
    """Shape (items + 1,), int64, from 0, never descending."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Array:
        item: Array = self.values[self.offsets[index] : self.offsets[index + 1]]
        return item


Column = Array | Ragged
Block = Mapping[str, Column]
"""Columns by field name; every column has one entry per item."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the items of a stage."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    """Shape of one item, or of one element of an item if the field is ragged."""
    ragged: bool = False

    @property
    def nbytes(self) -> int | None:
        """Bytes of one item; None if items differ."""
        if self.ragged:
            return None
        return self.dtype.itemsize * math.prod(self.shape)


Schema = tuple[Field, ...]


class Indexed(ABC):
    """A stage with random access."""

    schema: Schema
    """Fields of the items."""
    length: int | None
    """Number of items; None if endless."""

    @abstractmethod
    def at(self, positions: Indices) -> Block:
        """The items at some positions, in the order given; positions may repeat.

        Args:
            positions: shape (k,), each from 0 to length - 1.

        Raises:
            PositionError: a position is out of range.
        """


class Sequential(ABC):
    """A stage whose items come one after another."""

    schema: Schema
    """Fields of the items."""
    initial: State
    """The state before the first item; all states have its length."""

    @abstractmethod
    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The items that follow a state, and the state after them.

        Args:
            state: ``initial``, or a state that an earlier call returned.
            count: number of items, at least 1; only at the end are there fewer.

        Raises:
            StateError: it cannot be a state of this stage.
        """


Stage = Indexed | Sequential
