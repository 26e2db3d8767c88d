"""Checklist: SamplingRandomMap, BlockwiseShuffle, BufferedShuffle, the order of buckets."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from core.compat.errors import DataChangedError
from core.compat.infinibatch._random import CountedRandom
from core.compat.infinibatch.iterators import (
    BlockwiseShuffleIterator,
    BucketedReadaheadBatchIterator,
    BufferedShuffleIterator,
    MapIterator,
    NativeCheckpointableIterator,
    SamplingRandomMapIterator,
)
from tests.scale import examples

ORDERS = ["mersenne", "counter"]


def native(n: int) -> NativeCheckpointableIterator:
    return NativeCheckpointableIterator(list(range(n)))


def test_a_counted_generator_is_random_and_knows_its_place() -> None:
    counted, plain = CountedRandom(7), random.Random(7)  # noqa: S311 - order, not secrets
    for k in range(1, examples(200)):
        assert counted.random() == plain.random()
        assert counted.randrange(k) == plain.randrange(k)
        assert counted.getrandbits(k) == plain.getrandbits(k)
        assert counted.gauss(0, 1) == plain.gauss(0, 1)
        assert counted.sample(range(k), k // 2) == plain.sample(range(k), k // 2)
        mine, theirs = list(range(k)), list(range(k))
        counted.shuffle(mine)
        plain.shuffle(theirs)
        assert mine == theirs
        assert counted.randbytes(k) == plain.randbytes(k)
    skipped = CountedRandom(7)
    skipped.skip(counted.words)
    assert skipped.words == counted.words
    assert skipped.random() == plain.random()


def test_a_generator_that_belongs_to_an_iterator_cannot_be_moved() -> None:
    generator = CountedRandom(1)
    with pytest.raises(TypeError, match="belongs to its iterator"):
        generator.seed(2)
    with pytest.raises(TypeError, match="belongs to its iterator"):
        generator.setstate(random.Random(2).getstate())  # noqa: S311 - order, not secrets


def test_sampling_in_mersenne_order_is_one_stream_of_random() -> None:
    generator = random.Random(42)  # noqa: S311 - order, not secrets
    expected = [item + generator.random() for item in range(50)]
    iterator = SamplingRandomMapIterator(native(50), lambda rng, item: item + rng.random(), 42)
    assert list(iterator) == expected


def test_sampling_by_counter_gives_an_item_the_same_numbers_wherever_one_begins() -> None:
    def draw(rng: random.Random, item: int) -> tuple[int, float]:
        return item, [rng.random() for _ in range(item % 3 + 1)][-1]

    def make() -> SamplingRandomMapIterator:
        return SamplingRandomMapIterator(native(50), draw, 4, "counter")

    whole = list(make())
    assert len({number for _, number in whole}) == 50
    middle = make()
    list(islice(middle, 30))
    state = middle.getstate()
    assert state["random"] == ["counter", 4, 30]
    fresh = make()
    fresh.setstate(state)
    assert list(fresh) == whole[30:]


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_are_shuffled_each_in_itself_and_the_last_may_be_short(order: str) -> None:
    items = list(BlockwiseShuffleIterator(native(23), 10, 1, order))
    blocks = [items[:10], items[10:20], items[20:]]
    assert [sorted(block) for block in blocks] == [
        list(range(10)),
        list(range(10, 20)),
        [20, 21, 22],
    ]
    assert items != sorted(items)
    assert [item % 10 for item in blocks[0]] != [item % 10 for item in blocks[1]]


def test_blocks_in_mersenne_order_are_shuffled_with_one_generator() -> None:
    generator = random.Random(5)  # noqa: S311 - order, not secrets
    expected: list[int] = []
    for first in range(0, 30, 7):
        block = list(range(first, min(first + 7, 30)))
        generator.shuffle(block)
        expected += block
    assert list(BlockwiseShuffleIterator(native(30), 7, 5)) == expected


def reservoir(items: list[int], size: int, seed: int) -> list[int]:
    """The peer's order: what is in a random slot goes out, the rest from the last slot on."""
    generator = random.Random(seed)  # noqa: S311 - order, not secrets
    slots: list[int | None] = [None] * size
    out = []
    for item in items:
        slot = generator.randrange(size)
        previous, slots[slot] = slots[slot], item
        out.append(previous)
    return [item for item in [*out, *reversed(slots)] if item is not None]


@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_the_buffer_in_mersenne_order_is_the_peer_s(size: int) -> None:
    assert list(BufferedShuffleIterator(native(57), size, 9)) == reservoir(list(range(57)), size, 9)


