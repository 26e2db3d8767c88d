"""Stages that choose, rearrange or shuffle items by position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...iterate.base import Indexed, Stage
from ...iterate.positions import Permute, Range, Repeat, Shard, Window
from ...iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from ...iterate.split import CHUNK, KeySplit, Split
from ...rng import SMALL
from ..cost import CACHED, INDEX_BYTES, Cost, Demand
from ..options import Option, Refused, fraction, integer, name, one_of, optional, seed
from ..stage import BuildContext, Epochs, Operation, Options, Sample, Sizing, StageSpec, always

MAX_WINDOW = 1 << 16
_TIMES = optional(integer(1, also=", or null for no end"))


def _complete_shard(options: Options, _inputs: int) -> None:
    if options["index"] >= options["of"]:
        raise Refused(
            f"is {options['index']} of {options['of']} shards",
            "Shards are numbered from 0.",
            "index",
        )


def _split(context: BuildContext) -> Stage:
    options, stage = context.spec.options, context.indexed
    part, fraction_, seed_ = options["part"], options["fraction"], options["seed"]
    if options["key"] is None:
        return Split(stage, fraction=fraction_, part=part, seed=seed_)
    return KeySplit(stage, options["key"], fraction=fraction_, part=part, seed=seed_)


def _complete_split(options: Options, _inputs: int) -> None:
    """Replace validation, which says what it is, by fraction."""
    validation = options.pop("validation")
    if None not in {validation, options["fraction"]}:
        raise Refused("contradicts fraction", "They are one: give validation alone.", "validation")
    options["fraction"] = validation or options["fraction"] or 0.1


def _split_note(context: BuildContext, built: Stage) -> str | None:
    options = context.spec.options
    if options["part"] != "train" or options["fraction"] <= 0.5 or not isinstance(built, Indexed):  # noqa: PLR2004 - a half
        return None
    return (
        f"gives train {built.length:,} of {context.indexed.length:,} items: validation, or"
        f" fraction, is the share of the others, {options['fraction']:.0%}"
    )


def _split_cost(sizing: Sizing) -> Cost:
    length = sizing.length or 0
    keys = INDEX_BYTES * length if sizing.spec.options["key"] is not None else 0
    return Cost(keys + INDEX_BYTES * (length // CHUNK + 1), 0)


def _permuted_epoch(spec: StageSpec, items: Indexed, epoch: int) -> Stage:
    n = items.length
    assert n is not None  # noqa: S101 - the builder refuses epochs of endless items
    endless = Permute(items, seed=spec.options["seed"], epochs=None)
    return Range(endless, start=epoch * n, stop=(epoch + 1) * n)


def _permute_cost(sizing: Sizing) -> Cost:
    return Cost(CACHED * INDEX_BYTES * min(sizing.length or SMALL, SMALL), SMALL)


SHARD = Operation(
    name="shard",
    options={
        "of": Option(integer(1)),
        "index": Option(integer(0)),
        "mode": Option(one_of("contiguous", "stride"), "contiguous"),
    },
    complete=_complete_shard,
    make=lambda stage: Shard(stage.indexed, **stage.spec.options),
    random_access=always,
    reorders=True,
)

SPLIT = Operation(
    name="split",
    options={
        "part": Option(one_of("train", "validation")),
        "fraction": Option(optional(fraction), None),
        "validation": Option(optional(fraction), None),
        "key": Option(optional(name), None),
        "seed": Option(seed, 0),
    },
    complete=_complete_split,
    note=_split_note,
    make=_split,
    cost=_split_cost,
    random_access=always,
    keeps_sides=True,
    once=True,
)

PERMUTE = Operation(
    name="permute",
    options={"seed": Option(seed, 0), "epochs": Option(_TIMES, 1)},
    make=lambda stage: Permute(stage.indexed, **stage.spec.options, path=stage.path),
    cost=_permute_cost,
    random_access=always,
    reorders=True,
    once=True,
    epochs=Epochs("epochs", _permuted_epoch, when=lambda options: options["epochs"] != 1),
    samples=(Sample({}), Sample({}, items=SMALL + 1)),
)

REPEAT = Operation(
    name="repeat",
    options={"times": Option(_TIMES, None)},
    make=lambda stage: Repeat(stage.indexed, epochs=stage.spec.options["times"]),
    reorders=True,
    epochs=Epochs("times"),
)

WINDOW = Operation(
    name="window",
    options={
        "width": Option(integer(1, MAX_WINDOW)),
        "stride": Option(integer(1), 1),
        "partial": Option(one_of("drop", "keep"), "drop"),
    },
    make=lambda stage: Window(stage.indexed, **stage.spec.options),
    copies=2,
    reads=lambda options, demand: Demand(demand.items * options["width"], demand.nbytes),
    random_access=always,
    beyond_order="A filter or scan needs a field of one number, which windows lack: zip them with"
    " a source of one before it. Or choose items by range, view or dataset of the source.",
    reorders=True,
)


MAX_SHUFFLE = 1 << 20


def _has_reservoir(options: Mapping[str, Any]) -> bool:
    return bool(options["kind"] == "reservoir")


def _shuffle(context: BuildContext) -> Stage:
    options, path = context.spec.options, context.path
    size, seed_ = options["size"], options["seed"]
    match options["kind"]:
        case "block":
            return BlockShuffle(context.indexed, size=size, seed=seed_, path=path)
        case "overlap":
            return OverlapShuffle(context.indexed, size=size, seed=seed_, path=path)
    return ReservoirShuffle(context.indexed, size=size, seed=seed_, path=path)


def _shuffle_cost(sizing: Sizing) -> Cost:
    n = sizing.size
    if _has_reservoir(sizing.spec.options):
        draws = n * (1 + math.ceil(math.log(n + 1)))
        return Cost(resume_work=draws, cached=CACHED * INDEX_BYTES * n)
    # Larger blocks have no tables.
    small = min(n, SMALL)
    return Cost(resume_work=2 * small, cached=2 * CACHED * INDEX_BYTES * small)


SHUFFLE = Operation(
    name="shuffle",
    options={
        "kind": Option(one_of("block", "overlap", "reservoir"), "overlap"),
        "size": Option(integer(1, MAX_SHUFFLE)),
        "seed": Option(seed, 0),
    },
    make=_shuffle,
    cost=_shuffle_cost,
    random_access=always,
    sequential=_has_reservoir,
    reorders=True,
    samples=tuple(Sample({"kind": kind, "size": 2}) for kind in ("block", "overlap", "reservoir")),
)
