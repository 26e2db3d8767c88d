"""What flows through stages, and the two kinds of stages there are.

A *block* is some items at once: a dict of columns of equal length. A *stage* gives blocks.

* An :class:`Indexed` stage has no state: item k is a function of k, so that any position
  can be asked for in any order.
* A :class:`Sequential` stage goes from state to state. Its state is a few non-negative
  integers and belongs to the caller: the same state always gives the same items, however
  it was reached.

Neither changes when it is read, so one stage serves any number of readers and threads;
what it may keep from one call to the next is only there to be fast.
"""

from __future__ import annotations

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
    """Items of differing length, one after another.

    Item k is ``values[offsets[k]:offsets[k + 1]]``.
    """

    values: Array
    """Shape (total, ...)."""
    offsets: Indices
    """Shape (items + 1,), from 0, never descending."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Array:
        item: Array = self.values[self.offsets[index] : self.offsets[index + 1]]
        return item


Column = Array | Ragged
Block = Mapping[str, Column]
"""Items by field; every column has one entry per item."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the items of a stage."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    """Of one item; of one element of it if ragged."""
    ragged: bool = False

    @property
    def nbytes(self) -> int | None:
        """Bytes of one item; None if it differs."""
        if self.ragged:
            return None
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


Schema = tuple[Field, ...]


class Indexed(ABC):
    """A stage whose items can be asked for by position."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of its items."""

    @property
    @abstractmethod
    def length(self) -> int | None:
        """Number of items; None if there is no end."""

    @abstractmethod
    def at(self, positions: Indices) -> Block:
        """The items at these positions, in this order; positions may repeat.

        Args:
            positions: shape (k,), each from 0 to length - 1.

        Raises:
            PositionError: one lies outside.
        """


class Sequential(ABC):
    """A stage whose items come one after the other."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of its items."""

    @property
    @abstractmethod
    def initial(self) -> State:
        """The state before the first item; its length is that of every state."""

    @abstractmethod
    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items after a state, and the state after them.

        Args:
            state: ``initial``, or what an earlier call gave.
            count: how many, at least 1; fewer come only at the end.

        Raises:
            StateError: it cannot be a state of this stage.
        """


Stage = Indexed | Sequential
