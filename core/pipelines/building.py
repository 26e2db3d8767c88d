"""Build the chain of stages that a spec describes, once for every epoch.

Shuffles and random maps must draw differently in every epoch, while stages themselves have no
notion of an epoch. So the chain is built again for each epoch, with the epoch in the keys that
random stages draw with. One stage of the spec says how often the data repeats (``repeat``, or
``permute`` with epochs), and it divides the chain::

    source  split  |  permute epochs=3  |  shuffle  map  |  batch
    built once     |  the items of      |  built for     |  left to
                   |  epoch e           |  epoch e       |  stepping

Building is cheap, since stages read no items, except that a split by key reads its field. That
is one more reason to build the part before the epochs once. The keys of epoch 0 carry no
epoch, so a pipeline of one epoch draws the same items as the first epoch of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..iterate.base import Indexed, Sequential, Stage
from ..iterate.batching import BucketBatch
from ..iterate.wrapped import metered
from .cost import CACHED_EPOCHS, Bounds, Cost, Demand, item_bytes
from .operations import OPERATIONS
from .stage import BuildContext, OpenSource, Path, Sizing, StageSpec, located

Wrap = Callable[[Stage, str], Stage]
"""Wraps a stage, given its place and name, such as ``2.map``."""


class Builder:
    """Builds the stages of items; those after the epoch stage are built again for every epoch.

    Args:
        stages: specs of the stages before the one that makes batches.
        open_source: returns the source of a dataset.
        demand: what a batch asks of the last stage.
        bounds: the most that the pipeline may cost.
        wrap: applied to every stage, such as a timer.

    Raises:
        PipelineError: the stages do not fit the data, or cost too much.
        TypeError: ``open_source`` returned no source.
    """

    def __init__(
        self,
        stages: Sequence[StageSpec],
        open_source: OpenSource,
        demand: Demand,
        bounds: Bounds,
        wrap: Wrap | None = None,
    ) -> None:
        self.bounds = bounds
        self.costs: list[tuple[StageSpec, Cost]] = []
        self.notes = _shared_draws(stages)
        self._open = _checked(open_source)
        self._wrap = wrap
        self._measuring = True
        self._blocks: list[int] = []
        self.epochs, cut = _find_epochs(stages)
        self._epoch_spec = stages[cut] if cut < len(stages) else None
        demands = _demands(stages, demand)
        self._after = list(zip(stages, demands, strict=True))[cut + 1 :]
        self._before = self._chain(stages[:cut], (), demands[cut - 1])
        self.chain = lru_cache(maxsize=CACHED_EPOCHS)(self._epoch)
        self.chain(0)
        self._measuring = False

    def _epoch(self, epoch: int) -> Stage:
        """The last stage of the chain of one epoch."""
        stage = self._before
        if self._epoch_spec is not None:
            stage = self._one_epoch(self._epoch_spec, stage, epoch)
        path: Path = ("epoch", epoch) if epoch else ()
        for spec, demand in self._after:
            stage = self._next(spec, stage, path, demand)
        return stage

    def _one_epoch(self, spec: StageSpec, inner: Stage, epoch: int) -> Stage:
        """The items of one epoch, of the stage that repeats the data."""
        epochs = OPERATIONS[spec.op].epochs
        assert epochs is not None  # noqa: S101 - _find_epochs chose the stage
        items_of = epochs.items_of

        def make() -> Stage:
            if isinstance(inner, Sequential):
                return inner
            if inner.length is None:
                raise spec.error(
                    "repeats items that never end",
                    epochs.option,
                    "Remove this stage, or give the source a range.",
                )
            if inner.length == 0:
                if self.epochs is None:
                    raise spec.error(
                        "is endless, but there are no items to repeat",
                        epochs.option,
                        "Give a number of epochs.",
                    )
                return inner
            return inner if items_of is None else items_of(spec, inner, epoch)

        self._measure(spec, inner)
        stage = located(spec, make)
        # Without a stage of its own, an epoch is the inner stage, which is wrapped already.
        return stage if items_of is None else self._wrapped(spec, stage)

    def _chain(self, stages: Sequence[StageSpec], path: Path, demand: Demand) -> Stage:
        demands = _demands(stages, demand)
        stage = self._first(stages[0], path, demands[0])
        for spec, need in zip(stages[1:], demands[1:], strict=True):
            stage = self._next(spec, stage, path, need)
        return stage

    def _first(self, spec: StageSpec, path: Path, demand: Demand) -> Stage:
        operation = OPERATIONS[spec.op]
        inputs, sizes = [], []
        for k, stages in enumerate(spec.inputs):
            blocks, self._blocks = self._blocks, []
            inputs.append(self._chain(stages, (*path, "input", k), demand))
            sizes.append(sum(self._blocks))
            self._blocks = blocks
        # Inputs that share give one block together, however it is divided.
        self._blocks += [max(sizes)] if operation.shares and sizes else sizes
        return self._build(BuildContext(spec, path, self._open, inputs), demand)

    def _next(self, spec: StageSpec, inner: Stage, path: Path, demand: Demand) -> Stage:
        if OPERATIONS[spec.op].make is None:
            return inner
        # Before it is built: the split by a key reads the keys of all items.
        self._measure(spec, inner)
        return self._build(BuildContext(spec, path, self._open, inner=inner), demand)

    def _build(self, context: BuildContext, demand: Demand) -> Stage:
        """Build one stage; errors point at its spec."""
        spec = context.spec
        operation = OPERATIONS[spec.op]
        make = operation.make
        assert make is not None  # noqa: S101 - _next passes over stages without
        stage = located(spec, lambda: make(context))
        if self._measuring:
            note = operation.note(context, stage)
            self.notes += [f"{spec.op} (stage {spec.place}) {note}"] if note else []
            self._blocks.append(demand.block_bytes(stage.schema, operation.copies))
        if operation.copies:
            # Other stages only compute positions, or pass on what they get.
            stage = metered(stage, _label(spec))
        return self._wrapped(spec, stage)

    def _measure(self, spec: StageSpec, inner: Stage) -> None:
        """Add the cost of a stage, which is cached for readers in different epochs.

        Raises:
            PipelineError: the pipeline costs too much.
        """
        if self._measuring:
            length = inner.length if isinstance(inner, Indexed) else None
            cost = OPERATIONS[spec.op].cost(Sizing(spec, item_bytes(inner.schema), length))
            epochs = 1
            if any(spec is after for after, _ in self._after):
                epochs = CACHED_EPOCHS if self.epochs is None else min(self.epochs, CACHED_EPOCHS)
            memory = cost.memory + epochs * cost.cached
            self.costs.append((spec, Cost(memory, cost.resume_work)))
            bounded(self.costs, self.bounds)

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks that all stages hold for one batch."""
        return sum(self._blocks)

    def _wrapped(self, spec: StageSpec, stage: Stage) -> Stage:
        return stage if self._wrap is None else self._wrap(stage, _label(spec))

    def bucketed(self, spec: StageSpec) -> Callable[[int], BucketBatch]:
        """A function from the number of an epoch to the stage that cuts its batches itself."""
        make = OPERATIONS[spec.op].make_batches
        assert make is not None  # noqa: S101 - the caller has checked

        def chain(epoch: int) -> BucketBatch:
            path: Path = ("epoch", epoch) if epoch else ()
            return located(spec, lambda: make(spec, self.chain(epoch), path))

        return lru_cache(maxsize=CACHED_EPOCHS)(chain)


