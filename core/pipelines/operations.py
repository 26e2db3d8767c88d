"""The stages of a pipeline: what each is called, its options, and where it can stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..iterate.recurrent import SCANS
from ..iterate.transforms import PREDICATES, RANDOM_TRANSFORMS, TRANSFORMS
from .options import (
    MAX_ITEMS,
    Option,
    Refused,
    boolean,
    either,
    finite,
    fraction,
    integer,
    mapping,
    name,
    names,
    one_of,
    optional,
    refused_always,
    seed,
    span,
    weights,
)

MAX_BATCH = 1 << 20
MAX_SHUFFLE = 1 << 20
MAX_READ_AHEAD = 1_000_000
MAX_WINDOW = 1 << 16
MAX_PADDED = 1 << 24
MAX_DEPTH = 1 << 16
MAX_WORLD = 1 << 16

Takes = Literal["nothing", "items", "batches", "either"]
Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of stage."""

    takes: Takes
    """What comes in: nothing for those a list of stages begins with."""
    options: Mapping[str, Option]
    combines: bool = False
    """Whether it has lists of stages as inputs."""
    batches: bool = False
    """Whether it makes batches of items."""
    random_access: bool = False
    """Whether what comes in must be indexed."""
    sequential: bool = False
    """Whether it is sequential whatever its options are."""
    complete: Callable[[Options, int], None] | None = None
    """Checks options against each other and the number of inputs, and fills them in."""


def _elsewhere(what: str, parameter: str) -> Option:
    return Option(
        refused_always(
            f"cannot be part of a pipeline: {what} does not belong to what its batches are",
            f"Give it where batches are asked for ({parameter}).",
        ),
        None,
        kept=False,
    )


def _delayed(_options: Options, _inputs: int) -> None:
    raise Refused(
        "cannot be part of a pipeline", "A delay is a stage of local iteration only.", "seconds"
    )


def _sized(options: Options, _inputs: int) -> None:
    """size_per_rank and world are another way to say size."""
    per_rank, world = options.pop("size_per_rank"), options.pop("world")
    if (options["size"] is None) == (per_rank is None):
        raise Refused(
            "is missing" if per_rank is None else "contradicts size_per_rank",
            "Give size, of the batch of all ranks together, or size_per_rank and world.",
            "size",
        )
    if (per_rank is None) != (world is None):
        raise Refused(
            "goes with world: the order of items depends on it",
            "Give both, or size alone.",
            "size_per_rank" if world is None else "world",
        )
    if per_rank is not None:
        options["size"] = per_rank * world
        if options["size"] > MAX_BATCH:
            raise Refused(
                f"and world make a batch of {options['size']}",
                f"A batch may have {MAX_BATCH} items.",
                "size_per_rank",
            )


def _bucketed(options: Options, _inputs: int) -> None:
    if options["size"] is None and options["budget"] is None:
        raise Refused(
            "is missing, as is budget",
            "Give size (items of a batch), budget (of their keys together), or both.",
            "size",
        )
    if options["size"] is not None and options["size"] > options["read_ahead"]:
        raise Refused(
            f"is {options['size']}, more than the {options['read_ahead']} items read ahead",
            "Raise read_ahead, or make batches smaller.",
            "size",
        )


def _sharded(options: Options, _inputs: int) -> None:
    if options["index"] >= options["of"]:
        raise Refused(
            f"is {options['index']} of {options['of']} shards", "Shards count from 0.", "index"
        )


def _zipped(options: Options, inputs: int) -> None:
    if options["names"] is not None and len(options["names"]) != inputs:
        raise Refused(
            f"has {len(options['names'])} entries for {inputs} inputs",
            "Give one name for each input.",
            "names",
        )


def _mixed(options: Options, inputs: int) -> None:
    if options["weights"] is None:
        options["weights"] = [1] * inputs
    if len(options["weights"]) != inputs:
        raise Refused(
            f"has {len(options['weights'])} entries for {inputs} inputs",
            "Give one weight for each input.",
            "weights",
        )


def _padded(options: Options, _inputs: int) -> None:
    if options["length"] is not None and options["multiple"] != 1:
        raise Refused(
            "contradicts length, which says how long items become", "Give one of them.", "multiple"
        )
    if options["truncate"] and options["length"] is None:
        raise Refused("needs a length to cut at", "Give length.", "truncate")


_SEED = Option(seed, 0)
_TIMES = optional(integer(1))

