"""Iterators: their states resume, and no other state is taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.arrays import Indices
from core.errors import OptionError, StateError
from core.iterate.base import Block, Indexed, Stage, in_order
from core.iterate.combine import zipped
from core.iterate.iterator import BlockIterator, Checkpointed, ItemIterator, StepIterator
from core.iterate.limits import Head
from core.iterate.mapping import named_filter, named_map, randomly_mapped
from core.iterate.mixing import mixed
from core.iterate.positions import Permute, Range, Repeat
from core.iterate.shuffle import ReservoirShuffle
from core.iterate.sources import ArraySource, CounterSource
from core.iterate.split import KeySplit
from core.iterate.wrapped import Profile, timed
from tests.core.pipelines_made import Stages, array_source, built, built_over, same

STAGES: Stages = [
    {"op": "source", "dataset": "a"},
    {"op": "permute", "seed": 3, "epochs": 2},
    {"op": "filter", "pred": "less", "args": {"field": "x", "value": 20}},
    {"op": "batch", "size": 4},
]


def stages() -> list[Stage]:
    permuted = Permute(CounterSource(29), seed=5)
    return [
        CounterSource(29),
        permuted,
        ReservoirShuffle(CounterSource(29), size=6, seed=1),
        named_filter(permuted, "less", {"field": "index", "value": 20}),
    ]


def iterators(which: int, identity: bytes = b"one") -> list[Checkpointed[Any]]:
    stage = stages()[which]
    return [
        BlockIterator(stage, size=4, identity=identity),
        ItemIterator(stage, read=5, identity=identity),
        ItemIterator(stage, read=1, identity=identity),
        StepIterator(built(STAGES), identity=identity),
        StepIterator(built(STAGES), identity=identity, rank=1, world=3),
    ]


def shown(item: Any) -> Any:  # noqa: ANN401 - a step, a block or an item
    block: Block = getattr(item, "block", item)
    return {name: np.asarray(block[name]).tolist() for name in block if name != "r"}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("kind", range(5))
def test_every_state_goes_on_exactly(which: int, kind: int) -> None:
    iterator = iterators(which)[kind]
    states = [json.loads(json.dumps(iterator.getstate()))]
    items = []
    for item in iterator:
        items.append(shown(item))
        states.append(json.loads(json.dumps(iterator.getstate())))
    assert items
    for k, state in enumerate(states):
        fresh = iterators(which)[kind]
        fresh.setstate(state)
        assert [shown(item) for item in fresh] == items[k:]
        iterator.setstate(state)
        assert [shown(item) for item in iterator] == items[k:]
    iterator.setstate(None)
    assert [shown(item) for item in iterator] == items


@pytest.mark.parametrize("kind", range(5))
def test_behind_the_end_it_can_be_used(kind: int) -> None:
    iterator = iterators(2)[kind]
    count = sum(1 for _ in iterator)
    state = iterator.getstate()
    assert next(iterator, None) is None
    assert iterator.getstate() == state
    other = iterators(2)[kind]
    other.setstate(state)
    assert next(other, None) is None
    other.setstate(None)
    assert sum(1 for _ in other) == count
    assert iter(other) is other


@pytest.mark.parametrize("kind", range(5))
def test_other_states_are_refused(kind: int) -> None:
    iterator = iterators(1)[kind]
    next(iterator)
    good = iterator.getstate()
    size = len(good["state"])
    wrong: list[Any] = [
        7, [], {}, {**good, "more": 1}, {k: v for k, v in good.items() if k != "order"},
        {**good, "version": 2}, {**good, "version": 0}, {**good, "version": "1"},
        {**good, "order": 2}, {**good, "version": True},
        {**good, "identity": b"two".hex()}, {**good, "identity": None},
        {**good, "state": "0"}, {**good, "state": None}, {**good, "state": [0] * (size + 1)},
        {**good, "state": [-1] * size}, {**good, "state": [0.0] * size},
        {**good, "state": [1 << 63] * size}, {**good, "state": [1 << 62] * size},
    ]  # fmt: skip
    for state in wrong:
        with pytest.raises(StateError):
            iterator.setstate(state)
        assert iterator.getstate() == good
    iterator.setstate(good)


def other_data() -> ArraySource:
    """As long as the data of test pipelines, and other items."""
    columns = dict(array_source("a").at(np.arange(23)))
    columns["x"] = np.arange(23) + 1
    return ArraySource(columns)


def test_states_over_other_data_of_the_same_length_are_refused_unasked() -> None:
    """Sources that know their data need no identity given."""
    one, other = array_source("a"), other_data()
    for make in (
        lambda source: BlockIterator(Permute(source), size=4),
        lambda source: ItemIterator(zipped([Permute(source), CounterSource(23)])),
        lambda source: BlockIterator(mixed([source, source], order="random"), size=4),
        lambda source: StepIterator(built_over(STAGES, source)),
    ):
        first = make(one)
        next(first)
        state = json.loads(json.dumps(first.getstate()))
        with pytest.raises(StateError, match="of other data"):
            make(other).setstate(state)
        fresh = make(array_source("a"))
        fresh.setstate(state)
        assert shown(next(fresh)) == shown(next(first))


def test_a_state_of_a_pipeline_with_another_batch_size_is_refused_unasked() -> None:
    first = StepIterator(built(STAGES))
    next(first)
    larger = StepIterator(built([*STAGES[:-1], {"op": "batch", "size": 5}]))
    with pytest.raises(StateError, match="of another pipeline"):
        larger.setstate(first.getstate())


CHAINS: list[Callable[[Indexed], Stage]] = [
    lambda source: Repeat(source, epochs=1),
    Permute,
    lambda source: Permute(source, seed=3),
    lambda source: Permute(source, seed=4),
    lambda source: Range(Permute(source, seed=3), start=1),
    lambda source: ReservoirShuffle(source, size=10),
    lambda source: ReservoirShuffle(source, size=5),
    lambda source: zipped([Permute(source, seed=3)], names=["a"]),
    lambda source: mixed([source, source], order="random"),
    lambda source: mixed([source, Permute(source)], order="random"),
    lambda source: Head(in_order(source), 4),
    lambda source: Head(in_order(source), 10),
    lambda source: KeySplit(source, "index", fraction=0.4, part="train"),
    lambda source: KeySplit(source, "index", fraction=0.4, part="validation"),
    lambda source: named_filter(source, "greater", {"field": "index", "value": 1}),
    lambda source: named_filter(source, "greater", {"field": "index", "value": 5}),
    lambda source: named_map(source, "scale", {"field": "index", "mean": 1.0}),
    lambda source: named_map(source, "scale", {"field": "index", "mean": 2.0}),
    lambda source: randomly_mapped(source, _kept, seed=1),
    lambda source: randomly_mapped(source, _kept, seed=2),
]


def _kept(block: Block, _draws: object) -> Block:
    return block


def test_states_of_other_stages_over_the_same_data_are_refused_unasked() -> None:
    source = CounterSource(20)
    for k, make in enumerate(CHAINS):
        first = BlockIterator(make(source), size=4)
        state = json.loads(json.dumps(first.getstate()))
        for other in (each for j, each in enumerate(CHAINS) if j != k):
            with pytest.raises(StateError, match="of another pipeline"):
                BlockIterator(other(source), size=4).setstate(state)
            with pytest.raises(StateError, match="of another pipeline"):
                BlockIterator(source, size=4).setstate(state)
            with pytest.raises(StateError, match="of another pipeline"):
                first.setstate(BlockIterator(source, size=4).getstate())
        BlockIterator(make(CounterSource(20)), size=5).setstate(state)
        # Those that were saved before have the data alone.
        first.setstate({**state, "identity": state["identity"].partition(".")[0]})


def test_a_default_that_is_spelt_out_and_a_clock_make_no_other_stage() -> None:
    source = CounterSource(9)
    state = BlockIterator(Permute(source), size=2).getstate()
    same = timed(Permute(inner=source, seed=0, epochs=1), Profile(float), "x")
    BlockIterator(same, size=2).setstate(state)
    # Given by place or by name.
    state = BlockIterator(Head(in_order(source), 4), size=2).getstate()
    BlockIterator(Head(in_order(source), count=4), size=2).setstate(state)


def test_a_source_without_a_fingerprint_is_of_no_data() -> None:
    class Plain(Indexed):
        schema = CounterSource(5).schema
        length = 5

        def at(self, positions: Indices) -> Block:
            return CounterSource(5).at(positions)

    assert BlockIterator(Plain(), size=2).getstate()["identity"].startswith(".")
    assert BlockIterator(CounterSource(5), size=2, identity=b"").getstate()["identity"] == ""


def test_a_state_of_the_future_says_so() -> None:
    iterator = iterators(0)[0]
    with pytest.raises(StateError, match="later release"):
        iterator.setstate({**iterator.getstate(), "version": 9})


@pytest.mark.parametrize("kind", range(5))
def test_closed_it_gives_nothing(kind: int) -> None:
    iterator = iterators(1)[kind]
    state = iterator.getstate()
    with iterator:
        next(iterator)
    for use in (lambda: next(iterator), lambda: iterator.setstate(state)):
        with pytest.raises(OptionError, match="closed"):
            use()
    iterator.close()


def test_closing_reaches_the_source() -> None:
    class Closing(CounterSource):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    source = Closing(9)
    permuted: Indexed = Permute(source)
    BlockIterator(named_filter(permuted, "less", {"field": "index", "value": 5}), size=2).close()
    assert source.closed == 1


def test_sizes_that_cannot_be() -> None:
    source = CounterSource(3)
    with pytest.raises(OptionError):
        BlockIterator(source, size=0)
    for read in (0, (1 << 20) + 1):
        with pytest.raises(OptionError):
            ItemIterator(source, read=read)


def test_ranks_share_what_one_has() -> None:
    whole = list(StepIterator(built(STAGES)))
    ranks = [list(StepIterator(built(STAGES), rank=r, world=2)) for r in range(2)]
    for k, step in enumerate(whole):
        joined = np.concatenate([np.asarray(rank[k].block["x"]) for rank in ranks])
        assert np.array_equal(joined, np.asarray(step.block["x"]))
    assert same(whole[0].block, next(StepIterator(built(STAGES))).block)


def test_steps_of_what_is_no_pipeline_are_refused_in_words() -> None:
    source: Any = CounterSource(3)
    with pytest.raises(TypeError, match="not a CounterSource: ItemIterator and"):
        StepIterator(source)
