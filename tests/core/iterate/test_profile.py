"""How long stages take, told apart."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from core.arrays import Indices
from core.errors import PositionError
from core.iterate.base import Block, Indexed, Ragged
from core.iterate.columns import block_bytes
from core.iterate.iterator import BlockIterator
from core.iterate.mapping import named_filter
from core.iterate.positions import Permute, Range
from core.iterate.sources import CounterSource
from core.iterate.wrapped import Profile, timed


class Watch:
    """A clock that is turned by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(CounterSource):
    """A source that takes a second a call."""

    def __init__(self, n: int, watch: Watch) -> None:
        super().__init__(n)
        self.watch = watch

    def at(self, positions: Indices) -> Block:
        self.watch.now += 1
        return super().at(positions)


class SlowPermute(Permute):
    """A stage that takes half a second a call, beside its source."""

    def __init__(self, inner: Indexed, watch: Watch) -> None:
        super().__init__(inner)
        self.watch = watch

    def at(self, positions: Indices) -> Block:
        self.watch.now += 0.5
        return super().at(positions)


def test_stages_are_told_apart() -> None:
    watch = Watch()
    profile = Profile(watch)
    source = timed(Slow(10, watch), profile, "source")
    permuted = timed(SlowPermute(source, watch), profile, "permute")
    for size in (2, 3):
        permuted.at(np.arange(size))
    report = json.loads(json.dumps(profile.report()))
    assert report == {
        "source": {"calls": 2, "seconds": 2.0, "own_seconds": 2.0, "items": 5, "bytes": 40},
        "permute": {"calls": 2, "seconds": 3.0, "own_seconds": 1.0, "items": 5, "bytes": 40},
    }


def test_timed_stages_are_the_same_stages() -> None:
    profile = Profile(Watch())
    plain = named_filter(Permute(CounterSource(30)), "less", {"field": "index", "value": 12})
    again = timed(plain, profile, "filter")
    assert again.schema == plain.schema
    one = [block["index"].tolist() for block in BlockIterator(plain, size=5)]  # type: ignore[union-attr]
    two = [block["index"].tolist() for block in BlockIterator(again, size=5)]  # type: ignore[union-attr]
    assert one == two
    assert profile.report()["filter"]["items"] == 12
    indexed = timed(CounterSource(3), profile, "source")
    assert indexed.length == 3


def test_failures_are_timed_and_passed_on() -> None:
    watch = Watch()
    profile = Profile(watch)
    source = timed(Slow(3, watch), profile, "source")
    with pytest.raises(PositionError):
        source.at(np.array([3]))
    assert profile.report()["source"] == {
        "calls": 1, "seconds": 1.0, "own_seconds": 1.0, "items": 0, "bytes": 0,
    }  # fmt: skip


def test_threads_share_a_profile() -> None:
    profile = Profile(Watch())
    stage = timed(Range(timed(CounterSource(9), profile, "source")), profile, "range")

    def work() -> None:
        for _ in range(100):
            stage.at(np.arange(4))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: times["items"] for name, times in profile.report().items()} == {
        "source": 1600,
        "range": 1600,
    }


def test_bytes_count_offsets() -> None:
    column = Ragged(np.zeros(5, np.int16), np.array([0, 2, 5]))
    assert block_bytes({"a": np.zeros((2, 3), "f4"), "r": column}) == 24 + 10 + 24
