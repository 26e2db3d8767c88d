"""Stages that make batches, shape them, or limit and pace their flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...iterate.base import Schema, Sequential, Stage
from ...iterate.batching import MAX_SIZE, BucketBatch
from ...iterate.collate import Padding, collate
from ...iterate.limits import Head
from ...iterate.positions import Range
from ..cost import INDEX_BYTES, Cost, Demand
from ..options import (
    MAX_ITEMS,
    Option,
    Refused,
    boolean,
    either,
    finite,
    integer,
    name,
    names,
    one_of,
    optional,
    refused_always,
    seed,
)
from ..stage import BuildContext, Operation, Options, Sample, Sizing, StageSpec, always, located

MAX_BATCH = 1 << 20
MAX_READ_AHEAD = 1_000_000
MAX_PADDED = 1 << 24
MAX_WORLD = 1 << 16
_WINDOWS = 3
"""Windows of items: two cached, and the one being cut."""
_INDEX_ARRAYS = 12
"""Positions per item that sorting and cutting a window take."""


def _complete_batch(options: Options, _inputs: int) -> None:
    """Replace size_per_rank and world by their product, the size."""
    per_rank, world = options.pop("size_per_rank"), options.pop("world")
    if (options["size"] is None) == (per_rank is None):
        raise Refused(
            "is missing" if per_rank is None else "contradicts size_per_rank",
            "Give size, the rows of all ranks together, or else size_per_rank and world.",
            "size",
        )
    if (per_rank is None) != (world is None):
        raise Refused(
            "is given without " + ("world" if world is None else "size_per_rank"),
            "Give size_per_rank and world, or size alone.",
            "size_per_rank" if world is None else "world",
        )
    if per_rank is not None:
        options["size"] = per_rank * world
        if options["size"] > MAX_BATCH:
            raise Refused(
                f"times world is {options['size']}",
                f"A batch may have {MAX_BATCH} items.",
                "size_per_rank",
            )


def _complete_buckets(options: Options, _inputs: int) -> None:
    if options["size"] is None and options["budget"] is None:
        raise Refused(
            "and budget are both missing",
            "Give size (most items of a batch), budget (most elements of one), or both.",
            "size",
        )
    if options["size"] is not None and options["size"] > options["read_ahead"]:
        raise Refused(
            f"is {options['size']}, more than the {options['read_ahead']} items read ahead",
            "Increase read_ahead, or make batches smaller.",
            "size",
        )
    if options["budget"] is None and not options["padded"]:
        raise Refused("has no effect without budget", "Give budget, or leave it out.", "padded")
    if options["seed"] and not options["shuffle"]:
        raise Refused("has no effect without shuffle", "Leave it out.", "seed")


def _shape_buckets(spec: StageSpec, _schema: Schema) -> Mapping[str, Any]:
    return {"size": spec.options["size"] or min(MAX_SIZE, spec.options["read_ahead"])}


def _bucket_cost(sizing: Sizing) -> Cost:
    ahead = sizing.spec.options["read_ahead"]
    kept = _WINDOWS * ahead * (sizing.item_bytes + 2 * INDEX_BYTES)
    return Cost(kept + _INDEX_ARRAYS * INDEX_BYTES * ahead, 2 * ahead)


def _complete_pad(options: Options, _inputs: int) -> None:
    if options["length"] is not None and options["multiple"] != 1:
        raise Refused(
            "contradicts length, which sets the length of items", "Give one of them.", "multiple"
        )
    if options["truncate"] and options["length"] is None:
        raise Refused("needs a length", "Give length as well.", "truncate")


def _pad(spec: StageSpec, schema: Schema) -> Mapping[str, Any]:
    options = dict(spec.options)
    fields = options.pop("fields")
    padding = Padding(fields=None if fields is None else tuple(fields), **options)
    located(spec, lambda: padding.padded(schema))
    return {
        "padding": padding,
        "collate": lambda block: located(spec, lambda: collate(block, padding)),
    }


def _count_epochs(spec: StageSpec, _schema: Schema) -> Mapping[str, Any]:
    size = spec.options["size"]
    return {"epoch_size": None if size == "natural" else size}


BATCH = Operation(
    name="batch",
    options={
        "size": Option(integer(1, MAX_BATCH), None),
        "size_per_rank": Option(integer(1, MAX_BATCH), None),
        "world": Option(integer(1, MAX_WORLD), None),
        "last": Option(one_of("keep", "drop", "pad", "wrap"), "keep"),
    },
    complete=_complete_batch,
    shape=lambda spec, _schema: {name: spec.options[name] for name in ("size", "last")},
    reads=lambda options, _demand: Demand(options["size"]),
    batches=True,
)

BUCKET_BATCH = Operation(
    name="bucket_batch",
    options={
        "read_ahead": Option(integer(1, MAX_READ_AHEAD)),
        "key": Option(name),
        "size": Option(optional(integer(1, MAX_BATCH)), None),
        "budget": Option(optional(integer(1)), None),
        "padded": Option(boolean, True),
        "boundary": Option(optional(name), None),
        "shuffle": Option(boolean, True),
        "seed": Option(seed, 0),
    },
    complete=_complete_buckets,
    make_batches=lambda spec, items, path: BucketBatch(items, **spec.options, path=path),
    shape=_shape_buckets,
    cost=_bucket_cost,
    reads=lambda options, _demand: Demand(options["read_ahead"]),
    batches=True,
    sequential=always,
    samples=(Sample({"read_ahead": 8, "key": "index", "size": 2}),),
)

PAD = Operation(
    name="pad",
    takes="batches",
    options={
        "fields": Option(optional(names), None),
        "length": Option(optional(integer(1, MAX_PADDED)), None),
        "multiple": Option(integer(1, MAX_PADDED), 1),
        "value": Option(finite, 0.0),
        "truncate": Option(boolean, False),
    },
    complete=_complete_pad,
    shape=_pad,
    pads=True,
    once=True,
)

EPOCH = Operation(
    name="epoch",
    takes="batches",
    options={"size": Option(either("natural", integer(1)), "natural")},
    shape=_count_epochs,
    once=True,
)


MAX_DEPTH = 1 << 16


def _per_request(quantity: str, parameter: str) -> Option:
    return Option(
        refused_always(
            f"cannot be part of a pipeline: its batches do not depend on {quantity}",
            f"Over HTTP pass {parameter} with the request for batches; in Python leave the loop.",
        ),
        None,
        kept=False,
    )


def _complete_limit(options: Options, _inputs: int) -> None:
    if options["count"] is None:
        raise Refused("is missing", "Give the number of items, or of batches after batch.", "count")


def _limit(context: BuildContext) -> Stage:
    count, items = context.spec.options["count"], context.items
    if isinstance(items, Sequential):
        return Head(items, count)
    return Range(items, stop=count if items.length is None else min(count, items.length))


def _refuse_delay(_options: Options, _inputs: int) -> None:
    raise Refused(
        "cannot be part of a pipeline", "A delay exists only in local iteration.", "seconds"
    )


LIMIT = Operation(
    name="limit",
    takes="either",
    options={
        "count": Option(integer(1, MAX_ITEMS), None),
        "seconds": _per_request("time", "max_seconds"),
        "bytes": _per_request("the size of a response", "max_bytes"),
    },
    complete=_complete_limit,
    make=_limit,
    shape=lambda spec, _schema: {"limit": spec.options["count"]},
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
    name="delay", takes="either", options={"seconds": Option(finite, 0.0)}, complete=_refuse_delay
)
