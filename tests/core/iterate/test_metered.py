"""Stages under a budget: what they are asked for is counted, and what they hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from core.arrays import Indices
from core.budget import installed
from core.errors import BudgetExceededError, CancelledError
from core.iterate.base import Block, Indexed, Ragged, in_order
from core.iterate.batching import BucketBatch
from core.iterate.collate import Padding, collate
from core.iterate.columns import block_bytes, offsets_of, take_block
from core.iterate.mapping import Filter, named_filter, named_map
from core.iterate.mixing import Mix, RandomMix
from core.iterate.positions import Permute, Range, Window
from core.iterate.selecting import SelectMany
from core.iterate.shuffle import ReservoirShuffle
from core.iterate.sources import ArraySource, CounterSource
from core.iterate.wrapped import metered
from core.pipelines.stage import Batching, StageSpec
from core.pipelines.stepping import SequentialStepper


class Meter:
    """A budget of bytes that notes what happens.

    Attributes:
        room: most bytes.
        calls: checks after which the work is cancelled.
    """

    def __init__(self, room: int = 1 << 60, calls: int = 1 << 60) -> None:
        self.held = 0
        self.peak = 0
        self.items: list[tuple[str, int]] = []
        self.room = room
        self.calls = calls

    def check(self, stage: str) -> None:
        self.spend(stage, 0)

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        del seconds
        self.calls -= 1
        if self.calls < 0:
            raise CancelledError("nobody waits")
        if items:
            self.items.append((stage, items))

    def hold(self, stage: str, nbytes: int) -> None:
        if self.held + nbytes > self.room:
            raise BudgetExceededError("too much", stage_name=stage, budget="memory")
        self.held += nbytes
        self.peak = max(self.peak, self.held)

    def release(self, nbytes: int) -> None:
        self.held -= nbytes

    def renew(self) -> None:
        pass


@pytest.fixture
def meter() -> Iterator[Meter]:
    meter = Meter()
    with installed(meter):
        yield meter


class Untouched(CounterSource):
    """A source that must not be read."""

    def at(self, positions: Indices) -> Block:
        raise AssertionError(f"{len(positions)} items were read")


def _plain(block: Block) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    column = block["index"]
    assert not isinstance(column, Ragged)
    return column


def lines(length: int, count: int = 3) -> ArraySource:
    """Ragged items, all of one length."""
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return ArraySource({"text": Ragged(np.zeros(count * length, np.uint8), offsets)})


def test_items_are_counted_for_each_stage(meter: Meter) -> None:
    stage: Indexed = metered(CounterSource(None), "0.source")
    stage = metered(Permute(Range(stage, stop=100), seed=1), "1.permute")
    stage.at(np.arange(7))
    assert meter.items == [("1.permute", 7), ("0.source", 7)]


def test_a_result_is_held_by_the_caller_and_all_else_is_released(meter: Meter) -> None:
    source = metered(CounterSource(None), "0.source")
    mapped = named_map(source, "scale", {"field": "index", "factor": 2})
    assert isinstance(mapped, Indexed)
    block = metered(mapped, "1.map").at(np.arange(1000))
    assert meter.held == block_bytes(block) == 8000


def test_what_does_not_fit_is_refused_before_it_is_read(meter: Meter) -> None:
    meter.room = 1 << 20
    stage = metered(Untouched(None), "0.source")
    with pytest.raises(BudgetExceededError) as info:
        stage.at(np.arange(1 << 18))
    assert info.value.stage_name == "0.source"
    assert meter.held == 0


def test_windows_are_refused_before_their_positions_are_listed(meter: Meter) -> None:
    meter.room = 1 << 20
    stage = Window(Untouched(None), width=1 << 16)
    with pytest.raises(BudgetExceededError):
        stage.at(np.arange(1 << 20))


def test_ragged_items_count_as_long_as_they_are(meter: Meter) -> None:
    meter.room = 1 << 22
    stage = metered(lines(1 << 19), "0.source")
    assert block_bytes(stage.at(np.arange(3))) > 3 << 19
    with pytest.raises(BudgetExceededError):
        stage.at(np.zeros(100, np.int64))


def test_padding_is_refused_before_it_is_made(meter: Meter) -> None:
    meter.room = 1 << 20
    block = lines(10).at(np.arange(3))
    with pytest.raises(BudgetExceededError) as info:
        collate(block, Padding(length=1 << 24))
    assert info.value.stage_name == "pad"


def test_a_filter_holds_what_passed_and_not_what_it_read(meter: Meter) -> None:
    source = metered(CounterSource(1 << 20), "0.source")
    stage = named_filter(source, "greater", {"field": "index", "value": (1 << 20) - 3})
    block, _ = stage.take(stage.initial, 10)
    assert np.array_equal(_plain(block), [(1 << 20) - 2, (1 << 20) - 1])
    assert meter.peak <= 1 << 21


def test_copies_and_indices_are_held_while_items_are_put_in_order(meter: Meter) -> None:
    count = 1 << 17
    mix = metered(Mix([CounterSource(count), CounterSource(count)]), "0.mix")
    positions = np.arange(count)
    tracemalloc.start()
    try:
        mix.at(positions)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= meter.peak < 2 * taken
    assert meter.held == 8 * count


def test_a_filter_without_end_can_be_cancelled(meter: Meter) -> None:
    meter.calls = 100
    stage = Filter(
        metered(CounterSource(None), "0.source"), lambda b: np.zeros(len(b["index"]), bool)
    )
    with pytest.raises(CancelledError):
        stage.take(stage.initial, 1)


@pytest.mark.once
def test_elements_and_random_draws_count_one_turn_at_a_time(meter: Meter) -> None:
    many = SelectMany(metered(lines(1000, 2000), "0.source"), field="text")
    block, _ = many.take(many.initial, 2_000_000)
    assert block_bytes(block) == 2_000_000
    assert meter.peak < 10 * 2_000_000
    mix = RandomMix([metered(CounterSource(None), "a"), metered(CounterSource(None), "b")])
    meter.release(meter.held)
    mix.take(mix.initial, 1 << 18)
    assert meter.held < 3 << 21


def test_a_mix_and_a_window_of_items_are_held(meter: Meter) -> None:
    mix = metered(Mix([metered(lines(1000), "a"), metered(lines(1000), "b")]), "1.mix")
    assert meter.held == 0
    block = mix.at(np.arange(6))
    assert meter.held == block_bytes(block)
    buckets = BucketBatch(mix, read_ahead=6, key="text", size=2)
    assert buckets.next_batch(buckets.initial) is not None


def test_gathering_long_items_in_stretches_gives_the_same_items() -> None:
    rng = np.random.default_rng(5)
    lengths = np.array([0, 400_000, 3, 0, 150_000, 150_000, 7, 300_000, 1])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = rng.integers(0, 255, (int(offsets[-1]), 2)).astype(np.uint8)
    column = Ragged(values, offsets)
    order = rng.integers(0, len(lengths), 30)
    taken = take_block({"x": column}, order)["x"]
    assert isinstance(taken, Ragged)
    for k, index in enumerate(order.tolist()):
        assert np.array_equal(taken[k], column[index])


def test_indices_of_gathered_elements_are_held_while_they_are_needed() -> None:
    lengths = np.full(100, 5_000)
    column = Ragged(np.zeros(int(lengths.sum()), np.int16), offsets_of(lengths))
    order = np.arange(len(lengths))[::-1].copy()
    take_block({"x": column}, order)  # what is imported once is not counted
    meter = Meter()
    tracemalloc.start()
    try:
        with installed(meter):
            taken = take_block({"x": column}, order)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert meter.held == taken["x"].values.nbytes  # type: ignore[union-attr]
    # Offsets and starts of the items are the stage's own to count.
    assert peak <= meter.peak + 100 * len(lengths)


@pytest.mark.parametrize("width", [1, 7, 300_000])
def test_padding_in_stretches_gives_the_same_array(width: int) -> None:
    rng = np.random.default_rng(6)
    lengths = rng.integers(0, width + 1, 200 if width < 10 else 3)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    column = Ragged(rng.integers(0, 99, int(offsets[-1])).astype(np.int16), offsets)
    block = collate({"x": column}, Padding(length=width, value=-1))
    padded = block["x"]
    assert not isinstance(padded, Ragged)
    for k, length in enumerate(lengths.tolist()):
        assert np.array_equal(padded[k, :length], column[k])
        assert (padded[k, length:] == -1).all()


def test_functions_of_many_elements_give_the_same_in_stretches() -> None:
    values = np.arange(3 << 20, dtype=np.int32).reshape(-1, 3)
    source = ArraySource({"v": values})
    stage = named_map(source, "clip", {"field": "v", "low": 5, "high": 90_000, "dtype": "u4"})
    assert isinstance(stage, Indexed)
    result = stage.at(np.arange(len(values)))["v"]
    assert not isinstance(result, Ragged)
    assert np.array_equal(result, np.clip(values, 5, 90_000).astype("u4"))


def test_the_scan_that_fills_a_reservoir_is_cancelled_between_stretches(
    meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = ReservoirShuffle(CounterSource(10**6), size=100, seed=1)
    want, _ = stage.take((5000,), 3)
    monkeypatch.setattr("core.iterate.shuffle._DRAWS", 7)
    meter.calls = 1000
    again, _ = ReservoirShuffle(CounterSource(10**6), size=100, seed=1).take((5000,), 3)
    assert np.array_equal(np.asarray(again["index"]), np.asarray(want["index"]))
    assert meter.calls < 1000 - 100 // 7
    meter.calls = 10
    with pytest.raises(CancelledError):
        ReservoirShuffle(CounterSource(10**6), size=100, seed=1).take((5000,), 3)


def test_batches_kept_for_the_next_step_are_held(meter: Meter) -> None:
    batch = StageSpec("batch", {}, (), 1, "")
    stepper = SequentialStepper(lambda _: in_order(CounterSource(1 << 16)), Batching(1024), batch)
    step = stepper.step(stepper.initial, lambda total: (0, total))
    assert step is not None
    before = meter.held
    stepper.step(step.state, lambda total: (0, total))
    # The batch of the first step, and the one after it.
    assert meter.held - before >= 2 * 1024 * 8


def test_a_window_kept_for_its_next_batch_is_held(meter: Meter) -> None:
    source = CounterSource(1 << 16)
    stage = BucketBatch(source, read_ahead=4096, key=source.schema[0].name, size=16)
    made = stage.next_batch(stage.initial)
    assert made is not None
    before = meter.held
    stage.next_batch(made[1])
    assert meter.held - before >= 2 * 4096 * 8
