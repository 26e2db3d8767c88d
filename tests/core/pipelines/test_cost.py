"""The declared memory of a pipeline is an upper bound of what a step takes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.errors import PipelineError
from core.iterate.base import Indexed
from core.iterate.sources import ArraySource
from core.pipelines.cost import Demand, item_bytes
from core.pipelines.pipeline import Pipeline, build_pipeline, parse_pipeline
from tests.scale import examples

COUNT = 2000
STEPS = 3
SOURCES = {
    "narrow": ArraySource({"x": np.arange(COUNT), "v": np.zeros(COUNT, np.float32)}),
    "wide": ArraySource({"x": np.arange(COUNT), "v": np.zeros((COUNT, 512), np.float32)}),
}


def drawn(rng: random.Random) -> Pipeline:
    """A pipeline of items of fixed sizes, large enough that arrays are most of its memory."""
    while True:
        try:
            spec = parse_pipeline({"order": 1, "stages": _stages(rng)})
            return build_pipeline(spec, _open)
        except PipelineError:
            continue


def _open(dataset: str, options: Mapping[str, Any]) -> Indexed:
    del options
    return SOURCES[dataset]


def _stages(rng: random.Random) -> list[dict[str, Any]]:
    source: dict[str, Any] = {"op": "source", "dataset": rng.choice(list(SOURCES))}
    first: dict[str, Any] = rng.choice(
        [
            source,
            {"op": "mix", "inputs": [[source], [source]], "order": rng.choice(["quota", "random"])},
            {"op": "zip", "inputs": [[source], [source]], "names": ["a", "b"]},
        ]
    )
    prefix = "a." if first["op"] == "zip" else ""
    middle: list[dict[str, Any]] = [
        {"op": "split", "part": "train", "key": rng.choice([None, f"{prefix}x"])},
        rng.choice([{"op": "permute", "epochs": 3}, {"op": "repeat", "times": 3}]),
        {
            "op": "shuffle",
            "kind": rng.choice(["block", "overlap", "reservoir"]),
            "size": rng.choice([10, 1000, 100_000]),
        },
        {"op": "map", "fn": "scale", "args": {"field": f"{prefix}v", "factor": 2}},
        {"op": "map", "fn": "clip", "args": {"field": f"{prefix}x", "low": 0, "high": 9}},
        {"op": "map", "fn": "uniform", "args": {"to": "u"}},
        {"op": "filter", "pred": "less", "args": {"field": f"{prefix}x", "value": 1500}},
        {"op": "window", "width": rng.choice([2, 30]), "stride": rng.choice([1, 20])},
        {"op": "scan", "fn": "welford", "field": f"{prefix}x"},
    ]
    batch = {"op": "batch", "size": rng.choice([64, 700]), "last": rng.choice(["keep", "pad"])}
    bucket = {"op": "bucket_batch", "read_ahead": 900, "key": f"{prefix}x", "size": 64}
    chosen = [stage for stage in middle if rng.random() < 0.3]
    return [first, *chosen, bucket if rng.random() < 0.2 else batch]


def test_no_step_takes_more_than_is_declared() -> None:
    rng = random.Random(7)  # noqa: S311 - repeatable
    for _ in range(examples(25)):
        pipeline = drawn(rng)
        pipeline.step(pipeline.initial)  # what is loaded once is not counted
        state = pipeline.initial
        tracemalloc.start()
        try:
            for _ in range(STEPS):
                step = pipeline.step(state)
                if step is None:
                    break
                state = step.state
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= pipeline.memory, pipeline.spec.to_json()


@pytest.mark.parametrize(
    ("stage", "field"),
    [({"op": "window", "width": 1500}, "size"), ({"op": "split", "part": "train"}, "size")],
)
def test_a_large_batch_is_refused_with_its_windows(stage: dict[str, Any], field: str) -> None:
    window = {"op": "repeat"}
    stages = [{"op": "source", "dataset": "wide"}, window, stage, {"op": "batch", "size": 1 << 20}]
    if stage["op"] == "split":
        del stages[1]
    spec = parse_pipeline({"order": 1, "stages": stages})
    with pytest.raises(PipelineError) as info:
        build_pipeline(spec, _open)
    assert info.value.field == field


def test_a_demand_is_bounded_in_bytes_unless_one_item_is_larger() -> None:
    schema = SOURCES["wide"].schema
    size = item_bytes(schema)
    assert size == 8 + 4 * 512
    assert Demand(10).block_bytes(schema, 2) == 20 * size + 320
    assert Demand(10, 3 * size).block_bytes(schema, 1) == 3 * size + 320
    assert Demand(10, 1).block_bytes(schema, 1) == size + 320