OPERATIONS: Final[Mapping[str, Operation]] = {
    "source": Operation(
        "nothing",
        {
            "dataset": Option(name),
            "range": Option(optional(span), None),
            "fields": Option(optional(names), None),
            "unit": Option(optional(name), None),
            "view": Option(optional(mapping), None),
        },
    ),
    "zip": Operation(
        "nothing",
        {
            "names": Option(optional(names), None),
            "stop": Option(one_of("shortest", "strict"), "shortest"),
        },
        combines=True,
        complete=_zipped,
    ),
    "mix": Operation(
        "nothing",
        {
            "weights": Option(weights, None),
            "order": Option(one_of("quota", "random"), "quota"),
            "stop": Option(one_of("first", "all", "cycle"), "first"),
            "seed": _SEED,
        },
        combines=True,
        complete=_mixed,
    ),
    "shard": Operation(
        "items",
        {
            "of": Option(integer(1)),
            "index": Option(integer(0)),
            "mode": Option(one_of("contiguous", "stride"), "contiguous"),
        },
        random_access=True,
        complete=_sharded,
    ),
    "split": Operation(
        "items",
        {
            "part": Option(one_of("train", "validation")),
            "fraction": Option(fraction, 0.1),
            "key": Option(optional(name), None),
            "seed": _SEED,
        },
        random_access=True,
    ),
    "permute": Operation("items", {"seed": _SEED, "epochs": Option(_TIMES, 1)}, random_access=True),
    "repeat": Operation("items", {"times": Option(_TIMES, None)}),
    "shuffle": Operation(
        "items",
        {
            "kind": Option(one_of("block", "overlap", "reservoir"), "overlap"),
            "size": Option(integer(1, MAX_SHUFFLE)),
            "seed": _SEED,
        },
    ),
    "map": Operation(
        "items",
        {
            "fn": Option(one_of(*sorted({**TRANSFORMS, **RANDOM_TRANSFORMS}))),
            "args": Option(mapping, {}),
            "seed": _SEED,
        },
    ),
    "filter": Operation(
        "items",
        {"pred": Option(one_of(*sorted(PREDICATES))), "args": Option(mapping, {})},
        sequential=True,
    ),
    "select_many": Operation("items", {"field": Option(name)}),
    "window": Operation(
        "items",
        {
            "width": Option(integer(1, MAX_WINDOW)),
            "stride": Option(integer(1), 1),
            "partial": Option(one_of("drop", "keep"), "drop"),
        },
        random_access=True,
    ),
    "scan": Operation(
        "items",
        {"fn": Option(one_of(*sorted(SCANS))), "field": Option(name), "args": Option(mapping, {})},
        sequential=True,
    ),
    "batch": Operation(
        "items",
        {
            "size": Option(integer(1, MAX_BATCH), None),
            "size_per_rank": Option(integer(1, MAX_BATCH), None),
            "world": Option(integer(1, MAX_WORLD), None),
            "last": Option(one_of("keep", "drop", "pad", "wrap"), "keep"),
        },
        batches=True,
        complete=_sized,
    ),
    "bucket_batch": Operation(
        "items",
        {
            "read_ahead": Option(integer(1, MAX_READ_AHEAD)),
            "key": Option(name),
            "size": Option(optional(integer(1, MAX_BATCH)), None),
            "budget": Option(optional(integer(1)), None),
            "padded": Option(boolean, True),
            "boundary": Option(optional(name), None),
            "shuffle": Option(boolean, True),
            "seed": _SEED,
        },
        batches=True,
        sequential=True,
        complete=_bucketed,
    ),
    "pad": Operation(
        "batches",
        {
            "fields": Option(optional(names), None),
            "length": Option(optional(integer(1, MAX_PADDED)), None),
            "multiple": Option(integer(1, MAX_PADDED), 1),
            "value": Option(finite, 0.0),
            "truncate": Option(boolean, False),
        },
        complete=_padded,
    ),
    "epoch": Operation("batches", {"size": Option(either("natural", integer(1)), "natural")}),
    "limit": Operation(
        "either",
        {
            "count": Option(optional(integer(0, MAX_ITEMS)), None),
            "seconds": _elsewhere("time", "max_seconds"),
            "bytes": _elsewhere("what is sent at a time", "max_bytes"),
        },
    ),
    "prefetch": Operation("either", {"depth": Option(integer(1, MAX_DEPTH), 2)}),
    "delay": Operation("either", {"seconds": Option(finite, 0.0)}, complete=_delayed),
}

ALIASES: Final[Mapping[str, str]] = {"collate": "pad"}
"""Other names of stages; canonical JSON has the ones above."""
