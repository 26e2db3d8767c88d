"""Reading stages to their ends in different ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.iterate.base import Block, Column, Indexed, Ragged, Stage, State, in_order
from core.iterate.columns import block_length, concatenate


def values(column: Column) -> list[Any]:
    """Items of a column as lists and numbers."""
    if isinstance(column, Ragged):
        return [column[k].tolist() for k in range(len(column))]
    listed: list[Any] = column.tolist()
    return listed


def rows(block: Block) -> list[tuple[Any, ...]]:
    """Items of a block as tuples."""
    return list(zip(*(values(column) for column in block.values()), strict=True))


def drain(stage: Stage, count: int = 7, limit: int = 10_000) -> list[tuple[Any, ...]]:
    """All items up to a limit, ``count`` at a time."""
    reader = in_order(stage)
    state, blocks, total = reader.initial, [], 0
    while total < limit:
        block, state = reader.take(state, min(count, limit - total))
        total += block_length(block)
        blocks.append(block)
        if block_length(block) < count:
            break
    return rows(concatenate(blocks, reader.schema))


def states(stage: Stage, count: int) -> list[tuple[State, list[tuple[Any, ...]]]]:
    """The state before each of some items, and the item."""
    reader = in_order(stage)
    state, found = reader.initial, []
    for _ in range(count):
        block, behind = reader.take(state, 1)
        found.append((state, rows(block)))
        state = behind
    return found


def first(stage: Stage, count: int) -> list[Any]:
    """The first field of the first items."""
    return [row[0] for row in drain(stage, count, count)]


def at(stage: Indexed, *positions: int) -> list[Any]:
    """The first field at some positions."""
    return [row[0] for row in rows(stage.at(np.array(positions, np.int64)))]
