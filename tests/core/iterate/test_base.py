"""States are checked, and every stage can be read in order from every position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.errors import StateError
from core.iterate.base import (
    MAX_ITEMS,
    Block,
    Counted,
    InOrder,
    Sequential,
    State,
    check_state,
    in_order,
    is_endless,
)
from core.iterate.limits import Head
from core.iterate.shuffle import ReservoirShuffle
from core.iterate.sources import CounterSource


@pytest.mark.parametrize("state", [(0,), (2**63 - 1,), (5,)])
def test_states_that_can_be(state: State) -> None:
    check_state(state, (0,))


WRONG: list[Any] = [
    None,
    5,
    [5],
    "x",
    (),
    (1, 2),
    (-1,),
    (2**63,),
    (True,),
    (1.0,),
    (None,),
    (np.int64(5),),
]


@pytest.mark.parametrize("state", WRONG)
def test_states_that_cannot_be(state: Any) -> None:  # noqa: ANN401
    with pytest.raises(StateError, match="1 non-negative integers"):
        check_state(state, (0,))


def test_every_number_of_a_state_is_looked_at() -> None:
    check_state((1, 2, 3), (0, 0, 0))
    for wrong in ((-1, 2, 3), (1, -2, 3), (1, 2, -3), (1, 2)):
        with pytest.raises(StateError):
            check_state(wrong, (0, 0, 0))


def numbers(block: Block) -> list[int]:
    return [int(number) for number in np.asarray(block["index"])]


def test_an_indexed_stage_from_every_position() -> None:
    stage = in_order(CounterSource(5))
    assert isinstance(stage, InOrder)
    assert stage.initial == (0,)
    for start in range(6):
        block, after = stage.take((start,), 3)
        assert numbers(block) == list(range(start, min(start + 3, 5)))
        assert after == (min(start + 3, 5),)
    assert stage.skip((1,), 3) == (4,)
    assert stage.skip((1,), 0) == (1,)
    for state in ((6,), (-1,), (0, 0)):
        with pytest.raises(StateError):
            stage.take(state, 1)


def test_an_endless_stage_ends_at_the_last_number() -> None:
    stage = in_order(CounterSource())
    assert is_endless(stage)
    assert stage.endless
    block, after = stage.take((MAX_ITEMS - 2,), 5)
    assert numbers(block) == [MAX_ITEMS - 2, MAX_ITEMS - 1]
    assert after == (MAX_ITEMS,)
    with pytest.raises(StateError):
        stage.take((MAX_ITEMS + 1,), 1)


class Plain(Sequential):
    """Counts from its state on, up to 4, and cannot skip."""

    schema = CounterSource(1).schema
    initial = (0,)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        stop = min(state[0] + count, 4)
        return CounterSource(9).at(np.arange(state[0], stop)), (stop,)


def test_a_sequential_stage_is_counted() -> None:
    stage = in_order(Plain())
    assert isinstance(stage, Counted)
    assert in_order(stage) is stage
    assert stage.initial == (0, 0)
    assert not stage.endless
    block, state = stage.take((0, 0), 3)
    assert (numbers(block), state) == ([0, 1, 2], (3, 3))
    block, state = stage.take(state, 3)
    assert (numbers(block), state) == ([3], (4, 4))
    block, state = stage.take(state, 3)
    assert (numbers(block), state) == ([], (4, 4))
    assert stage.skip((1, 1), 2) == (3, 3)
    assert stage.skip((1, 1), 0) == (1, 1)
    with pytest.raises(StateError, match="2 non-negative integers"):
        stage.take((0,), 1)


def test_a_stage_that_can_skip_does() -> None:
    stage = in_order(ReservoirShuffle(CounterSource(100), size=5))
    assert stage.skip(stage.initial, 30) == stage.take(stage.initial, 30)[1] == (30, 30)
    assert is_endless(in_order(ReservoirShuffle(CounterSource(), size=5)))
    assert not is_endless(stage)


def test_the_head_of_a_stage() -> None:
    head = Head(Plain(), 3)
    assert head.initial == (0, 0)
    block, state = head.take((0, 0), 2)
    assert (numbers(block), state) == ([0, 1], (2, 2))
    block, state = head.take(state, 2)
    assert (numbers(block), state) == ([2], (3, 3))
    block, state = head.take(state, 2)
    assert (numbers(block), state) == ([], (3, 3))
    with pytest.raises(StateError, match="4 items"):
        head.take((4, 4), 1)
