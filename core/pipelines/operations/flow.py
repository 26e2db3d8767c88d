"""Stages that bound or pace what flows, be it items or batches."""

from __future__ import annotations

from dataclasses import replace

from ...iterate.base import Schema, Sequential, Stage
from ...iterate.limits import Head
from ...iterate.positions import Range
from ..batching import Batching
from ..operation import Making, Operation, Options
from ..options import MAX_ITEMS, Option, Refused, finite, integer, optional, refused_always
from ..stage import StageSpec

MAX_DEPTH = 1 << 16


def _elsewhere(what: str, parameter: str) -> Option:
    return Option(
        refused_always(
            f"cannot be part of a pipeline: {what} does not belong to what its batches are",
            f"Give it where batches are asked for ({parameter}).",
        ),
        None,
        kept=False,
    )


def _limit(making: Making) -> Stage:
    count, items = making.spec.options["count"], making.items
    if count is None:
        return items
    if isinstance(items, Sequential):
        return Head(items, count)
    return Range(items, stop=count if items.length is None else min(count, items.length))


def _limit_batches(batching: Batching, spec: StageSpec, _schema: Schema) -> Batching:
    return replace(batching, limit=spec.options["count"])


def _refuse_delay(_options: Options, _inputs: int) -> None:
    raise Refused(
        "cannot be part of a pipeline", "A delay is a stage of local iteration only.", "seconds"
    )


LIMIT = Operation(
    name="limit",
    takes="either",
    options={
        "count": Option(optional(integer(0, MAX_ITEMS)), None),
        "seconds": _elsewhere("time", "max_seconds"),
        "bytes": _elsewhere("what is sent at a time", "max_bytes"),
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