def _checked(open_source: OpenSource) -> OpenSource:
    """Refuse what a caller's function returns in place of a source."""

    def opened(dataset: str, choices: Mapping[str, Any]) -> Indexed:
        source: object = open_source(dataset, choices)
        if not isinstance(source, Indexed):
            found = type(source).__name__
            raise TypeError(
                f"the source of {dataset!r} is a {found}: return ArraySource({{'x': array}})"
            )
        return source

    return opened


def _label(spec: StageSpec) -> str:
    return f"{spec.place}.{spec.op}"


def _shared_draws(stages: Sequence[StageSpec]) -> list[str]:
    """Notes on stages that draw the same number for each item."""
    notes: list[str] = []
    groups: dict[int, list[str]] = {}
    for spec in stages:
        notes += [note for inputs in spec.inputs for note in _shared_draws(inputs)]
        operation = OPERATIONS[spec.op]
        if operation.reorders or operation.drops or operation.keeps_sides:
            # Items have other positions from here on, and so other draws.
            notes, groups = notes + _draw_notes(groups), {}
        if operation.draws(spec.options):
            name = spec.path.rstrip(".") or str(spec.place)
            groups.setdefault(spec.options["seed"], []).append(name)
    return notes + _draw_notes(groups)


def _draw_notes(groups: Mapping[int, Sequence[str]]) -> list[str]:
    return [
        f"stages {', '.join(names[:-1])} and {names[-1]} draw the same numbers for each item:"
        " give each a seed of its own"
        for names in groups.values()
        if len(names) > 1
    ]


def _demands(stages: Sequence[StageSpec], demand: Demand) -> list[Demand]:
    """What each stage is asked for, if the last is asked for ``demand``."""
    demands = [demand]
    for spec in reversed(stages[1:]):
        demands.append(OPERATIONS[spec.op].reads(spec.options, demands[-1]))
    return demands[::-1]


def bounded(costs: Sequence[tuple[StageSpec, Cost]], bounds: Bounds) -> Cost:
    """Add up costs and check the sum against the bounds.

    Raises:
        PipelineError: the sum is out of bounds; points at the most expensive stage.
    """
    total = Cost(sum(cost.memory for _, cost in costs), sum(cost.resume_work for _, cost in costs))
    if total.memory > bounds.memory:
        stage, cost = max(costs, key=lambda entry: entry[1].memory)
        field = _size_field(stage)
        size = stage.options.get(field or "")
        room = bounds.memory - total.memory + cost.memory
        fits = size * room // cost.memory if isinstance(size, int) else 0
        advice = f"A {field} of about {fits} fits" if fits > 0 else "Make this stage smaller"
        raise stage.error(
            f"needs {cost.memory} of the {total.memory} bytes of the pipeline",
            field,
            f"A pipeline may need {bounds.memory} bytes. {advice}.",
        )
    if total.resume_work > bounds.resume_work:
        stage, cost = max(costs, key=lambda entry: entry[1].resume_work)
        raise stage.error(
            f"costs {cost.resume_work} of the {total.resume_work} items that resuming reads",
            _size_field(stage),
            f"Resuming may read {bounds.resume_work} items. Make this stage smaller.",
        )
    return total


def _size_field(stage: StageSpec) -> str | None:
    sizes = (name for name in ("read_ahead", "size", "length", "key") if name in stage.options)
    return next(sizes, None)


def _find_epochs(stages: Sequence[StageSpec]) -> tuple[int | None, int]:
    """The number of epochs (None: endless), and the index of the stage that repeats the data."""
    for k, spec in enumerate(stages):
        epochs = OPERATIONS[spec.op].epochs
        if epochs is not None and epochs.when(spec.options):
            return spec.options[epochs.option], k
    return 1, len(stages)
