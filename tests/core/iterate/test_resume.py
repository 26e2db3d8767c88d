"""Every stage and random compositions: any checkpoint, any block size, any order of access."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import StateError
from core.iterate.base import Indexed, Ragged, Stage, in_order
from core.iterate.batching import BucketBatch
from core.iterate.combine import zipped
from core.iterate.mapping import Filter, mapped, named_filter, named_map, randomly_mapped
from core.iterate.mixing import mixed
from core.iterate.positions import Permute, Range, Repeat, Shard, Window
from core.iterate.recurrent import Scan
from core.iterate.selecting import select_many
from core.iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import drain, rows, states
from tests.scale import examples, half

Make = Callable[[Stage], Stage]


def source(n: int) -> ArraySource:
    lengths = np.arange(n) * 7 % 5
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ArraySource(
        {
            "x": np.arange(n),
            "y": np.arange(n) / 8 - 3,
            "words": Ragged(np.arange(offsets[-1], dtype=np.int32), offsets),
        }
    )


def doubled(stage: Stage) -> Stage:
    return mapped(
        stage, lambda b: {**b, "x": b["x"] * 2 if not isinstance(b["x"], Ragged) else b["x"]}
    )


def marked(stage: Stage) -> Stage:
    return named_map(stage, "jitter", {"field": "y", "amount": 2.0}, seed=4)


def index_free(stage: Stage) -> Indexed:
    assert isinstance(stage, Indexed)
    return stage


POINTWISE: dict[str, Make] = {
    "map": doubled,
    "random_map": marked,
    "random function": lambda s: randomly_mapped(
        s, lambda b, draws: {**b, "x": draws.below(1000, "a")}, seed=1
    ),
}
INDEXED: dict[str, Make] = {
    **POINTWISE,
    "shard": lambda s: Shard(index_free(s), of=3, index=1),
    "stride": lambda s: Shard(index_free(s), of=2, index=1, mode="stride"),
    "range": lambda s: Range(index_free(s), start=min(2, index_free(s).length or 0)),
    "permute": lambda s: Permute(index_free(s), seed=3, epochs=2),
    "repeat": lambda s: Repeat(index_free(s), epochs=2),
    "block": lambda s: BlockShuffle(index_free(s), size=5, seed=2),
    "overlap": lambda s: OverlapShuffle(index_free(s), size=4, seed=2),
    "mix": lambda s: mixed(
        [s, Range(index_free(s), stop=min(1, index_free(s).length or 0))],
        weights=[2, 3],
        stop="all",
    ),
}
SEQUENTIAL: dict[str, Make] = {
    **POINTWISE,
    "filter": lambda s: named_filter(s, "less", {"field": "y", "value": 1.5}),
    "filter by function": lambda s: Filter(s, lambda b: np.asarray(b["x"]) % 3 != 1),
    "scan": lambda s: Scan(s, fn="cumsum", field="y"),
    "zip": lambda s: zipped([s, source(30)], names=["a", "b"]),
    "random mix": lambda s: mixed([s, source(9)], order="random", stop="all", seed=3),
    "random first": lambda s: mixed([s, source(9)], order="random", weights=[3, 1], seed=5),
    "select": lambda s: select_many(s, field="words"),
}
LAST = {"zip", "select", "scan"}
"""Behind these fields have other names or kinds."""


def compose(n: int, names: list[str]) -> Stage:
    stage: Stage = source(n)
    for name in names:
        if name in LAST:
            return SEQUENTIAL[name](stage)
        if isinstance(stage, Indexed) and name in INDEXED:
            stage = INDEXED[name](stage)
        elif name == "reservoir":
            stage = ReservoirShuffle(stage, size=6, seed=8) if isinstance(stage, Indexed) else stage
        elif name in SEQUENTIAL:
            stage = SEQUENTIAL[name](stage)
    return stage


every_name = st.sampled_from(sorted({*INDEXED, *SEQUENTIAL, "reservoir"}))
compositions = st.tuples(st.integers(1, 23), st.lists(every_name, max_size=5))


@given(compositions, st.integers(1, 9))
@settings(max_examples=half(250))
def test_every_checkpoint_gives_the_same_tail(made: tuple[int, list[str]], count: int) -> None:
    n, names = made
    everything = drain(compose(n, names), 40, 80)
    assert drain(compose(n, names), count, 80) == everything
    steps = states(compose(n, names), len(everything))
    assert [row for _, item in steps for row in item] == everything
    for k, (state, _) in enumerate(steps):
        reader = in_order(compose(n, names))
        tail, _ = reader.take(state, len(everything) - k)
        assert rows(tail) == everything[k:]
        skipped = reader.skip(steps[0][0], k)
        following = everything[k : k + 3]
        assert rows(reader.take(skipped, len(following))[0]) == following


@given(compositions, st.randoms(use_true_random=False))
@settings(max_examples=half(150))
def test_random_access_equals_reading_in_order(made: tuple[int, list[str]], random: Random) -> None:
    n, names = made
    stage = compose(n, [name for name in names if name in INDEXED])
    assert isinstance(stage, Indexed)
    length = stage.length
    assert length is not None
    everything = drain(stage, 10, 10_000)
    assert len(everything) == length
    order = list(range(length)) * 2
    random.shuffle(order)
    assert rows(stage.at(np.array(order, np.int64))) == [everything[k] for k in order]
    for k in order[:10]:
        assert rows(stage.at(np.array([k]))) == [everything[k]]


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(["size", "budget", "boundary"]))
@settings(max_examples=examples(60))
def test_batches_resume_at_every_step(n: int, read_ahead: int, kind: str) -> None:
    def stage(*, sequential: bool) -> BucketBatch:
        inner: Stage = source(n)
        if sequential:
            inner = ReservoirShuffle(source(n), size=4)
        kinds: dict[str, dict[str, Any]] = {
            "size": {"size": 3},
            "budget": {"budget": 6},
            "boundary": {"size": 3, "boundary": "x"},
        }
        options = kinds[kind]
        return BucketBatch(inner, read_ahead=read_ahead, key="words", seed=1, **options)

    for sequential in (False, True):
        whole = stage(sequential=sequential)
        batches, before, state = [], [], whole.initial
        while (step := whole.next_batch(state)) is not None:
            before.append(state)
            batches.append(rows(step[0]))
            state = step[1]
        assert stage(sequential=sequential).next_batch(state) is None
        assert sorted(row[0] for batch in batches for row in batch) == list(range(n))
        for k, state in enumerate(before):
            fresh = stage(sequential=sequential)
            step = fresh.next_batch(state)
            assert step is not None
            assert rows(step[0]) == batches[k]
            window = fresh.next_window(state)
            assert window is not None
            block, offsets, _ = window
            listed = rows(block)
            cut = [listed[a:b] for a, b in pairwise(offsets)]
            assert cut == batches[k : k + len(cut)]


@pytest.mark.parametrize("names", [[], ["reservoir"], ["filter"], ["select"], ["scan"], ["zip"]])
def test_states_of_something_else(names: list[str]) -> None:
    reader = in_order(compose(10, names))
    wrong: tuple[Any, ...] = (
        (*reader.initial, 0),
        reader.initial[:-1],
        tuple(-1 for _ in reader.initial),
        tuple(2**63 for _ in reader.initial),
        tuple(1.0 for _ in reader.initial),
        tuple(True for _ in reader.initial),
        tuple(10**9 for _ in reader.initial),
        list(reader.initial),
        None,
    )
    for state in wrong:
        with pytest.raises(StateError):
            reader.take(state, 1)


def test_windows_are_the_same_however_they_are_read() -> None:
    numbers = ArraySource({"x": np.arange(40).reshape(20, 2)})
    for partial in ("drop", "keep"):
        stage = Window(Permute(numbers, seed=1), width=4, stride=3, partial=partial)
        everything = drain(stage)
        assert len(everything) == stage.length
        for k in (5, 0, 3):
            assert rows(stage.at(np.array([k]))) == [everything[k]]
