"""Random pipelines of hostile sizes: memory stays bounded, work ends when told, tokens hold."""

from __future__ import annotations

import random
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits, RequestBudget
from core.budget import Scope
from core.errors import BudgetExceededError, CancelledError, CoreError, PipelineError
from core.iterate.base import Block, Indexed, Ragged, State
from core.iterate.sources import ArraySource
from core.pipelines.pipeline import Pipeline, build_pipeline, parse_pipeline
from tests.core.pipelines_made import same
from tests.scale import SOAK

pytestmark = pytest.mark.once

COUNT = 500 if SOAK else 16
MEMORY = 32 << 20
LIMITS = BudgetLimits(memory=MEMORY, cpu_seconds=0.25, items=1 << 22)
STEPS = 3
PATIENCE = 30.0
CANCEL_SECONDS = 0.5
SPREAD = (1, 3, 10, 100, 1000, 30_000, 1 << 20)

Stages = list[dict[str, Any]]


def source_of(longest: int) -> ArraySource:
    """Items with a number, some pixels and a ragged field of up to ``longest`` elements."""
    rng = np.random.default_rng(longest)
    n = 50
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, longest + 1, n))]).astype(np.int64)
    return ArraySource(
        {
            "x": np.arange(n),
            "v": rng.random((n, 4)).astype(np.float32),
            "r": Ragged(rng.integers(0, 99, offsets[-1]).astype(np.int16), offsets),
        }
    )


SOURCES = {"short": source_of(20), "long": source_of(40_000), "longer": source_of(400_000)}


def open_source(dataset: str, options: Mapping[str, Any]) -> Indexed:
    del options
    return SOURCES[dataset]


def hostile_stages(rng: random.Random) -> Stages:
    """Options from one to the largest there are."""
    size = rng.choice
    source: dict[str, Any] = {"op": "source", "dataset": size(list(SOURCES))}
    fields = size([None, ["x"], ["x", "r"], ["x", "v"]])
    if fields is not None:
        source["fields"] = fields
    first: dict[str, Any] = {"op": "mix", "inputs": [[source, {"op": "repeat", "times": 10**9}]]}
    if rng.random() < 0.3:
        first["order"] = "random"
    middle: Stages = [
        {"op": "permute", "seed": rng.randrange(9)},
        {"op": "shuffle", "kind": size(["block", "overlap", "reservoir"]), "size": size(SPREAD)},
        {"op": "map", "fn": "scale", "args": {"field": "x", "factor": 3}},
        {"op": "map", "fn": "scale", "args": {"field": "v", "factor": 3}},
        {"op": "filter", "pred": "less", "args": {"field": "x", "value": size([-1, 2, 30, 99])}},
        {"op": "select_many", "field": "r"},
        {"op": "window", "width": size([1, 8, 1000, 1 << 16]), "stride": size([1, 7])},
        {"op": "scan", "fn": "cumsum", "field": "x"},
    ]
    stages = [first, *(stage for stage in middle if rng.random() < 0.25)]
    if rng.random() < 0.25:
        ahead = size([64, 10_000, 1_000_000])
        bucket = {"op": "bucket_batch", "read_ahead": ahead, "key": size(["x", "r"])}
        stages.append({**bucket, "size": min(size(SPREAD), ahead)})
    else:
        stages.append({"op": "batch", "size": size(SPREAD)})
    if rng.random() < 0.5:
        pad: dict[str, Any] = size([{}, {"multiple": size([8, 1 << 20])}, {"length": size(SPREAD)}])
        stages.append({"op": "pad", **pad, **({"truncate": True} if "length" in pad else {})})
    return stages


def drawn(seed: int) -> Pipeline:
    """The first pipeline from a seed that is accepted."""
    rng = random.Random(seed)  # noqa: S311 - repeatable
    while True:
        try:
            spec = parse_pipeline({"order": 1, "stages": hostile_stages(rng)})
            return build_pipeline(spec, open_source)
        except PipelineError:
            continue


@contextmanager
def allowance(limits: BudgetLimits = LIMITS) -> Iterator[tuple[RequestBudget, threading.Event]]:
    gone = threading.Event()
    with Budgets(limits).of_request("ann", gone) as budget:
        yield budget, gone


def run(pipeline: Pipeline, state: State, steps: int) -> tuple[list[Block], State]:
    """Up to so many batches, as a request would read them, and the state after them."""
    blocks: list[Block] = []
    with allowance() as (request, _), request.in_thread() as budget:
        try:
            for _ in range(steps):
                with Scope():
                    step = pipeline.step(state)
                if step is None:
                    break
                budget.renew()
                blocks.append(step.block)
                state = step.state
        except BudgetExceededError as e:
            named = e.stage_name, e.setting
            if not all(named):
                raise
    return blocks, state


@pytest.mark.parametrize("seed", range(COUNT))
def test_memory_is_bounded_and_the_token_resumes(seed: int) -> None:
    pipeline = drawn(seed)
    run(pipeline, pipeline.initial, 1)  # what is compiled or imported once is not counted
    tracemalloc.start()
    try:
        blocks, state = run(pipeline, pipeline.initial, STEPS)
        held = sum(nbytes_of(block) for block in blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= pipeline.memory + MEMORY + held, pipeline.spec.to_json()
    again, after = run(drawn(seed), pipeline.initial, 1)
    if len(blocks) > 1 and again:
        rest, _ = run(drawn(seed), after, len(blocks) - 1)
        for one, other in zip(blocks[1:], rest, strict=False):
            assert same(one, other)
    pipeline.check(state)


def nbytes_of(block: Block) -> int:
    return sum(
        c.values.nbytes + c.offsets.nbytes if isinstance(c, Ragged) else c.nbytes
        for c in block.values()
    )


@pytest.mark.parametrize("seed", range(COUNT))
def test_work_ends_wherever_it_is_when_the_client_leaves(seed: int) -> None:
    pipeline = drawn(seed)
    if SOAK:
        run(pipeline, pipeline.initial, 1)  # kernels are loaded when a server starts
    limits = BudgetLimits(memory=1 << 28, cpu_seconds=1e9, items=1 << 62)
    with allowance(limits) as (request, gone):
        ended: list[float] = []

        def work() -> None:
            state = pipeline.initial
            try:
                with request.in_thread():
                    while True:
                        with Scope():
                            step = pipeline.step(state)
                        state = pipeline.initial if step is None else step.state
            except CoreError:
                ended.append(time.monotonic())

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join((seed % 20) / 100)
        left = time.monotonic()
        gone.set()
        thread.join(PATIENCE)
        assert not thread.is_alive(), pipeline.spec.to_json()
        assert not SOAK or ended[0] - left < CANCEL_SECONDS


def test_batches_of_a_window_that_is_in_memory_end_with_their_client() -> None:
    source = {"op": "source", "dataset": "short", "fields": ["x"]}
    bucket = {"op": "bucket_batch", "read_ahead": 50, "key": "x", "size": 1}
    spec = parse_pipeline({"order": 1, "stages": [source, bucket]})
    pipeline = build_pipeline(spec, open_source)
    with allowance() as (request, gone), request.in_thread():
        step = pipeline.step(pipeline.initial)
        assert step is not None
        gone.set()
        with pytest.raises(CancelledError):
            pipeline.step(step.state)
