"""Which events have been met: every id is remembered, and no other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.losses._kernels import seen as kernels
from core.losses._kernels.seen import NEW, NO_PAGE, SEEN
from core.losses.format import ID_MAX
from core.losses.seen import SeenEvents


def plain(name: str) -> Callable[..., int]:
    """A kernel as it is written: those that only kernels call have no other way in."""
    kernel = getattr(kernels, name)
    found: Callable[..., int] = getattr(kernel, "py_func", kernel)
    return found


look_up, add_block = plain("test_event"), plain("add_block")
EDGES = [1, 4095, 4096, 4097, 8191, 8192, 2**20, ID_MAX - 4096, ID_MAX]


def known(seen: SeenEvents, event: int) -> int:
    return look_up(event, seen.directory, seen.pages)


@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(1, 40_000)), max_size=60))
def test_what_was_added_is_known_and_its_neighbours_are_not(events: list[int]) -> None:
    seen = SeenEvents()
    for event in events:
        seen.add(event)
    near = {event + step for event in events for step in (-1, 0, 1)}
    for number in near & set(range(1, 50_000)) | set(EDGES):
        assert (known(seen, number) == SEEN) == (number in events)


events = st.frozensets(st.sampled_from([*EDGES, *range(4090, 4110)]), max_size=3)


@given(events, events)
@example({1, 4095}, {4095})
@example({1, 4097}, {4095, 4096})
def test_partitions_overlap_where_an_event_is_in_both(one: set[int], two: set[int]) -> None:
    left, right = SeenEvents(), SeenEvents()
    for seen, those in ((left, one), (right, two)):
        for event in those:
            seen.add(event)
    assert left.overlaps(right) == right.overlaps(left) == bool(one & two)


def test_a_page_is_made_for_the_ids_that_share_it() -> None:
    seen = SeenEvents()
    assert known(seen, 5000) == NO_PAGE
    seen.make_page(5000)
    assert [known(seen, event) for event in (4095, 4096, 5000, 8191, 8192)] == [
        NO_PAGE,
        NEW,
        NEW,
        NEW,
        NO_PAGE,
    ]
    seen.add(5000)
    seen.make_page(4096)
    assert known(seen, 5000) == SEEN
    size = len(seen.pages)
    for page in range(100):
        seen.add(4096 * page + page + 1)
    assert len(seen.pages) <= 2 * 104
    assert size < len(seen.pages)
    for page in range(100):
        assert known(seen, 4096 * page + page + 1) == SEEN
        assert known(seen, 4096 * page + page + 2) == NEW
    assert known(seen, 5000) == SEEN


@pytest.mark.parametrize("serial", [1, 2**20])
def test_every_block_id_fits_once_into_a_table_that_is_half_full(serial: int) -> None:
    rng = np.random.default_rng(serial)
    ids = rng.choice(2**31 - 1, 32, replace=False).astype(np.int64) + 1
    table = np.zeros(64, np.int64)
    for ident in ids.tolist():
        assert add_block(ident, serial, table)
    for ident in ids.tolist():
        assert not add_block(ident, serial, table)
    # Another event needs no cleared table.
    assert add_block(int(ids[0]), serial + 1, table)


def test_a_larger_table_holds_what_was_logged() -> None:
    log = np.array([5, 9, 5 + 2**20, 77], np.int32)
    table = np.zeros(16, np.int64)
    kernels.fill_table(log, 3, 4, table)
    assert [add_block(int(ident), 4, table) for ident in log] == [False, False, False, True]