@pytest.mark.parametrize("order", ORDERS)
def test_none_is_an_item_like_any_other_in_the_buffer(order: str) -> None:
    """Flaw beaten: [1, None, 2, None, 3] came out as [1, 3, 2]."""
    items: list[Any] = [1, None, 2, None, 3, False, 0, None]
    source = NativeCheckpointableIterator(items)
    for size in (1, 2, 5, 20):
        out = list(BufferedShuffleIterator(source, size, 1, order))
        assert sorted(map(repr, out)) == sorted(map(repr, items))
        source.setstate(None)


def test_what_is_in_the_buffer_at_the_end_is_permuted_in_counter_order() -> None:
    """Flaw beaten: the peer gives the last items by slot, from the last one on."""
    order = list(BufferedShuffleIterator(native(40), 10_000, 3, "counter"))
    slots = BufferedShuffleIterator(native(40), 10_000, 3, "counter")
    next(slots)
    by_slot = [item for item in slots._items if isinstance(item, int)]
    assert sorted(order) == sorted(by_slot) == list(range(40))
    assert order not in (by_slot, by_slot[::-1])


@pytest.mark.parametrize("order", ORDERS)
def test_the_buffer_is_made_again_from_few_items(order: str) -> None:
    """The whole buffer was in the peer's checkpoint; here a place some B ln B items back."""
    read = [0]

    def count(item: int) -> int:
        read[0] += 1
        return item

    size, n = 32, 4000
    iterator = BufferedShuffleIterator(MapIterator(native(n), count), size, 3, order)
    whole = list(iterator)
    most = 0
    for cut in range(0, n, max(1, n // examples(60))):
        first = BufferedShuffleIterator(native(n), size, 3, order)
        list(islice(first, cut))
        state = first.getstate()
        read[0] = 0
        iterator.setstate(state)
        assert list(islice(iterator, 5)) == whole[cut : cut + 5]
        most = max(most, read[0])
    assert most < 32 * 12  # B ln B is 111; the oldest of 32 is seldom older than three times that


@pytest.mark.parametrize("order", ORDERS)
def test_a_checkpoint_that_was_only_passed_on_is_unchanged(order: str) -> None:
    first = BufferedShuffleIterator(native(40), 6, 1, order)
    for cut in (20, 18):
        list(islice(first, cut))
        state = first.getstate()
        second = BufferedShuffleIterator(native(40), 6, 1, order)
        second.setstate(state)
        assert second.getstate() == state


def test_a_buffer_whose_source_shrank_is_an_error() -> None:
    first = BufferedShuffleIterator(MapIterator(native(40), abs), 6, 1)
    list(islice(first, 30))
    state = first.getstate()
    short = BufferedShuffleIterator(NativeCheckpointableIterator({}), 6, 1)
    state["source"] = short.getstate()["source"]
    short.setstate(state)
    with pytest.raises(DataChangedError, match="but there are only"):
        next(short)
    full = BufferedShuffleIterator(native(2), 6, 1)
    list(full)
    too_far = full.getstate() | {"flushed": 3}
    full.setstate(too_far)
    with pytest.raises(DataChangedError, match="after 3 items of a buffer of 2"):
        next(full)


@pytest.mark.parametrize("order", ORDERS)
def test_seeds_and_orders_differ(order: str) -> None:
    def run(seed: int, which: str) -> list[int]:
        return list(BufferedShuffleIterator(native(60), 16, seed, which))

    other = ORDERS[1 - ORDERS.index(order)]
    assert run(1, order) == run(1, order)
    assert run(1, order) != run(2, order)
    assert run(1, order) != run(1, other)


def test_buckets_in_mersenne_order_are_shuffled_with_one_generator() -> None:
    generator = random.Random(6)  # noqa: S311 - order, not secrets
    expected: list[list[int]] = []
    for first in range(0, 20, 8):
        window = sorted(range(first, min(first + 8, 20)), reverse=True)
        batches = [window[k : k + 3] for k in range(0, len(window), 3)]
        generator.shuffle(batches)
        expected += batches
    iterator = BucketedReadaheadBatchIterator(native(20), 8, lambda item: item, 3, seed=6)
    assert list(iterator) == expected


def test_buckets_read_one_window_again() -> None:
    read = [0]

    def count(item: int) -> int:
        read[0] += 1
        return item

    def make() -> BucketedReadaheadBatchIterator:
        return BucketedReadaheadBatchIterator(MapIterator(native(1000), count), 50, None, 4)

    whole = list(make())
    first = make()
    list(islice(first, 100))
    state = first.getstate()
    read[0] = 0
    second = make()
    second.setstate(state)
    assert next(second) == whole[100]
    assert read[0] == 50
