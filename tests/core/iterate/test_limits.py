"""Limits by count, bytes and time, and what they know of the end of the data."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from core.errors import OptionError, StateError
from core.iterate.iterator import BlockIterator
from core.iterate.limits import Head, Limited, Peekable
from core.iterate.mapping import named_filter
from core.iterate.sources import CounterSource


class Watch:
    """A clock that goes on by itself at each look."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 100.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize(
    ("count", "given", "reason", "finished"),
    [
        (None, 100, "exhausted", True),
        (0, 0, "count", False),
        (10, 10, "count", False),
        (99, 99, "count", False),
        (100, 100, "count", True),
        (110, 100, "exhausted", True),
    ],
)
def test_count(count: int | None, given: int, reason: str, finished: bool) -> None:
    limited = Limited(range(100), count=count)
    assert (limited.reason, limited.data_finished) == (None, False)
    assert list(limited) == list(range(given))
    assert (limited.reason, limited.data_finished) == (reason, finished)
    assert list(limited) == []
    assert (limited.reason, limited.data_finished) == (reason, finished)


def test_nothing_is_lost_between_two_limits() -> None:
    shared = Peekable(range(10))
    parts = [list(Limited(shared, count=4)) for _ in range(4)]
    assert parts == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]


def test_a_limit_that_ends_leaves_the_state_after_the_last_item() -> None:
    """Only who asks whether the data ended has an item read for that."""
    blocks = BlockIterator(CounterSource(12), size=4)
    limited = Limited(blocks, count=2)
    assert len(list(limited)) == 2
    assert blocks.getstate()["state"] == [8]
    assert limited.data_finished is False
    assert blocks.getstate()["state"] == [12]
    assert len(list(Limited(blocks, count=1))) == 0


def test_a_limit_of_nothing_reads_nothing() -> None:
    source = iter(range(3))
    limited = Limited(source, count=0)
    assert list(limited) == []
    assert not limited.data_finished
    assert next(source) == 0


@pytest.mark.parametrize(
    ("nbytes", "given", "reason", "finished"),
    [(0, 0, "bytes", False), (1, 1, "bytes", False), (30, 3, "bytes", False),
     (31, 4, "bytes", False), (50, 5, "bytes", True), (51, 5, "exhausted", True)],
)  # fmt: skip
def test_bytes(nbytes: int, given: int, reason: str, finished: bool) -> None:
    limited = Limited(range(5), nbytes=nbytes, size_of=lambda _: 10)
    assert len(list(limited)) == given
    assert limited.reason == reason
    assert limited.data_finished is finished


def test_time_is_overrun_by_one_item_at_most() -> None:
    watch = Watch()
    limited = Limited(range(100), seconds=3.0, clock=watch)
    given = []
    watch.now += 50  # before the first item is asked for, nothing counts
    for item in limited:
        given.append(item)
        watch.now += 0.8
    assert given == [0, 1, 2, 3]
    assert (limited.reason, limited.data_finished) == ("time", False)
    none = Limited(range(3), seconds=0, clock=watch)
    assert list(none) == []


def test_a_state_goes_on_with_what_was_used_up() -> None:
    watch = Watch()
    items = Peekable(range(100))
    first = Limited(items, count=10, nbytes=80, seconds=9.0, size_of=lambda _: 10, clock=watch)
    for _ in range(4):
        next(first)
        watch.now += 2
    state = json.loads(json.dumps(first.getstate()))
    assert state == {"version": 1, "count": 4, "bytes": 40, "nanoseconds": 8_000_000_000}
    watch.now += 1000
    again = Limited(items, count=10, nbytes=80, seconds=9.0, size_of=lambda _: 10, clock=watch)
    again.setstate(state)
    assert next(again) == 4
    watch.now += 1
    assert next(again, None) is None
    assert again.reason == "time"
    again.setstate(None)
    assert next(again) == 5
    by_count = Limited(items, count=10)
    by_count.setstate(state)
    assert len(list(by_count)) == 6


@pytest.mark.parametrize(
    "state",
    [7, {}, {"version": 2, "count": 0, "bytes": 0, "nanoseconds": 0},
     {"version": 1, "count": -1, "bytes": 0, "nanoseconds": 0},
     {"version": 1, "count": "1", "bytes": 0, "nanoseconds": 0},
     {"version": 1, "count": 1, "bytes": 0}],
)  # fmt: skip
def test_states_that_are_none(state: Any) -> None:  # noqa: ANN401 - anything is tried
    with pytest.raises(StateError):
        Limited(range(3)).setstate(state)


@pytest.mark.parametrize(
    "options",
    [{"count": -1}, {"nbytes": -1, "size_of": len}, {"seconds": -0.1, "clock": Watch()},
     {"seconds": float("nan"), "clock": Watch()}, {"nbytes": 3}, {"seconds": 3}],
)  # fmt: skip
def test_limits_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Limited(range(3), **options)


def test_threads_share_a_limit_exactly() -> None:
    limited = Limited(range(10_000), count=1000)
    found: list[list[int]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=found[k].extend, args=(limited,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(item for items in found for item in items) == list(range(1000))


def test_the_head_of_a_sequential_stage() -> None:
    inner = named_filter(CounterSource(50), "less", {"field": "index", "value": 9})
    for count, expected in ((0, 0), (5, 5), (9, 9), (20, 9)):
        head = Head(inner, count)
        state, found = head.initial, list[int]()
        while True:
            block, state = head.take(state, 2)
            if not len(block["index"]):
                break
            found.extend(np.asarray(block["index"]).tolist())
        assert found == list(range(expected))
    for wrong in ((-1, 0), (6, 0), (0,)):
        with pytest.raises(StateError):
            Head(inner, 5).take(wrong, 1)
    with pytest.raises(OptionError):
        Head(inner, -1)
