"""Checklist: Native, Chunked, InfinitePermutation, create_source_iterator, Random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

from core.compat.errors import ArgumentError, DataChangedError
from core.compat.infinibatch.iterators import (
    CheckpointableIterator,
    ChunkedSourceIterator,
    InfinitePermutationSourceIterator,
    NativeCheckpointableIterator,
    RandomIterator,
    create_source_iterator,
)
from tests.scale import examples


class Reads(list[int]):
    """A list that knows what was read of it."""

    def __init__(self, n: int) -> None:
        super().__init__(range(n))
        self.read: list[int] = []

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        self.read.append(index)
        return super().__getitem__(index)


def test_native_refuses_an_iterator() -> None:
    with pytest.raises(ValueError, match="iterator was given"):
        NativeCheckpointableIterator(iter([1]))


def test_native_goes_to_a_place_in_a_sequence_without_reading_what_is_before() -> None:
    """Flaw beaten: going to a place reads everything before it again."""
    data = Reads(1000)
    iterator = NativeCheckpointableIterator(data)
    list(islice(iterator, 900))
    state = iterator.getstate()
    data.read.clear()
    iterator.setstate(state)
    assert next(iterator) == 900
    assert data.read == [900]


def test_native_tells_that_the_data_shrank_or_is_other_data() -> None:
    """RuntimeError where the data shrank, as the peer; flaw beaten: other data is noticed."""
    state = NativeCheckpointableIterator([1, 2, 3]).getstate()
    for data in ([1, 2], [1, 2, 3, 4]):
        with pytest.raises(RuntimeError, match="over 3 items"):
            NativeCheckpointableIterator(data).setstate(state)
    named = NativeCheckpointableIterator([1, 2, 3], identity="a")
    with pytest.raises(DataChangedError, match="over None, but this is 'a'"):
        named.setstate(state)
    named.setstate(NativeCheckpointableIterator([1, 2, 3], "a").getstate())
    assert list(named) == [1, 2, 3]


class Unsized:
    """So many items, without saying so."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def test_native_tells_that_data_without_a_length_shrank() -> None:
    data = Unsized(3)
    iterator = NativeCheckpointableIterator(data)
    list(iterator)
    state = iterator.getstate()
    data.n = 1
    with pytest.raises(RuntimeError, match="after 3 items, but there are only 1"):
        iterator.setstate(state)


def test_chunked_deals_consecutive_shares_the_first_ones_larger() -> None:
    shares = [list(ChunkedSourceIterator(list(range(8)), 3, rank)) for rank in range(3)]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize(("world", "rank"), [(2, 2), (2, -1), (0, 0), (-1, 0)])
def test_ranks_that_cannot_be_are_refused(world: int, rank: int) -> None:
    """Flaw beaten: rank -1 gave nothing, and a world of 0 a ZeroDivisionError."""
    for make in (ChunkedSourceIterator, create_source_iterator):
        with pytest.raises(ValueError, match="instance"):
            make([1, 2, 3], num_instances=world, instance_rank=rank)


def test_permutation_refuses_an_empty_list() -> None:
    for order in ("mersenne", "counter"):
        with pytest.raises(ValueError, match="not be empty"):
            InfinitePermutationSourceIterator([], order=order)


def test_permutation_in_mersenne_order_shuffles_with_one_generator() -> None:
    """Checklist: the k-th pass is the k-th shuffle of Random(seed); ranks take turns."""
    n, world = 11, 4
    generator = random.Random(42)  # noqa: S311 - order, not secrets
    expected: list[int] = []
    for _ in range(20):
        places = list(range(n))
        generator.shuffle(places)
        expected += places
    for rank in range(world):
        iterator = InfinitePermutationSourceIterator(list(range(n)), 42, True, world, rank)
        assert list(islice(iterator, 50)) == expected[rank : rank + 50 * world : world]


def test_permutation_without_shuffling_cycles() -> None:
    iterator = InfinitePermutationSourceIterator("abc", shuffle=False, num_instances=2)
    assert "".join(islice(iterator, 6)) == "acbacb"


