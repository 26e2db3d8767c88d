"""The order of pipelines, against the batches themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.console.order import order_of
from core.iterate.sources import ArraySource
from core.pipelines.pipeline import build_pipeline, parse_pipeline

SOURCE = {"op": "source", "dataset": "a"}
ABSOLUTE = {"op": "map", "fn": "absolute", "args": {"field": "data"}}
BATCH = {"op": "batch", "size": 4}
COUNT = 100


def described(*stages: dict[str, Any]) -> dict[str, Any]:
    spec = parse_pipeline({"order": 1, "stages": [*stages]}).to_json()
    return {"spec": spec, "sources": [{"dataset": "a", "options": {}, "count": COUNT}]}


@pytest.mark.parametrize(
    "stages",
    [
        [SOURCE, BATCH],
        [SOURCE, ABSOLUTE, {"op": "permute", "seed": 7, "epochs": 2}, BATCH],
        [{**SOURCE, "range": [10, 90]}, {"op": "shuffle", "size": 8, "kind": "reservoir"}, BATCH],
        [SOURCE, {"op": "shuffle", "size": 16}, {**BATCH, "size": 7, "last": "pad"}],
        [SOURCE, {"op": "shard", "of": 3, "index": 1, "mode": "stride"}, BATCH],
        [{"op": "mix", "inputs": [[SOURCE], [SOURCE, ABSOLUTE, {"op": "permute"}]]}, BATCH],
        [SOURCE, {"op": "scan", "fn": "cumsum", "field": "data"}, BATCH],
    ],
)
def test_it_is_that_of_the_items(stages: list[dict[str, Any]]) -> None:
    spec = parse_pipeline({"order": 1, "stages": stages})
    places = ArraySource({"data": np.arange(COUNT), "place": np.arange(COUNT)})
    pipeline = build_pipeline(spec, lambda _dataset, _options: places)
    found, state = [], pipeline.initial
    while (step := pipeline.step(state)) is not None:
        found.append(np.asarray(step.block["place"])[: step.count].tolist())
        state = step.state
    order = order_of(described(*stages))
    assert order is not None
    assert order.batches == found


def test_what_values_decide_is_not_known_without_them() -> None:
    some = {"op": "filter", "pred": "nonzero", "args": {"field": "data"}}
    for stages in (
        [SOURCE, some, BATCH],
        [{"op": "mix", "inputs": [[SOURCE], [SOURCE, some]]}, BATCH],
    ):
        spec = {"spec": {"order": 1, "stages": stages}, "sources": []}
        assert order_of(spec) is None


def test_long_ones_are_looked_at_in_part() -> None:
    pipeline = described(SOURCE, {"op": "repeat", "times": None}, {**BATCH, "size": 1000})
    order = order_of(pipeline)
    assert order is not None
    facts = dict(order.facts())
    assert facts["Items looked at"].startswith("1,0")
    assert facts["Different ones"] == "100"
    assert facts["Places in the data"] == "0 to 99"


def test_facts_tell_a_shuffled_order_from_none() -> None:
    plain, mixed = (
        dict(order.facts())
        for order in map(
            order_of, (described(SOURCE, BATCH), described(SOURCE, {"op": "permute"}, BATCH))
        )
        if order
    )
    assert plain["Next to the one before"] == "100.0%"
    assert plain["Correlation of order and place"].startswith("1.000")
    assert plain["Median step from one to the next"] == "1"
    assert float(mixed["Correlation of order and place"].split()[0]) < 0.3
