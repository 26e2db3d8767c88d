"""Mixes by quota and by random draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PipelineError
from core.iterate.base import Block, InOrder, Sequential, State
from core.iterate.columns import block_length
from core.iterate.mapping import Map, named_map
from core.iterate.mixing import Mix, RandomMix
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import drain, first
from tests.core.iterate.items import Counter, one


def test_quotas() -> None:
    a, b = Counter(6), Map(Counter(9), lambda block, _: {"index": np.asarray(block["index"]) + 100})
    assert first(Mix([a, b], weights=[1, 2]), 99) == [
        100,
        0,
        101,
        102,
        1,
        103,
        104,
        2,
        105,
        106,
        3,
        107,
        108,
        4,
    ]
    everything = first(Mix([a, b], weights=[10, 20], stop="all"), 99)
    assert everything[-1] == 5
    assert sorted(everything) == [*range(6), *range(100, 109)]
    cycle = Mix([a, b], stop="cycle")
    assert cycle.length is None
    assert first(cycle, 20)[::2] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert first(Mix([a, b], weights=[1, 0]), 99) == list(range(6))
    assert first(Mix([Counter(0), a], stop="all"), 99) == list(range(6))
    assert Mix([Counter(), a], stop="all").length is None
    assert Mix([Counter(), a]).length == 13


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 7)), min_size=1, max_size=5))
def test_quotas_are_kept_and_nothing_is_lost(inputs: list[tuple[int, int]]) -> None:
    sources = [
        Map(Counter(n), lambda b, _, j=j: {"index": np.asarray(b["index"]) + 1000 * j})  # type: ignore[misc]
        for j, (n, _) in enumerate(inputs)
    ]
    weights = [weight for _, weight in inputs]
    everything = first(Mix(sources, weights=weights, stop="all"), 500)
    assert sorted(everything) == [1000 * j + i for j, (n, _) in enumerate(inputs) for i in range(n)]
    some = first(Mix(sources, weights=weights), 500)
    assert everything[: len(some)] == some
    for k in range(1, len(some) + 1):
        for j, weight in enumerate(weights):
            share = k * weight / sum(weights)
            assert abs(sum(x // 1000 == j for x in some[:k]) - share) < len(inputs)


class Reading(Sequential):
    """Items one after another, and how many were read."""

    def __init__(self, items: int) -> None:
        self._items = InOrder(Counter(items))
        self.schema, self.initial = self._items.schema, self._items.initial
        self.read = 0

    def take(self, state: State, count: int) -> tuple[Block, State]:
        block, after = self._items.take(state, count)
        self.read += block_length(block)
        return block, after


@pytest.mark.parametrize(("stop", "ahead"), [("first", 0), ("all", 4)])
def test_random_mixes_read_items_once(stop: str, ahead: int) -> None:
    inputs = [Reading(10_000), Reading(10_000)]
    mix = RandomMix(inputs, stop=stop)
    state = mix.initial
    for calls in range(1, 4):
        block, state = mix.take(state, 1000)
        assert block_length(block) == 1000
        # To see whether an input goes on, its next item is read.
        assert sum(stage.read for stage in inputs) <= calls * (1000 + ahead)


def test_random_mixes() -> None:
    n = 4000
    sources = [
        Map(Counter(n), lambda b, _, j=j: {"index": np.asarray(b["index"]) + n * j})  # type: ignore[misc]
        for j in range(3)
    ]
    given_items = first(RandomMix(sources, weights=[1, 0, 3], seed=3), 2000)
    assert 400 < sum(x < n for x in given_items) < 600
    assert not any(n <= x < 2 * n for x in given_items)
    for j in range(3):
        mine = [x - n * j for x in given_items if x // n == j]
        assert mine == list(range(len(mine)))
    everything = first(RandomMix(sources, stop="all", seed=3), 3 * n + 9)
    assert sorted(everything) == list(range(3 * n))
    short = RandomMix([Counter(5), Counter(5)], seed=2)
    assert 5 <= len(drain(short)) <= 10
    assert len(first(RandomMix([Counter(2), Counter(3)], stop="cycle"), 50)) == 50


def test_draws_of_mixes_and_maps_are_frozen() -> None:
    stage = RandomMix([Counter(5), Counter(9)], weights=[2, 3], stop="all", seed=6)
    assert [x for (x,) in drain(stage)] == [0, 1, 0, 1, 2, 2, 3, 4, 5, 3, 4, 6, 7, 8]
    numbers = one(named_map(Counter(3), "uniform", {}, seed=7), "random")
    assert numbers == [0.8400755493449802, 0.10213281548623132, 0.42342756008846505]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x": np.zeros(3, "<f4")}, "x is int64 in the first, float32 in another"),
        ({"x": np.zeros((3, 2), int)}, "x is int64 in the first, int64 of shape [2] in another"),
        ({"z": np.zeros(3, int)}, "x is int64 in the first, missing in another"),
        (
            {"x": np.zeros(3, int), "y": np.zeros(3)},
            "y is missing in the first, float64 in another",
        ),
    ],
)
def test_how_the_fields_of_inputs_differ(other: Block, words: str) -> None:
    with pytest.raises(PipelineError, match="cannot be mixed") as caught:
        Mix([ArraySource({"x": np.arange(3)}), ArraySource(other)])
    assert words in caught.value.message
    assert "cast changes a dtype" in str(caught.value.hint)
    one, two = np.zeros(3, int), np.zeros(3)
    with pytest.raises(PipelineError, match=r"order x, y in the first, y, x in another"):
        Mix([ArraySource({"x": one, "y": two}), ArraySource({"y": two, "x": one})])
