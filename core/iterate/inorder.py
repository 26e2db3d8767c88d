"""One interface for both kinds of stages: items in order, each with a position.

:func:`in_order` wraps a stage so that its state begins with the position of the next item.
Stages on top can then number items and skip them, whether the stage below is indexed or
sequential.
"""

from __future__ import annotations

import numpy as np

from ..errors import StateError
from .base import Block, Indexed, Sequential, Stage, State
from .sources import MAX_ITEMS

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
    """Wrap a stage so that it is read in order and its state begins with the position."""
    if isinstance(stage, Indexed):
        return InOrder(stage)
    if isinstance(stage, Counted):
        return stage
    return Counted(stage)
