"""The shuffle stage: within blocks, within overlapping blocks, or through a reservoir."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...iterate.base import Stage
from ...iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from ...rng import SMALL
from ..cost import CACHED, INDEX_BYTES, Cost
from ..operation import BuildContext, Operation, Sample, Sizing
from ..options import Option, integer, one_of, seed

MAX_SHUFFLE = 1 << 20


def _has_reservoir(options: Mapping[str, Any]) -> bool:
    return bool(options["kind"] == "reservoir")


def _has_blocks(options: Mapping[str, Any]) -> bool:
    return not _has_reservoir(options)


def _shuffle(context: BuildContext) -> Stage:
    options, path = context.spec.options, context.path
    size, seed_ = options["size"], options["seed"]
    match options["kind"]:
        case "block":
            return BlockShuffle(context.indexed, size=size, seed=seed_, path=path)
        case "overlap":
            return OverlapShuffle(context.indexed, size=size, seed=seed_, path=path)
    return ReservoirShuffle(context.items, size=size, seed=seed_, path=path)


def _cost(sizing: Sizing) -> Cost:
    n = sizing.size
    if _has_reservoir(sizing.spec.options):
        draws = n * (1 + math.ceil(math.log(n + 1)))
        return Cost(resume_work=draws, cached=CACHED * INDEX_BYTES * n)
    # Larger blocks have no tables.
    small = min(n, SMALL)
    return Cost(resume_work=2 * small, cached=2 * CACHED * INDEX_BYTES * small)


SHUFFLE = Operation(
    name="shuffle",
    takes="items",
    options={
        "kind": Option(one_of("block", "overlap", "reservoir"), "overlap"),
        "size": Option(integer(1, MAX_SHUFFLE)),
        "seed": Option(seed, 0),
    },
    make=_shuffle,
    cost=_cost,
    random_access=_has_blocks,
    alternative='use kind "reservoir"',
    sequential=_has_reservoir,
    reorders=True,
    samples=tuple(Sample({"kind": kind, "size": 2}) for kind in ("block", "overlap", "reservoir")),
)
