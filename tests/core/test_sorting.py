from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import sorting
from core.budget import installed
from core.errors import CancelledError
from core.sorting import distinct, numbered, order_of, sort_pairs, starts_of
from tests.core.test_slices import Leaving, passes
from tests.scale import examples

KEYS = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 3), max_size=80)


@settings(max_examples=examples(200))
@given(KEYS, st.integers(1, 100))
def test_pairs_are_sorted_stably_in_slices_of_any_size(keys: list[int], size: int) -> None:
    given_keys = np.array(keys, np.int64)
    order = np.argsort(given_keys, kind="stable")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "SLICE", size)
        ordered, found = order_of(given_keys, "test")
        alone = given_keys.copy()
        sort_pairs(alone, alone[:0], "test")
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(ordered, given_keys[order])
    np.testing.assert_array_equal(alone, given_keys[order])


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 9), max_size=40))
def test_distinct_values_and_where_they_begin(values: list[int]) -> None:
    found, counts = distinct(np.array(values, np.int32), "test")
    expected, indices, times = np.unique(
        np.array(values, np.int64), return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(counts, times)
    starts = starts_of(np.array(sorted(values), np.int64))
    np.testing.assert_array_equal(starts, np.cumsum([0, *times]))
    np.testing.assert_array_equal(numbered(np.array(values, np.int32), "test")[0], expected)
    np.testing.assert_array_equal(numbered(np.array(values, np.int32), "test")[1], indices)


def test_a_sort_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "SLICE", 10)
    keys = np.arange(1000)[::-1].copy()
    with installed(Leaving(5)), pytest.raises(CancelledError):
        sort_pairs(keys, keys[:0], "test")


def test_distinct_values_are_taken_and_found_in_slices() -> None:
    values = np.arange(100)
    # Copied, sorted in memory that is touched first, compared, counted, and both joined.
    assert passes(lambda: distinct(values, "test"), len(values)) == 6
