"""Checklist: Map, Multiplex, SelectMany, Zip, Windowed, FixedBatch, Recurrent, Bucketed."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from core.compat.errors import CheckpointError, DataChangedError
from core.compat.infinibatch.iterators import (
    BlockwiseShuffleIterator,
    BucketedReadaheadBatchIterator,
    BufferedShuffleIterator,
    CheckpointableIterator,
    FixedBatchIterator,
    MapIterator,
    MultiplexIterator,
    NativeCheckpointableIterator,
    ParallelMapIterator,
    PrefetchIterator,
    RecurrentIterator,
    SamplingRandomMapIterator,
    SelectManyIterator,
    WindowedIterator,
    ZipIterator,
)
from core.errors import LimitError


def native(*items: Any) -> NativeCheckpointableIterator:  # noqa: ANN401 - any items
    return NativeCheckpointableIterator(list(items))


class Closed(NativeCheckpointableIterator):
    """Knows how often it was closed."""

    def __init__(self, items: list[int]) -> None:
        super().__init__(items)
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


OVER_ONE: list[Callable[[Any], CheckpointableIterator]] = [
    lambda it: MapIterator(it, abs),
    SelectManyIterator,
    ZipIterator,
    lambda it: WindowedIterator(it, 2),
    lambda it: FixedBatchIterator(it, 2),
    lambda it: RecurrentIterator(it, divmod, 1),
    lambda it: SamplingRandomMapIterator(it, lambda _, item: item),
    lambda it: BlockwiseShuffleIterator(it, 2),
    lambda it: BufferedShuffleIterator(it, 2),
    lambda it: BucketedReadaheadBatchIterator(it, 2, None, 2),
    lambda it: PrefetchIterator(it, 2),
    lambda it: ParallelMapIterator(it, abs, 1, 1),
    lambda it: MultiplexIterator(it, []),
    lambda it: MultiplexIterator(native(), [it]),
]


@pytest.mark.parametrize("number", range(len(OVER_ONE)))
def test_close_goes_through_and_what_has_no_checkpoints_is_refused(number: int) -> None:
    make = OVER_ONE[number]
    source = Closed([1])
    make(source).close()
    assert source.closed == 1
    with pytest.raises(ValueError, match="has to be a CheckpointableIterator"):
        make([1, 2])


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_sizes_that_cannot_be_are_refused(size: Any) -> None:  # noqa: ANN401 - wrong types
    """Flaw beaten: read_ahead=0 was an endless loop."""
    makers: list[Callable[[], object]] = [
        lambda: FixedBatchIterator(native(), size),
        lambda: WindowedIterator(native(), size),
        lambda: BlockwiseShuffleIterator(native(), size),
        lambda: BufferedShuffleIterator(native(), size),
        lambda: BucketedReadaheadBatchIterator(native(), size, None, 1),
        lambda: BucketedReadaheadBatchIterator(native(), 1, None, size),
        lambda: PrefetchIterator(native(), size),
        lambda: ParallelMapIterator(native(), abs, size, 1),
        lambda: ParallelMapIterator(native(), abs, 1, size),
        lambda: RecurrentIterator(native(), divmod, max_state_bytes=size),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="has to be a positive integer"):
            make()


def test_a_map_that_fails_goes_on_with_the_next_item() -> None:
    iterator = MapIterator(native(1, 0, 4), lambda item: 4 // item)
    assert next(iterator) == 4
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert list(iterator) == [1]


def test_multiplex_takes_from_the_source_the_control_says() -> None:
    control = native(0, 1, 1, 0)
    iterator = MultiplexIterator(control, [native("a", "b"), native("c", "d")])
    assert list(iterator) == ["a", "c", "d", "b"]


def test_multiplex_says_which_source_ended() -> None:
    """Flaw beaten: "generator raised StopIteration", after which it looked like the end."""
    iterator = MultiplexIterator(native(0, 0, 1), [native("a"), native("b")])
    assert next(iterator) == "a"
    with pytest.raises(RuntimeError, match="source 0 has no more items") as caught:
        next(iterator)
    assert caught.value.__cause__ is None
    assert list(iterator) == ["b"]
    with pytest.raises(RuntimeError, match="asks for source 2 of 1"):
        next(MultiplexIterator(native(2), [native()]))


def test_select_many_flattens_what_the_selector_makes() -> None:
    assert list(SelectManyIterator(native([1, 2], [], [3]))) == [1, 2, 3]
    made = SelectManyIterator(native(2, 0, 1), lambda item: iter(range(item)))
    assert list(made) == [0, 1, 0]


def test_select_many_goes_back_to_one_collection_only() -> None:
    made: list[int] = []

    def collection(item: int) -> list[int]:
        made.append(item)
        return [item] * 3

    iterator = SelectManyIterator(native(*range(100)), collection)
    list(islice(iterator, 271))
    state = iterator.getstate()
    made.clear()
    iterator.setstate(state)
    assert list(islice(iterator, 3)) == [90, 90, 91]
    assert made == [90, 91]


def test_select_many_tells_that_a_collection_shrank() -> None:
    for short in ([1], iter([1])):
        iterator = SelectManyIterator(native([1, 2, 3]))
        list(islice(iterator, 2))
        changed = SelectManyIterator(native(short))
        changed.setstate(iterator.getstate())
        with pytest.raises(DataChangedError, match="after 2 items"):
            next(changed)


def test_zip_gives_tuples_up_to_the_shortest() -> None:
    assert list(ZipIterator(native(1, 2, 3), native("a", "b"))) == [(1, "a"), (2, "b")]
    assert list(ZipIterator()) == []


@pytest.mark.parametrize("count", [0, 1, 3])
def test_zip_refuses_another_number_of_states(count: int) -> None:
    """Flaw beaten: too short a list of states was accepted."""
    iterator = ZipIterator(native(1, 2), native(3, 4))
    state = iterator.getstate()
    state["inputs"] = (state["inputs"] * 2)[:count]
    with pytest.raises(CheckpointError, match="needs 2 inputs"):
        iterator.setstate(state)
    multiplex = MultiplexIterator(native(), [native(1), native(2)])
    broken = multiplex.getstate()
    broken["sources"] = (broken["sources"] * 2)[:count]
    with pytest.raises(CheckpointError, match="needs 2 sources"):
        multiplex.setstate(broken)


def test_windows_are_tuples_one_item_apart() -> None:
    assert list(WindowedIterator(native(1, 2, 3, 4), 3)) == [(1, 2, 3), (2, 3, 4)]
    assert list(WindowedIterator(native(1, 2), 3)) == []


def test_a_window_reads_few_items_again() -> None:
    read: list[int] = []

    def note(item: int) -> int:
        read.append(item)
        return item

    source = MapIterator(native(*range(100)), note)
    iterator = WindowedIterator(source, 5)
    for _ in range(60):
        next(iterator)
        state = iterator.getstate()
        read.clear()
        other = WindowedIterator(source, 5)
        other.setstate(state)
        assert len(next(other)) == 5
        assert len(read) <= 9
        iterator.setstate(state)


def test_batches_are_lists_and_the_last_is_kept_or_dropped() -> None:
    """Flaw beaten: the peer has no way to drop the last."""
    assert list(FixedBatchIterator(native(1, 2, 3), 2)) == [[1, 2], [3]]
    assert list(FixedBatchIterator(native(1, 2, 3), 2, drop_last=True)) == [[1, 2]]
    assert list(FixedBatchIterator(native(1, 2), 2, drop_last=True)) == [[1, 2]]


def test_recurrent_steps_through_states() -> None:
    def step(state: int, item: int) -> tuple[int, str]:
        return state + item, f"{state}+{item}"

    assert list(RecurrentIterator(native(1, 2, 3), step, 10)) == ["10+1", "11+2", "13+3"]


def test_recurrent_states_in_place_do_not_change_checkpoints_or_the_initial_state() -> None:
    def step(state: list[int], item: int) -> tuple[list[int], int]:
        state.append(item)
        return state, sum(state)

    initial: list[int] = []
    iterator = RecurrentIterator(native(1, 2, 3), step, initial)
    first = next(iterator)
    state = iterator.getstate()
    assert (first, list(iterator), initial) == (1, [3, 6], [])
    iterator.setstate(state)
    assert list(iterator) == [3, 6]
    assert state["recurrent_state"] == [1]


def test_recurrent_states_that_no_checkpoint_should_carry_are_refused() -> None:
    """Flaw beaten: a state of any size and kind in every checkpoint."""

    def growing(state: list[int], item: int) -> tuple[list[int], int]:
        return [*state, item], item

    iterator = RecurrentIterator(native(*range(100)), growing, [], max_state_bytes=100)
    list(islice(iterator, 20))
    iterator.getstate()
    list(islice(iterator, 40))
    with pytest.raises(LimitError, match="over 100"):
        iterator.getstate()
    for state in ({1, 2}, {1: 2}, {"__tuple__": []}, object()):
        with pytest.raises(CheckpointError, match="a recurrent state holds"):
            RecurrentIterator(native(1), growing, state).getstate()


def test_recurrent_states_of_any_kind_are_carried_by_functions_that_say_how() -> None:
    def union(state: set[int], item: int) -> tuple[set[int], int]:
        return state | {item}, len(state)

    def make() -> RecurrentIterator:
        return RecurrentIterator(native(1, 2, 1), union, set(), encode=sorted, decode=set)

    iterator = make()
    list(islice(iterator, 2))
    other = make()
    other.setstate(json.loads(json.dumps(iterator.getstate())))
    assert list(other) == [2]


def test_buckets_sort_and_cut_greedily() -> None:
    words = ["aa", "b", "cccc", "dd", "ee", "f"]
    iterator = BucketedReadaheadBatchIterator(native(*words), 6, len, 2, shuffle=False)
    assert list(iterator) == [["cccc", "aa"], ["dd", "ee"], ["b", "f"]]
    by_first = BucketedReadaheadBatchIterator(
        native(*words), 6, len, lambda first: 4 // len(first), shuffle=False
    )
    assert list(by_first) == [["cccc"], ["aa", "dd"], ["ee", "b"], ["f"]]
    windows = BucketedReadaheadBatchIterator(native(*words), 3, len, 3, shuffle=False)
    assert list(windows) == [["cccc", "aa", "b"], ["dd", "ee", "f"]]


def test_a_boundary_key_is_one_in_each_batch() -> None:
    iterator = BucketedReadaheadBatchIterator(
        native(*range(9)), 9, None, 3, boundary_key=lambda item: item // 4, shuffle=False
    )
    assert list(iterator) == [[0, 1, 2], [3], [4, 5, 6], [7], [8]]


def test_sizes_and_boundaries_that_cannot_be_are_errors_and_lose_nothing() -> None:
    """Flaw beaten: a dynamic batch size of 0 gave batches of 1; None was an assertion."""
    sizes = [0]
    iterator = BucketedReadaheadBatchIterator(native(1, 2), 2, None, lambda _: sizes[0])
    with pytest.raises(ValueError, match=r"batch_size returns 0 for an item\. The item is 1"):
        next(iterator)
    sizes[0] = 2
    assert list(iterator) == [[1, 2]]
    no_key = BucketedReadaheadBatchIterator(native(1), 1, None, 1, boundary_key=lambda _: None)
    with pytest.raises(ValueError, match="boundary_key is None for an item"):
        next(no_key)
