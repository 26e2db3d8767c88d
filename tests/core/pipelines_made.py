"""Random pipelines over small data, for tests of all there can be."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from core.errors import PipelineError
from core.iterate.base import Block, Indexed, Ragged
from core.iterate.sources import ArraySource, CounterSource
from core.pipelines.pipeline import Pipeline, build_pipeline, parse_pipeline

SIZES = {"a": 23, "b": 40, "c": 7}

Stages = list[dict[str, Any]]


def array_source(name: str) -> ArraySource:
    """Items with a number, a float, a class and a ragged field; different for each name."""
    n = SIZES[name]
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, 6, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ArraySource(
        {
            "x": np.arange(n),
            "v": rng.random(n).astype(np.float32),
            "k": rng.integers(0, 4, n),
            "r": Ragged(rng.integers(0, 99, offsets[-1]).astype(np.int16), offsets),
        }
    )


def open_source(dataset: str, _options: Mapping[str, Any]) -> Indexed:
    """The data of a test: arrays by name, and a counter without end."""
    return CounterSource(None) if dataset == "endless" else array_source(dataset)


def built(stages: Stages) -> Pipeline:
    """A pipeline made from JSON, nothing shared with any other."""
    return build_pipeline(parse_pipeline({"order": 1, "stages": stages}), open_source)


def built_over(stages: Stages, source: Indexed) -> Pipeline:
    """A pipeline over one source, whatever dataset it names."""
    spec = parse_pipeline({"order": 1, "stages": stages})
    return build_pipeline(spec, lambda _dataset, _options: source)


def random_stages(rng: random.Random) -> Stages:
    """A pipeline that can be; most ops are drawn with a chance of about a third."""
    while True:
        stages = _drawn(rng)
        try:
            pipeline = built(stages)
            pipeline.step(pipeline.initial)
        except PipelineError:
            continue
        return stages


def _source(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"op": "source", "dataset": rng.choice("abc")}
    if rng.random() < 0.3:
        made["range"] = [rng.randrange(3), rng.randrange(4, 8)]
    if rng.random() < 0.3:
        made["fields"] = ["k", "x"]
    return made


def _seed(rng: random.Random) -> int:
    return rng.randrange(1 << 63)


def _first(rng: random.Random) -> dict[str, Any]:
    draw = rng.random()
    if draw < 0.7:
        return _source(rng)
    inputs: list[Stages] = []
    for _ in range(rng.randrange(1, 4)):
        chain: Stages = [_source(rng)]
        if rng.random() < 0.4:
            chain.append({"op": "permute", "seed": _seed(rng), "epochs": rng.choice([1, 2])})
        if rng.random() < 0.2:
            chain.append({"op": "shuffle", "kind": "reservoir", "size": 4, "seed": _seed(rng)})
        inputs.append(chain)
    if draw < 0.85:
        names = [f"n{k}" for k in range(len(inputs))]
        return {"op": "zip", "inputs": inputs, "names": names}
    return {
        "op": "mix",
        "inputs": inputs,
        "weights": [rng.randrange(1, 4) for _ in inputs],
        "order": rng.choice(["quota", "random"]),
        "stop": rng.choice(["first", "all", "cycle"]),
        "seed": _seed(rng),
    }


def _items(rng: random.Random, x: str, r: str) -> Stages:
    """Stages between the source and the batches, in an order that is often possible."""
    permute = {"op": "permute", "seed": _seed(rng), "epochs": rng.choice([1, 2, 3])}
    choices: Stages = [
        {"op": "shard", "of": 2, "index": rng.randrange(2), "mode": "stride"},
        {"op": "split", "part": rng.choice(["train", "validation"]), "fraction": 0.4},
        rng.choice([permute, permute, {"op": "repeat", "times": rng.choice([2, 3])}]),
        {"op": "map", "fn": "scale", "args": {"field": x, "factor": 3}},
        {"op": "map", "fn": "uniform", "args": {"to": "u"}, "seed": _seed(rng)},
        {
            "op": "shuffle",
            "kind": rng.choice(["block", "overlap", "reservoir"]),
            "size": rng.randrange(1, 12),
            "seed": _seed(rng),
        },
        {"op": "filter", "pred": "less", "args": {"field": x, "value": rng.randrange(4, 30)}},
        {"op": "select_many", "field": r},
        {"op": "window", "width": rng.randrange(1, 4), "stride": rng.randrange(1, 3)},
        {"op": "scan", "fn": rng.choice(["cumsum", "welford", "count"]), "field": x},
        {"op": "prefetch", "depth": 2},
        {"op": "limit", "count": rng.randrange(1, 30)},
    ]
    return [each for each in choices if rng.random() < 0.22]


def _drawn(rng: random.Random) -> Stages:
    first = _first(rng)
    prefix = "n0." if first["op"] == "zip" else ""
    stages = [first, *_items(rng, f"{prefix}x", f"{prefix}r")]
    if rng.random() < 0.2:
        bucket = {
            "op": "bucket_batch", "read_ahead": rng.randrange(4, 12), "key": f"{prefix}r",
            "size": rng.randrange(1, 5),
        }  # fmt: skip
        stages.append(bucket | rng.choice([{"shuffle": False}, {"seed": _seed(rng)}]))
    else:
        last = rng.choice(["keep", "drop", "pad", "wrap"])
        stages.append({"op": "batch", "size": rng.randrange(2, 10), "last": last})
    if rng.random() < 0.3:
        stages.append({"op": "pad", **rng.choice([{}, {"multiple": 4}, {"length": 9}])})
    if rng.random() < 0.2:
        stages.append({"op": "epoch", "size": rng.randrange(1, 5)})
    endless = first.get("stop") == "cycle"
    if endless or rng.random() < 0.2:
        stages.append({"op": "limit", "count": rng.randrange(1, 9)})
    return stages


def same(one: Block, other: Block) -> bool:
    """Whether two blocks are equal to the bit, dtypes and order of fields too."""
    if list(one) != list(other):
        return False
    for name, column in one.items():
        twin = other[name]
        if isinstance(column, Ragged):
            if not isinstance(twin, Ragged) or not np.array_equal(column.offsets, twin.offsets):
                return False
            column, twin = column.values, twin.values  # noqa: PLW2901 - compared as arrays
        if isinstance(twin, Ragged) or column.dtype != twin.dtype:
            return False
        if column.shape != twin.shape or column.tobytes() != twin.tobytes():
            return False
    return True
