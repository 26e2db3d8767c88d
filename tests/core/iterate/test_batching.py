"""Batches of similar keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StateError, TransformError
from core.iterate.batching import BucketBatch
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import rows
from tests.core.iterate.items import TEN, ragged


def batches(stage: BucketBatch) -> list[list[tuple[Any, ...]]]:
    state, found = stage.initial, []
    while (step := stage.next_batch(state)) is not None:
        found.append(rows(step[0]))
        state = step[1]
    return found


def reference(
    keys: list[int], read_ahead: int, full: Callable[[list[int]], bool], kinds: list[int]
) -> list[list[int]]:
    """Read ahead, sort stably from the longest, cut greedily."""
    found = []
    for start in range(0, len(keys), read_ahead):
        window = list(range(start, min(start + read_ahead, len(keys))))
        window.sort(key=lambda i: -keys[i])
        batch: list[int] = []
        for i in window:
            if batch and (full([keys[j] for j in (*batch, i)]) or kinds[i] != kinds[batch[0]]):
                found.append(batch)
                batch = []
            batch.append(i)
        found.append(batch)
    return found


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60),
    st.integers(1, 25),
    st.integers(1, 9),
    st.integers(1, 70),
    st.sampled_from([1, 1_000_003]),
)
def test_buckets_are_what_the_definition_gives(
    items: list[tuple[int, int]], read_ahead: int, size: int, budget: int, scale: int
) -> None:
    keys, kinds = [key * scale for key, _ in items], [kind for _, kind in items]
    source = ArraySource(
        {"k": np.array(keys, np.int64), "i": np.arange(len(keys)), "b": np.array(kinds, np.int8)}
    )
    budget *= scale
    limits: list[tuple[dict[str, Any], Callable[[list[int]], bool]]] = [
        ({"size": size}, lambda batch: len(batch) > size),
        ({"budget": budget}, lambda batch: max(batch) * len(batch) > budget),
        ({"budget": budget, "padded": False}, lambda batch: sum(batch) > budget),
        ({"size": size, "budget": budget}, lambda b: len(b) > size or max(b) * len(b) > budget),
    ]
    for options_, full in limits:
        for boundary in (None, "b"):
            compared = kinds if boundary else [0] * len(kinds)
            expected = reference(keys, read_ahead, full, compared)
            stage = BucketBatch(
                source, read_ahead=read_ahead, key="k", boundary=boundary, shuffle=False, **options_
            )
            assert [[row[1] for row in batch] for batch in batches(stage)] == expected
            shuffled = BucketBatch(
                source, read_ahead=read_ahead, key="k", boundary=boundary, seed=1, **options_
            )
            got = [[row[1] for row in batch] for batch in batches(shuffled)]
            assert sorted(got) == sorted(expected)


def test_buckets_by_length_and_their_frozen_order() -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    source = ArraySource({"i": np.arange(8), "w": ragged(*([7] * n for n in lengths))})
    stage = BucketBatch(source, read_ahead=8, key="w", size=2, seed=4)
    got = [[row[0] for row in batch] for batch in batches(stage)]
    assert sorted(got) == [[0, 6], [1, 3], [4, 2], [5, 7]]
    assert got == [[5, 7], [4, 2], [1, 3], [0, 6]]


def test_keys_that_are_none() -> None:
    for bad in (-1, 2**40):
        source = ArraySource({"k": np.array([1, 2, bad, 3])})
        stage = BucketBatch(source, read_ahead=3, key="k", size=2)
        with pytest.raises(TransformError) as caught:
            stage.next_batch(stage.initial)
        assert caught.value.position == 2
    large = ArraySource({"k": np.array([1, 2**63 + 5], np.uint64)})
    stage = BucketBatch(large, read_ahead=3, key="k", size=2)
    with pytest.raises(TransformError) as caught:
        stage.next_batch(stage.initial)
    assert caught.value.position == 1
    assert str(2**63 + 5) in caught.value.message


def test_boundaries_of_every_value() -> None:
    values = np.array([2**64 - 1, 2**63, 0, 2**63 - 1], np.uint64)
    source = ArraySource({"k": np.ones(4, np.int64), "b": values})
    stage = BucketBatch(source, read_ahead=4, key="k", size=4, boundary="b", shuffle=False)
    assert [len(batch) for batch in batches(stage)] == [1, 1, 1, 1]


def test_batches_beyond_a_window() -> None:
    stage = BucketBatch(TEN, read_ahead=4, key="index", size=2)
    for state in ((2, 0), (1, 10), (0,), (0, 11), (-1, 0)):
        with pytest.raises(StateError):
            stage.next_batch(state)
    assert stage.next_batch((0, 10)) is None
    assert stage.next_window((0, 10)) is None
