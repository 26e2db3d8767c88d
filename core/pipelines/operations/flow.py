"""Stages that limit or pace the flow of items or batches."""

from __future__ import annotations

from dataclasses import replace

from ...iterate.base import Schema, Sequential, Stage
from ...iterate.limits import Head
from ...iterate.positions import Range
from ..operation import Batching, BuildContext, Operation, Options
from ..options import MAX_ITEMS, Option, Refused, finite, integer, optional, refused_always
from ..stage import StageSpec

MAX_DEPTH = 1 << 16


def _per_request(quantity: str, parameter: str) -> Option:
    return Option(
        refused_always(
            f"cannot be part of a pipeline: its batches do not depend on {quantity}",
            f"Pass {parameter} with the request for batches.",
        ),
        None,
        kept=False,
    )


def _limit(context: BuildContext) -> Stage:
    count, items = context.spec.options["count"], context.items
    if count is None:
        return items
    if isinstance(items, Sequential):
        return Head(items, count)
    return Range(items, stop=count if items.length is None else min(count, items.length))


def _limit_batches(batching: Batching, spec: StageSpec, _schema: Schema) -> Batching:
    return replace(batching, limit=spec.options["count"])


def _refuse_delay(_options: Options, _inputs: int) -> None:
    raise Refused(
        "cannot be part of a pipeline", "A delay exists only in local iteration.", "seconds"
    )


LIMIT = Operation(
    name="limit",
    takes="either",
    options={
        "count": Option(optional(integer(0, MAX_ITEMS)), None),
        "seconds": _per_request("time", "max_seconds"),
        "bytes": _per_request("the size of a response", "max_bytes"),
    },
    make=_limit,
    shape=_limit_batches,
    once=True,
    limit="count",
)

PREFETCH = Operation(
    name="prefetch",
    takes="either",
    options={"depth": Option(integer(1, MAX_DEPTH), 2)},
    identity=False,
)

DELAY = Operation(
    name="delay",
    takes="either",
    options={"seconds": Option(finite, 0.0)},
    complete=_refuse_delay,
)
