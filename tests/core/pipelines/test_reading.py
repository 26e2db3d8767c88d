"""Batches that are read in runs are those that steps make, one by one."""

from __future__ import annotations

import random
import time

import pytest

from core.arrays import Indices
from core.errors import TransformError
from core.iterate.base import Block, State
from core.iterate.sources import CounterSource
from core.pipelines import reading
from core.pipelines.pipeline import Pipeline, Step
from tests.core.pipelines.test_pipeline import BATCH, SOURCE, equal, make, steps
from tests.core.pipelines_made import Stages, built, built_over, random_stages
from tests.scale import half

MOST = 60


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs grow however slow the machine is."""
    monkeypatch.setattr(reading, "_SECONDS", 10.0)


def read(pipeline: Pipeline, state: State, rank: int = 0, world: int = 1) -> list[Step]:
    """Batches in runs, also of ragged items."""
    found: list[Step] = []
    vars(pipeline)["_run"] = 64
    reader = pipeline.reader(rank, world, time.perf_counter)
    while len(found) < MOST and (step := reader.step(state)) is not None:
        found.append(step)
        state = step.state
    return found


@pytest.mark.parametrize("part", range(20))
def test_runs_hold_the_batches_of_steps(part: int) -> None:
    for case in range(half(200) // 20 + 1):
        rng = random.Random(f"runs {part} {case}")  # noqa: S311 - a test
        pipeline = built(random_stages(rng))
        expected = steps(pipeline, most=MOST)
        first = rng.randrange(len(expected) + 1) if expected else 0
        state = expected[first - 1].state if first else pipeline.initial
        found = read(pipeline, state)[: len(expected) - first]
        assert len(found) == len(expected) - first
        assert all(map(equal, found, expected[first:]))


@pytest.mark.parametrize("last", ["keep", "drop", "pad", "wrap"])
def test_each_rank_gets_its_rows(last: str) -> None:
    stages: Stages = [
        SOURCE,
        {"op": "permute", "seed": 1, "epochs": 3},
        {"op": "batch", "size": 4, "last": last},
    ]
    pipeline = built(stages)
    for rank in range(3):
        state, expected = pipeline.initial, []
        while (step := pipeline.step(state, rank, 3)) is not None:
            expected.append(step)
            state = step.state
        found = read(pipeline, pipeline.initial, rank, 3)
        assert len(found) == len(expected) > 10
        assert all(map(equal, found, expected))


@pytest.mark.parametrize("every", [2, 3, 7])
def test_runs_of_every_nth_batch(every: int) -> None:
    for case in range(8):
        rng = random.Random(f"every {every} {case}")  # noqa: S311 - a test
        pipeline = built(random_stages(rng))
        vars(pipeline)["_run"] = 64
        expected = steps(pipeline, most=MOST)
        reader = pipeline.reader(clock=time.perf_counter, every=every)
        states = [pipeline.initial, *(step.state for step in expected)]
        for want, state in zip(expected[::every], states[::every], strict=False):
            found = reader.step(state)
            assert found is not None
            assert equal(found, want)


class Counted(CounterSource):
    """Counts the calls that read items, and fails at one of them."""

    calls: list[int]
    fails_at = -1

    def at(self, positions: Indices) -> Block:
        self.calls.append(len(positions))
        if self.fails_at in positions:
            raise TransformError("no such item")
        return super().at(positions)


def counted(items: int, fails_at: int = -1) -> tuple[Pipeline, list[int]]:
    source = Counted(items)
    source.calls, source.fails_at = [], fails_at
    return built_over([SOURCE, BATCH], source), source.calls


def lengths(pipeline: Pipeline, calls: list[int]) -> list[int]:
    """Items of each call that reads all batches."""
    reader, state = pipeline.reader(clock=time.perf_counter), pipeline.initial
    calls.clear()
    while (step := reader.step(state)) is not None:
        state = step.state
    return calls


def test_runs_hold_nothing_that_is_passed_over() -> None:
    pipeline, calls = counted(400)
    reader = pipeline.reader(clock=time.perf_counter, every=10)
    found = [reader.step((n,)) for n in range(5, 100, 10)]
    assert [step.sequence for step in found if step] == list(range(5, 100, 10))
    assert calls == [4, 8, 16, 12]


def test_runs_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lengths(*counted(4000))[:8] == [4, 8, 16, 32, 64, 128, 256, 256]
    monkeypatch.setattr("core.pipelines.pipeline.RUN_BYTES", 1)
    assert set(lengths(*counted(400))) == {4}


def test_slow_batches_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SECONDS", 0.0)
    assert set(lengths(*counted(400))) == {4}


def test_without_a_clock_each_batch_is_read_alone() -> None:
    pipeline, calls = counted(400)
    state = pipeline.initial
    reader = pipeline.reader()
    while (step := reader.step(state)) is not None:
        state = step.state
    assert set(calls) == {4}


def test_another_state_begins_anew() -> None:
    pipeline, calls = counted(4000)
    reader = pipeline.reader(clock=time.perf_counter)
    for state in ((0,), (1,), (50,), (51,), (7,)):
        step = reader.step(state)
        assert step is not None
        assert step.sequence == state[0]
    assert calls == [4, 8, 4, 8, 4]


def test_batches_before_a_failure_are_returned() -> None:
    pipeline, _ = counted(400, fails_at=101)
    reader, state = pipeline.reader(clock=time.perf_counter), pipeline.initial
    for _ in range(25):
        step = reader.step(state)
        assert step is not None
        state = step.state
    with pytest.raises(TransformError):
        reader.step(state)


def test_ragged_items_are_read_batch_by_batch() -> None:
    ragged, fixed = make(SOURCE, BATCH), make({**SOURCE, "fields": ["k", "x"]}, BATCH)
    assert vars(ragged)["_run"] == 1
    assert vars(fixed)["_run"] > 64


def test_padding_to_the_longest_of_a_batch_is_that_of_steps() -> None:
    pipeline = make(SOURCE, BATCH, {"op": "pad"})
    assert all(map(equal, read(pipeline, pipeline.initial), steps(pipeline, most=MOST)))
