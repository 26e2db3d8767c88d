"""The order in which a pipeline hands out its items, found without reading any of its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.pipelines.sources import source_key
from core.iterate.sources import CounterSource
from core.pipelines.pipeline import build_pipeline, parse_pipeline

_LOOKED = 1024
"""Items whose order is looked at, and batches at most."""
_MOVING = {"source", "mix", "permute", "shuffle", "shard", "repeat", "epoch", "limit", "batch"}
_CHANGING = {"map", "scan"}
"""Change items, but not their order. What stands for them keeps the places of the others, on which
random numbers depend."""
_AFTER = {"pad", "prefetch"}
_SAME = {"op": "map", "fn": "select", "args": {"fields": ["index"]}}


@dataclass(frozen=True, slots=True)
class Order:
    """The first items of a pipeline.

    Attributes:
        batches: where each of their items is in the data; of a mix, in its own input.
    """

    batches: list[list[int]]

    @property
    def positions(self) -> NDArray[np.int64]:
        """The items of all batches, shape (k,)."""
        return np.concatenate([np.array(batch, np.int64) for batch in self.batches])

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield statistics of the order, by name."""
        positions = self.positions
        steps = np.diff(positions)
        distinct = len(np.unique(positions))
        yield "Items looked at", f"{len(positions):,}, in {len(self.batches):,} batches"
        yield "Different ones", f"{distinct:,}"
        yield "Places in the data", f"{positions.min():,} to {positions.max():,}"
        if len(steps):
            yield "Median step from one to the next", f"{np.median(abs(steps)):,.0f}"
            yield "Next to the one before", f"{np.mean(steps == 1):.1%}"
        if distinct > 1:
            related = np.corrcoef(np.arange(len(positions)), positions)[0, 1]
            yield "Correlation of order and place", f"{related:.3f} (1: in order; near 0: shuffled)"


def order_of(described: Mapping[str, Any]) -> Order | None:
    """Return the order of a pipeline, given as the service describes it.

    None if there are no items, or if their values decide which come, as in a filter.
    """
    stages = described["spec"]["stages"]
    if not _is_free_of_values(stages):
        return None
    counts = {
        _key(each["dataset"], each["options"]): each["count"] for each in described["sources"]
    }
    spec = parse_pipeline({"order": described["spec"]["order"], "stages": [*_bare(stages)]})
    pipeline = build_pipeline(spec, lambda key, options: CounterSource(counts[_key(key, options)]))
    batches: list[list[int]] = []
    state, left = pipeline.initial, _LOOKED
    while left > 0 and (step := pipeline.step(state)) is not None:
        index = cast("NDArray[np.int64]", step.block["index"])
        batches.append(index[: min(step.count, left)].tolist())
        state, left = step.state, left - max(step.count, 1)
    return Order(batches) if any(batches) else None


def _key(dataset: str, options: Mapping[str, Any]) -> str:
    return source_key(dataset, {**options, "fields": None})


def _is_free_of_values(stages: Sequence[Mapping[str, Any]]) -> bool:
    return all(
        stage["op"] in _MOVING | _CHANGING | _AFTER
        and all(map(_is_free_of_values, stage.get("inputs") or ()))
        for stage in stages
    )


def _bare(stages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield stages that do to places in the data what the given ones do to items."""
    for stage in stages:
        if stage["op"] in _CHANGING:
            yield _SAME
        elif stage["op"] == "source":
            kept = ("op", "dataset", "range", "unit", "view")
            yield {name: stage[name] for name in kept if stage.get(name) is not None}
        elif stage["op"] not in _AFTER:
            inputs = [[*_bare(each)] for each in stage.get("inputs") or ()]
            yield {**stage, "inputs": inputs} if inputs else stage
