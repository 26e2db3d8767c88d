"""Warm-up: run the kernels of every stage once, so that numba compiles and caches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..iterate.base import Indexed, in_order
from ..iterate.sources import CounterSource
from .operation import BuildContext, Operation, Sample
from .spec import parse_spec
from .stage import StageSpec

_ITEMS_READ = 8


def use_operation(operation: Operation) -> None:
    """Build every sample of a stage, read its first items, and resume after them."""
    for sample in operation.samples:
        spec = _parsed(operation, sample)
        source = CounterSource(sample.items)
        if operation.make_batches is not None:
            batches = operation.make_batches(spec, source, ())
            batches.next_batch(batches.initial)
        elif operation.make is not None:
            context = BuildContext(spec, (), _no_source, inner=source)
            reader = in_order(operation.make(context))
            _, state = reader.take(reader.initial, _ITEMS_READ)
            in_order(operation.make(context)).take(state, _ITEMS_READ)


def _parsed(operation: Operation, sample: Sample) -> StageSpec:
    stage = {"op": operation.name, **sample.options}
    return parse_spec({"stages": [{"op": "source", "dataset": "none"}, stage]}).stages[1]


def _no_source(dataset: str, _options: Mapping[str, Any]) -> Indexed:
    raise KeyError(dataset)