@pytest.mark.parametrize("order", ["mersenne", "counter"])
def test_permutation_gives_everything_once_a_pass_in_differing_order(order: str) -> None:
    iterator = InfinitePermutationSourceIterator(range(100), 3, order=order)
    passes = [list(islice(iterator, 100)) for _ in range(3)]
    assert all(sorted(one) == list(range(100)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3


@pytest.mark.parametrize("order", ["mersenne", "counter"])
def test_permutation_goes_on_with_another_number_of_ranks(order: str) -> None:
    n, old, new = 10, 4, 3

    def rank(world: int, rank: int) -> InfinitePermutationSourceIterator:
        return InfinitePermutationSourceIterator(list(range(n)), 1, True, world, rank, order)

    whole = list(islice(rank(1, 0), 60))
    olds = [rank(old, r) for r in range(old)]
    for iterator in olds:
        list(islice(iterator, 5))
    news = [rank(new, r) for r in range(new)]
    for iterator in news:
        iterator.setstate(olds[2].getstate())
    dealt = [item for _ in range(10) for item in map(next, news)]
    assert dealt == whole[20:50]


def test_permutation_without_a_seed_is_reproducible_from_a_checkpoint_of_the_beginning() -> None:
    """Flaw beaten: with seed=None the first checkpoint named no order."""
    first = InfinitePermutationSourceIterator(list(range(50)), None)
    state = first.getstate()
    whole = list(islice(first, 120))
    second = InfinitePermutationSourceIterator(list(range(50)), None)
    own = list(islice(second, 120))
    assert own != whole
    second.setstate(state)
    assert list(islice(second, 120)) == whole
    second.setstate(None)
    assert list(islice(second, 120)) == own


def test_permutation_of_a_trillion_begins_and_resumes_at_once_in_counter_order() -> None:
    """Flaw beaten: the first item of the peer takes time and memory for all of them."""
    n = 10**12
    iterator = InfinitePermutationSourceIterator(range(n), 5, order="counter")
    head = list(islice(iterator, 1500))
    assert len(set(head)) == 1500
    state = iterator.getstate()
    state["position"] = 3 * n - 2
    iterator.setstate(state)
    assert all(0 <= item < n for item in islice(iterator, 4))
    assert iterator.getstate()["position"] == 3 * n + 2


def test_permutation_does_not_copy_items() -> None:
    """Flaw beaten: deep copies at construction and at every pass."""
    items = [object() for _ in range(5)]
    iterator = InfinitePermutationSourceIterator(items)
    assert set(islice(iterator, 15)) == set(items)
    items.clear()  # but the list is its own
    assert next(iterator) is not None


def test_permutation_of_other_data_is_refused() -> None:
    state = InfinitePermutationSourceIterator([1, 2, 3]).getstate()
    with pytest.raises(DataChangedError, match="over 3 items, but there are 2"):
        InfinitePermutationSourceIterator([1, 2]).setstate(state)


class Items(list[int]):
    """Items that know what they are."""

    def __init__(self, items: Iterable[int], fingerprint: bytes) -> None:
        super().__init__(items)
        self.fingerprint = fingerprint


@pytest.mark.parametrize("train", [True, False])
def test_other_data_of_the_same_length_is_refused_where_an_identity_is_known(train: bool) -> None:
    def named(identity: str | None) -> CheckpointableIterator:
        return create_source_iterator(list(range(9)), train, 1, train, identity=identity)

    def known(fingerprint: bytes) -> CheckpointableIterator:
        return create_source_iterator(Items(range(9), fingerprint), train, 1, train)

    for first, other, same in (
        (named("a"), named("b"), named("a")),
        (named("a"), named(None), named("a")),
        (known(b"a"), known(b"b"), known(b"a")),
    ):
        next(first)
        state = first.getstate()
        with pytest.raises(DataChangedError, match="a checkpoint over '"):
            other.setstate(state)
        same.setstate(state)
        assert next(same) == next(first)
    assert "identity" not in create_source_iterator([1, 2]).getstate()


def test_create_source_iterator_chooses() -> None:
    assert list(create_source_iterator([1, 2, 3], False, None, False, 2, 1)) == [3]
    endless = create_source_iterator([1, 2, 3], seed=1)
    assert sorted(islice(endless, 6)) == [1, 1, 2, 2, 3, 3]
    with pytest.raises(ValueError, match="not supported when train=False"):
        create_source_iterator([1], train=False, shuffle=True)


@pytest.mark.parametrize("order", ["philox", "", "Mersenne"])
def test_orders_that_do_not_exist_are_refused(order: str) -> None:
    with pytest.raises(ArgumentError, match="order is"):
        RandomIterator(0, order)


@pytest.mark.parametrize("seed", ["a", 1.5, True])
def test_seeds_that_json_would_not_carry_are_refused(seed: object) -> None:
    with pytest.raises(ArgumentError, match="seed"):
        RandomIterator(seed)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="seed"):
        RandomIterator(-1, "counter")


def test_random_gives_the_numbers_of_random_and_goes_anywhere() -> None:
    generator = random.Random(9)  # noqa: S311 - order, not secrets
    expected = [generator.random() for _ in range(examples(5000))]
    iterator = RandomIterator(9)
    assert list(islice(iterator, len(expected))) == expected
    state = iterator.getstate()
    assert state["random"] == ["mersenne", 9, len(expected)]
    following = [generator.random() for _ in range(3)]
    fresh = RandomIterator(9)
    fresh.setstate(state)
    assert list(islice(fresh, 3)) == following


def test_random_by_counter_is_uniform_enough_and_in_range() -> None:
    numbers = list(islice(RandomIterator(1, "counter"), 3000))
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert abs(sum(numbers) / 3000 - 0.5) < 0.03
    assert numbers != list(islice(RandomIterator(2, "counter"), 3000))
