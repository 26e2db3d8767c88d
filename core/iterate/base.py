"""Blocks, the two kinds of stages that produce them, and one way to read both in order.

A *block* holds some items at once, as a dict of columns of equal length. A *stage* produces
blocks:

* An :class:`Indexed` stage has no state. Item k is a function of k, so any position can be
  asked for, in any order.
* A :class:`Sequential` stage maps a state to items and the next state. A state is a few
  non-negative integers that the caller holds; the same state always produces the same
  items, however it was reached.

:func:`in_order` wraps a stage of either kind so that its state begins with the position of the
next item: stages on top can then number items and skip them.

Reading changes neither kind, so one stage serves any number of readers and threads. A stage
may cache things from one call to the next, but only to save time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..arrays import Array, Indices
from ..errors import StateError

MAX_ITEMS = 2**62
"""Most items; keeps the sum of two positions below 2**63."""

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
    def words(self) -> str:
        """What its values are, for people."""
        shape = f" of shape {list(self.shape)}" if self.shape else ""
        return f"{'ragged ' * self.ragged}{self.dtype}{shape}"

    @property
    def nbytes(self) -> int | None:
        """Bytes of one item; None if items differ."""
        if self.ragged:
            return None
        return self.dtype.itemsize * math.prod(self.shape)


Schema = tuple[Field, ...]


_PLAIN = (str, int, float, tuple, list, Mapping)


class _Given(ABC):
    """Keeps the options that a stage was made with."""

    given: Mapping[str, object]

    def __new__(cls, *arguments: object, **options: object) -> Self:
        """Make a stage."""
        instance = super().__new__(cls)
        code = getattr(cls.__init__, "__code__", None)
        names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
        values = zip(names, arguments, strict=False)
        # Others are data or functions, which no state names.
        plain = {name: value for name, value in values if isinstance(value, _PLAIN)}
        instance.__dict__["given"] = plain | options
        return instance

    def naming(self, **options: object) -> Self:
        """Keep further options, of the function that this stage applies."""
        self.__dict__["given"] = {**self.given, **options}
        return self


class Indexed(_Given):
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


class Sequential(_Given):
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


_MAX_VALUE = 2**63


def check_state(state: object, like: State) -> None:
    """Check that a state has as many integers as another.

    Raises:
        StateError: it is not a tuple of that many integers from 0 to 2**63 - 1.
    """
    if not isinstance(state, tuple) or len(state) != len(like) or not all(map(_counts, state)):
        raise StateError(f"a state has {len(like)} non-negative integers here, not {state!r}")


def _counts(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_VALUE


def is_endless(stage: Stage) -> bool:
    """Whether a stage is known to be endless."""
    if isinstance(stage, Indexed):
        return stage.length is None
    return isinstance(stage, Counting) and stage.endless


class Counting(Sequential):
    """A sequential stage that can skip items and may know that it is endless.

    Its state begins with the position of the next item.
    """

    endless: bool = False
    """Whether the stage is known to be endless."""

    def skip(self, state: State, count: int) -> State:
        """The state ``count`` items further on; that many items must remain."""
        return self.take(state, count)[1] if count else state


class InOrder(Counting):
    """Reads an indexed stage from its first item to its last; the state is the position."""

    def __init__(self, inner: Indexed) -> None:
        self.inner = inner
        self.schema = self.inner.schema
        self.initial = (0,)
        self.endless = self.inner.length is None

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read at the position and advance it.

        Raises:
            StateError: the position is past the end.
        """
        check_state(state, self.initial)
        start = state[0]
        end = MAX_ITEMS if self.inner.length is None else self.inner.length
        if start > end:
            raise StateError(f"the state is at position {start} of {end} items")
        stop = min(start + count, end)
        return self.inner.at(np.arange(start, stop, dtype=np.int64)), (stop,)

    def skip(self, state: State, count: int) -> State:
        """Add to the position."""
        return (state[0] + count,)


class Counted(Counting):
    """Counts the items of a sequential stage; the count precedes the state of the stage."""

    def __init__(self, inner: Sequential) -> None:
        self.inner = inner
        self.schema = self.inner.schema
        self.initial = (0, *self.inner.initial)
        self.endless = is_endless(self.inner)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read from the inner stage and add to the count."""
        check_state(state, self.initial)
        block, after = self.inner.take(state[1:], count)
        for column in block.values():
            return block, (state[0] + len(column), *after)
        return block, (state[0], *after)

    def skip(self, state: State, count: int) -> State:
        """Skip in the inner stage if it can; read the items otherwise."""
        if not isinstance(self.inner, Counting):
            return super().skip(state, count)
        return (state[0] + count, *self.inner.skip(state[1:], count))


def in_order(stage: Stage) -> Counting:
    """Wrap a stage so that it is read in order and its state begins with the position.

    Raises:
        TypeError: it has no items one by one.
    """
    if isinstance(stage, Indexed):
        return InOrder(stage)
    if isinstance(stage, Counted):
        return stage
    if not hasattr(stage, "take"):
        raise TypeError(f"a {type(stage).__name__} is no stage of items")
    return Counted(stage)
