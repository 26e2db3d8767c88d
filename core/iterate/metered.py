"""Stages under the budget of whoever reads them.

Every stage of a pipeline is wrapped once, so each call of one stage by another is a point where
the work is counted and may be stopped. While a stage works, it holds what the stages below it
returned and what it copied; when it returns, all of that is released, and the block it returned
is held by its caller.
"""

from __future__ import annotations

from typing import overload

from ..arrays import Indices
from ..budget import UNLIMITED, current
from .base import (
    Block,
    Indexed,
    Schema,
    Sequential,
    Stage,
    State,
    WrappedIndexed,
    WrappedSequential,
)
from .columns import block_bytes

_INDEX_BYTES = 8
_INDICES = 3
"""Arrays of positions of an indexed stage while it reads: those asked for, and two made of them."""


def _fixed_bytes(schema: Schema) -> int:
    """Bytes of one item without the elements of ragged fields."""
    return sum(field.nbytes or _INDEX_BYTES for field in schema)


class MeteredIndexed(WrappedIndexed):
    """An indexed stage under the current budget.

    Args:
        inner: the stage.
        name: of the stage, for messages.
    """

    def __init__(self, inner: Indexed, name: str) -> None:
        super().__init__(inner)
        self._name = name
        self._item_bytes = _fixed_bytes(inner.schema)

    def at(self, positions: Indices) -> Block:
        """Read items under the budget.

        Raises:
            WorkStoppedError: the budget is exceeded, or the work was cancelled.
        """
        budget = current()
        if budget is UNLIMITED:
            return self.inner.at(positions)
        before, count = budget.held, len(positions)
        budget.spend(self._name, count)
        # The items must fit, but only what comes is held.
        indices = count * _INDICES * _INDEX_BYTES
        budget.hold(self._name, indices + count * self._item_bytes)
        budget.release(count * self._item_bytes)
        try:
            block = self.inner.at(positions)
        finally:
            budget.release(budget.held - before)
        budget.hold(self._name, block_bytes(block))
        return block


class MeteredSequential(WrappedSequential):
    """A sequential stage under the current budget.

    Args:
        inner: the stage.
        name: of the stage, for messages.
    """

    def __init__(self, inner: Sequential, name: str) -> None:
        super().__init__(inner)
        self._name = name

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items under the budget.

        Raises:
            WorkStoppedError: the budget is exceeded, or the work was cancelled.
        """
        budget = current()
        if budget is UNLIMITED:
            return self.inner.take(state, count)
        # How many items are left is unknown: only what comes is held.
        before = budget.held
        budget.spend(self._name, count)
        try:
            block, after = self.inner.take(state, count)
        finally:
            budget.release(budget.held - before)
        budget.hold(self._name, block_bytes(block))
        return block, after


@overload
def metered(stage: Indexed, name: str) -> Indexed: ...
@overload
def metered(stage: Sequential, name: str) -> Sequential: ...
def metered(stage: Stage, name: str) -> Stage:
    """Put a stage under the budget of whoever reads it."""
    if isinstance(stage, Indexed):
        return MeteredIndexed(stage, name)
    return MeteredSequential(stage, name)
