"""Wrapped stages look like the stages inside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.arrays import Indices
from core.iterate.base import (
    Block,
    Field,
    Indexed,
    Sequential,
    State,
)
from core.iterate.wrapped import Profile, WrappedIndexed, WrappedSequential, metered, timed

SCHEMA = (Field("x", np.dtype("<i8")), Field("words", np.dtype(np.uint8), ragged=True))
OFFSETS = np.array([0, 2, 5], np.int64)

Wrap = Callable[[Any], Any]


class Source(Indexed):
    schema = SCHEMA
    length = 2

    def at(self, positions: Indices) -> Block:
        return {"x": positions}


class Knowing(Source):
    def element_offsets(self, field: str) -> Indices | None:
        return OFFSETS if field == "words" else None


class Endless(Sequential):
    schema = SCHEMA
    initial = (7, 8)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        return {"x": np.full(count, state[0])}, (state[0] + count, state[1])


def plain(block: Block) -> list[int]:
    column = block["x"]
    assert isinstance(column, np.ndarray)
    found: list[int] = column.tolist()
    return found


def in_profile(stage: Any) -> Any:  # noqa: ANN401 - a stage of either kind
    return timed(stage, Profile(time.monotonic), "stage")


def in_budget(stage: Any) -> Any:  # noqa: ANN401 - as above
    return metered(stage, "stage")


@pytest.mark.parametrize("wrap", [in_profile, in_budget])
def test_an_indexed_stage_looks_like_the_one_inside(wrap: Wrap) -> None:
    for inner, offsets in ((Source(), None), (Knowing(), OFFSETS)):
        stage = wrap(inner)
        assert isinstance(stage, WrappedIndexed)
        assert (stage.schema, stage.length) == (SCHEMA, 2)
        assert stage.inner is inner
        assert stage.element_offsets("words") is offsets
        assert stage.element_offsets("x") is None
        assert plain(stage.at(np.array([1, 0]))) == [1, 0]


@pytest.mark.parametrize("wrap", [in_profile, in_budget])
def test_a_sequential_stage_looks_like_the_one_inside(wrap: Wrap) -> None:
    stage = wrap(Endless())
    assert isinstance(stage, WrappedSequential)
    assert (stage.schema, stage.initial) == (SCHEMA, (7, 8))
    block, state = stage.take(stage.initial, 2)
    assert plain(block) == [7, 7]
    assert state == (9, 8)
