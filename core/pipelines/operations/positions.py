"""Stages that choose or rearrange items by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...iterate.base import Indexed, Stage
from ...iterate.positions import Permute, Range, Repeat, Shard
from ...iterate.split import CHUNK, KeySplit, Split
from ...iterate.window import Window
from ...rng import SMALL
from ..cost import CACHED, INDEX_BYTES, Cost, Demand
from ..operation import BuildContext, Epochs, Operation, Options, Sample, Sizing, always
from ..options import Option, Refused, fraction, integer, name, one_of, optional, seed
from ..stage import StageSpec

MAX_WINDOW = 1 << 16


def _shard(context: BuildContext) -> Stage:
    options = context.spec.options
    return Shard(context.indexed, of=options["of"], index=options["index"], mode=options["mode"])


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


def _split_cost(sizing: Sizing) -> Cost:
    length = sizing.length or 0
    keys = INDEX_BYTES * length if sizing.spec.options["key"] is not None else 0
    return Cost(keys + INDEX_BYTES * (length // CHUNK + 1), 0)


def _permute(context: BuildContext) -> Stage:
    options = context.spec.options
    return Permute(
        context.indexed, seed=options["seed"], epochs=options["epochs"], path=context.path
    )


def _permuted_epoch(spec: StageSpec, items: Indexed, epoch: int) -> Stage:
    n = items.length
    assert n is not None  # noqa: S101 - the builder refuses epochs of endless items
    endless = Permute(items, seed=spec.options["seed"], epochs=None)
    return Range(endless, start=epoch * n, stop=(epoch + 1) * n)


def _permute_cost(sizing: Sizing) -> Cost:
    return Cost(CACHED * INDEX_BYTES * min(sizing.length or SMALL, SMALL), SMALL)


def _several_epochs(options: Mapping[str, Any]) -> bool:
    return bool(options["epochs"] != 1)


def _repeat(context: BuildContext) -> Stage:
    return Repeat(context.indexed, epochs=context.spec.options["times"])


def _window(context: BuildContext) -> Stage:
    options = context.spec.options
    return Window(
        context.indexed,
        width=options["width"],
        stride=options["stride"],
        partial=options["partial"],
    )


def _window_items(options: Mapping[str, Any], demand: Demand) -> Demand:
    return Demand(demand.items * int(options["width"]), demand.nbytes)


SHARD = Operation(
    name="shard",
    takes="items",
    options={
        "of": Option(integer(1)),
        "index": Option(integer(0)),
        "mode": Option(one_of("contiguous", "stride"), "contiguous"),
    },
    complete=_complete_shard,
    make=_shard,
    random_access=always,
    reorders=True,
)

SPLIT = Operation(
    name="split",
    takes="items",
    options={
        "part": Option(one_of("train", "validation")),
        "fraction": Option(fraction, 0.1),
        "key": Option(optional(name), None),
        "seed": Option(seed, 0),
    },
    make=_split,
    cost=_split_cost,
    random_access=always,
    keeps_sides=True,
    once=True,
)

PERMUTE = Operation(
    name="permute",
    takes="items",
    options={"seed": Option(seed, 0), "epochs": Option(optional(integer(1)), 1)},
    make=_permute,
    cost=_permute_cost,
    random_access=always,
    reorders=True,
    once=True,
    epochs=Epochs("epochs", _permuted_epoch, when=_several_epochs),
    samples=(Sample({}), Sample({}, items=SMALL + 1)),
)

REPEAT = Operation(
    name="repeat",
    takes="items",
    options={"times": Option(optional(integer(1)), None)},
    make=_repeat,
    reorders=True,
    epochs=Epochs("times"),
)

WINDOW = Operation(
    name="window",
    takes="items",
    options={
        "width": Option(integer(1, MAX_WINDOW)),
        "stride": Option(integer(1), 1),
        "partial": Option(one_of("drop", "keep"), "drop"),
    },
    make=_window,
    copies=2,
    reads=_window_items,
    random_access=always,
    reorders=True,
)
