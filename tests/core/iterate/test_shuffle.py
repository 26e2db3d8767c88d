"""Orders: frozen, complete, bounded, and what the documentation says they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.errors import PipelineError
from core.iterate.base import Indexed, Stage, in_order
from core.iterate.blocks import BlockPermutation, count_misses
from core.iterate.positions import Permute, Range, Repeat, Shard
from core.iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from core.iterate.sources import CounterSource
from core.rng import SMALL, Permutation, below, derive
from tests.core.iterate.drain import at, drain, first
from tests.scale import PURE_PYTHON, examples

seeds = st.integers(0, 2**63 - 1)
Counter = CounterSource


def test_orders_are_frozen() -> None:
    assert first(Permute(Counter(5), seed=7, epochs=3), 20) == [
        4,
        3,
        1,
        0,
        2,
        3,
        1,
        2,
        0,
        4,
        2,
        0,
        4,
        1,
        3,
    ]
    endless = Permute(Counter(100_000), seed=7, epochs=None)
    assert first(endless, 6) == [87722, 14348, 19337, 75100, 15649, 70641]
    assert at(endless, 99_999, 100_000, 100_001) == [24237, 43115, 81833]
    assert first(BlockShuffle(Counter(11), size=4, seed=7), 11) == [
        3,
        0,
        1,
        2,
        7,
        5,
        6,
        4,
        9,
        8,
        10,
    ]
    assert first(BlockShuffle(Counter(), size=70_000, seed=7), 4) == [9267, 4464, 20368, 33017]
    assert first(OverlapShuffle(Counter(11), size=2, seed=7), 11) == [
        1,
        2,
        3,
        0,
        6,
        4,
        7,
        9,
        8,
        5,
        10,
    ]
    assert first(ReservoirShuffle(Counter(11), size=4, seed=7), 11) == [
        3,
        2,
        5,
        6,
        4,
        7,
        8,
        9,
        1,
        10,
        0,
    ]


def test_a_short_block_is_a_table_up_to_65536_items() -> None:
    begin = 70_000
    for length, frozen in ((SMALL, [37504, 65402, 25608, 43677]), (SMALL + 1, None)):
        places = np.array([0, 1, 2, length - 1])
        stage = BlockShuffle(Counter(begin + length), size=begin, seed=7)
        images = [image - begin for image in at(stage, *(begin + places).tolist())]
        assert images == Permutation(length, derive(7, "block").nth(1)).at(places).tolist()
        assert images == (frozen or [45938, 47346, 53627, 27891])
        assert at(stage, begin, 0, begin + 1, 1) == [
            begin + images[0],
            9267,
            begin + images[1],
            4464,
        ]


def test_the_overlap_of_big_blocks_is_frozen() -> None:
    big = OverlapShuffle(Counter(10**9), size=40_000, seed=7)
    assert first(big, 4) == [17359, 27909, 69413, 39601]


def test_the_reservoir_far_on_is_frozen() -> None:
    reservoir = ReservoirShuffle(Counter(10**6), size=1000, seed=7)
    block, state = reservoir.take((900_000,), 4)
    assert np.asarray(block["index"]).tolist() == [900400, 900553, 898031, 900790]
    assert state == (900_004,)
    block, state = reservoir.take((999_997,), 4)
    assert np.asarray(block["index"]).tolist() == [998723, 997733, 999284]
    assert state == (1_000_000,)


def test_an_epoch_is_a_permutation_of_its_own_key() -> None:
    key = derive(3, "permute", "a")
    for n in (1, 6, 1000, SMALL + 5):
        stage = Permute(Counter(n), seed=3, epochs=None, path=("a",))
        some = np.arange(0, n, max(1, n // 50))
        for epoch in (0, 1, 2**31):
            expected = Permutation(n, key.nth(epoch)).at(some)
            assert at(stage, *(epoch * n + some).tolist()) == expected.tolist()


@given(st.integers(1, 300), st.integers(1, 40), st.data())
def test_blocks_are_permutations_of_their_own_keys(n: int, size: int, data: st.DataObject) -> None:
    lead = data.draw(st.integers(0, size - 1))
    key = derive(n, "blocks")
    edges = [0, *range(size - lead, n, size), n]
    if edges[1] > n:
        edges = [0, n]
    expected = np.concatenate(
        [
            Permutation(b - a, key.nth(j)).at(np.arange(b - a)) + a
            for j, (a, b) in enumerate(pairwise(edges))
        ]
    )
    blocks = BlockPermutation(key, size, n, lead)
    order = np.array(data.draw(st.permutations(range(n))))
    assert np.array_equal(blocks.at(order), expected[order])
    assert np.array_equal(blocks.at(np.arange(n)), expected)


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(1, 9), st.integers(0, 8))
@example([2, 3, 4, 9, 5, 3, 2, 20, 21, 22], 3, 1)
def test_tables_are_foreseen(positions: list[int], size: int, lead: int) -> None:
    lead %= size
    tables = {0: -1, 1: -1}
    built = 0
    for block in [(position + lead) // size for position in positions]:
        built += tables[block % 2] != block
        tables[block % 2] = block
    assert count_misses(np.array(positions, np.int64), lead, size) == built


@pytest.mark.skipif(PURE_PYTHON, reason="tables of large blocks take minutes in plain Python")
@pytest.mark.parametrize("size", [SMALL, SMALL + 1, 90_000])
def test_large_blocks_with_short_ones_at_the_ends(size: int) -> None:
    key, lead, n = derive(1), size - 10, 3 * size
    blocks = BlockPermutation(key, size, n, lead)
    everything = blocks.at(np.arange(n))
    assert np.array_equal(np.sort(everything), np.arange(n))
    assert np.array_equal(everything[:10], Permutation(10, key.nth(0)).at(np.arange(10)))
    last = 10 + 2 * size
    expected = Permutation(n - last, key.nth(3)).at(np.arange(n - last)) + last
    assert np.array_equal(everything[last:], expected)
    order = np.random.default_rng(1).permutation(n)[:5000]
    assert np.array_equal(blocks.at(order), everything[order])


@given(st.integers(0, 400), st.integers(1, 60), seeds)
@settings(max_examples=examples(100))
def test_shuffles_lose_and_repeat_nothing_and_move_items_no_further_than_they_say(
    n: int, size: int, seed: int
) -> None:
    for stage, furthest in (
        (BlockShuffle(Counter(n), size=size, seed=seed), size),
        (OverlapShuffle(Counter(n), size=size, seed=seed), 3 * size),
    ):
        order = np.array([x for (x,) in drain(stage, 64)], np.int64)
        assert np.array_equal(np.sort(order), np.arange(n))
        assert np.all(np.abs(order - np.arange(n)) < furthest)
    reservoir = ReservoirShuffle(Counter(n), size=size, seed=seed)
    order = np.array([x for (x,) in drain(reservoir, 17)], np.int64)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.all(order - np.arange(n) < size)


@given(st.integers(0, 60), st.integers(1, 20), seeds)
def test_the_reservoir_is_that_of_kaldi(n: int, size: int, seed: int) -> None:
    """A buffer of items, a slot drawn for each item to come, what is left in random order."""
    key = derive(seed, "reservoir")
    buffer: list[int] = []
    expected: list[int] = []
    for item in range(n):
        if len(buffer) < size:
            buffer.append(item)
            continue
        slot = int(below(key, np.array([item], np.uint64), size)[0])
        expected.append(buffer[slot])
        buffer[slot] = item
    flush = Permutation(len(buffer), key.child("flush")).at(np.arange(len(buffer)))
    expected += [buffer[slot] for slot in flush]
    stage = ReservoirShuffle(Counter(n), size=size, seed=seed)
    assert [x for (x,) in drain(stage, 5)] == expected


@pytest.mark.parametrize("stage", ["block", "overlap", "reservoir"])
def test_shuffles_of_items_without_end(stage: str) -> None:
    made: dict[str, Stage] = {
        "block": BlockShuffle(Counter(), size=5),
        "overlap": OverlapShuffle(Counter(), size=5),
        "reservoir": ReservoirShuffle(Counter(), size=5),
    }
    assert len(set(first(made[stage], 100))) == 100
    assert in_order(made[stage]).endless


@pytest.mark.skipif(PURE_PYTHON, reason="a hundred thousand items take minutes in plain Python")
def test_the_overlap_mixes_at_least_as_well_as_the_reservoir() -> None:
    n, size = 100_000, 1000
    moved, late = {}, {}
    for stage in (
        BlockShuffle(Counter(n), size=size),
        OverlapShuffle(Counter(n), size=size),
        ReservoirShuffle(Counter(n), size=size),
    ):
        order = np.array([x for (x,) in drain(stage, 10_000, n)])
        moved[type(stage).__name__] = np.abs(order - np.arange(n)).mean() / size
        late[type(stage).__name__] = float(np.mean(np.arange(n) - order >= 3 * size))
    assert moved["BlockShuffle"] == pytest.approx(1 / 3, abs=0.02)
    assert moved["ReservoirShuffle"] == pytest.approx(0.73, abs=0.03)
    assert moved["OverlapShuffle"] == pytest.approx(1.08, abs=0.04)
    assert late["BlockShuffle"] == late["OverlapShuffle"] == 0
    assert late["ReservoirShuffle"] == pytest.approx(np.exp(-4), abs=0.004)


def test_the_furthest_that_shuffles_say_is_reached() -> None:
    n, size = 200, 2
    for made, furthest in ((BlockShuffle, size - 1), (OverlapShuffle, 3 * size - 1)):
        orders = [first(made(Counter(n), size=size, seed=seed), n) for seed in range(10)]
        moves = np.array(orders) - np.arange(n)
        assert (moves.max(), -moves.min()) == (furthest, furthest)


def test_the_largest_reservoir_resumes() -> None:
    size, n = (2**20, 2**22) if not PURE_PYTHON else (2**8, 2**10)
    given_items = n - size - 3
    whole = ReservoirShuffle(Counter(n), size=size, seed=1)
    block, _ = whole.take((given_items,), 6)
    again, _ = whole.take((given_items + 3,), 3)
    resumed, _ = ReservoirShuffle(Counter(n), size=size, seed=1).take((given_items + 3,), 3)
    assert np.asarray(block["index"])[3:].tolist() == np.asarray(resumed["index"]).tolist()
    assert np.asarray(again["index"]).tolist() == np.asarray(resumed["index"]).tolist()


def test_shards_are_a_partition() -> None:
    for n in (0, 1, 7, 12):
        for of in (1, 3, 5):
            parts = [first(Shard(Counter(n), of=of, index=j), 20) for j in range(of)]
            assert [x for part in parts for x in part] == list(range(n))
            sizes = [len(part) for part in parts]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
            for j in range(of):
                strided = Shard(Counter(n), of=of, index=j, mode="stride")
                assert first(strided, 20) == list(range(j, n, of))


def test_ranges_and_repeats() -> None:
    assert first(Range(Counter(10), start=3, stop=6), 20) == [3, 4, 5]
    assert first(Range(Counter(), start=3), 3) == [3, 4, 5]
    assert first(Repeat(Counter(3), epochs=2), 20) == [0, 1, 2, 0, 1, 2]
    assert first(Repeat(Counter(3)), 7) == [0, 1, 2, 0, 1, 2, 0]
    assert first(Repeat(Counter(0), epochs=2), 7) == []
    assert first(Permute(Counter(0), epochs=2), 7) == []
    assert first(Permute(Counter(3), epochs=0), 7) == []


def test_equal_seeds_of_other_paths_and_stages_give_other_orders() -> None:
    n = 50
    stages: list[Indexed] = [
        Permute(Counter(n), seed=1),
        Permute(Counter(n), seed=1, path=(2,)),
        Permute(Counter(n), seed=2),
        BlockShuffle(Counter(n), size=n, seed=1),
        BlockShuffle(Counter(n), size=n, seed=1, path=(2,)),
        OverlapShuffle(Counter(n), size=n, seed=1),
    ]
    orders = {tuple(first(stage, n)) for stage in stages}
    assert len(orders) == len(stages)


def test_a_seed_and_an_epoch_are_not_added() -> None:
    """Epoch 1 of seed 5 must not be epoch 0 of seed 6."""
    five, six = (first(Permute(Counter(30), seed=s, epochs=3), 90) for s in (5, 6))
    for a in range(3):
        for b in range(3):
            assert five[a * 30 : a * 30 + 30] != six[b * 30 : b * 30 + 30]


def test_a_reservoir_reads_only_what_it_can_find_again() -> None:
    sequential = in_order(CounterSource(9))
    with pytest.raises(PipelineError, match="cannot follow a sequential stage") as caught:
        ReservoirShuffle(sequential, size=4)
    assert "before the first sequential stage" in str(caught.value.hint)
