"""Stages that change, drop or multiply single items."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ...arrays import Indices
from ...iterate.base import Stage
from ...iterate.mapping import named_filter, named_map
from ...iterate.recurrent import SCANS, Scan
from ...iterate.selecting import select_many
from ...iterate.transforms import PREDICATES, RANDOM_TRANSFORMS, TRANSFORMS
from ..cost import Cost, Demand
from ..options import Option, Refused, mapping, name, one_of, seed
from ..stage import BuildContext, Operation, Options, Sample, always

_READ_AHEAD = Demand(1 << 16, 16 << 20)
"""Most that is read at once by a stage that does not know how many items it needs."""


@runtime_checkable
class KnowsElements(Protocol):
    """A source that knows the lengths of its ragged items without reading them."""

    def element_offsets(self, field: str) -> Indices | None:
        """Elements before each item, then the total, shape (items + 1,); None if unknown."""


def _select_many(context: BuildContext) -> Stage:
    field, items = context.spec.options["field"], context.items
    offsets = items.element_offsets(field) if isinstance(items, KnowsElements) else None
    return select_many(items, field=field, offsets=offsets)


_MEANT = {
    "crop": "sig in a view of the source, with the unit frame",
    **dict.fromkeys(("normalize", "normalise", "standardize"), "scale, with mean and std"),
}
"""Functions that people know by other names."""

_EXAMPLE = ' For example {"pred": "less", "args": {"field": "label", "value": 3}}.'


def _complete_map(options: Options, _inputs: int) -> None:
    if options["seed"] and options["fn"] not in RANDOM_TRANSFORMS:
        raise Refused(
            f"has no effect on {options['fn']}", "It draws nothing: leave seed out.", "seed"
        )


MAP = Operation(
    name="map",
    complete=_complete_map,
    options={
        "fn": Option(one_of(*sorted({**TRANSFORMS, **RANDOM_TRANSFORMS}), **_MEANT)),
        "args": Option(mapping, {}),
        "seed": Option(seed, 0),
    },
    make=lambda stage: named_map(stage.items, **stage.spec.options, path=stage.path),
    draws=lambda options: options["fn"] in RANDOM_TRANSFORMS,
    copies=2,
)

FILTER = Operation(
    name="filter",
    options={
        "pred": Option(one_of(*sorted(PREDICATES), example=_EXAMPLE)),
        "args": Option(mapping, {}),
    },
    make=lambda stage: named_filter(stage.items, **stage.spec.options),
    cost=lambda _sizing: Cost(0, 1),
    copies=2,
    reads=lambda _options, _demand: _READ_AHEAD,
    drops=True,
    sequential=always,
)

SELECT_MANY = Operation(
    name="select_many",
    options={"field": Option(name)},
    make=_select_many,
    cost=lambda _sizing: Cost(0, 1),
    copies=2,
    reads=lambda _options, _demand: _READ_AHEAD,
    drops=True,
    reorders=True,
)

SCAN = Operation(
    name="scan",
    options={
        "fn": Option(one_of(*sorted(SCANS))),
        "field": Option(name),
        "args": Option(mapping, {}),
    },
    make=lambda stage: Scan(stage.items, **stage.spec.options),
    copies=3,
    sequential=always,
    samples=(
        Sample({"fn": "welford", "field": "index"}),
        Sample({"fn": "ema", "field": "index", "args": {"alpha": 0.5}}),
    ),
)
