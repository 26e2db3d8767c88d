"""A chain of stages from the specs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from ..iterate.base import Indexed, Sequential, Stage
from ..iterate.batching import BucketBatch
from .cost import Bounds, Cost, item_bytes
from .operation import Making, OpenSource, Path, Taken
from .operations import OPERATIONS
from .stage import StageSpec, located

Wrap = Callable[[Stage, str], Stage]
"""Put around every stage, given its place and name, such as ``2.map``."""

CACHED_EPOCHS = 8
"""Epochs whose stages are cached, for readers in different ones."""


class Builder:
    """Makes the stages of a pipeline, and again those that differ from epoch to epoch.

    Args:
        stages: those of items: all before the one that makes batches.
        open_source: gives the sources.
        bounds: what they may take.
        wrap: put around every stage, for a profile.
    """

    def __init__(
        self,
        stages: Sequence[StageSpec],
        open_source: OpenSource,
        bounds: Bounds,
        wrap: Wrap | None = None,
    ) -> None:
        self.bounds = bounds
        self.costs: list[tuple[StageSpec, Cost]] = []
        self._open = open_source
        self._wrap = wrap
        self._measuring = True
        self.epochs, place = _epochs(stages)
        self._epoch_spec = stages[place] if place < len(stages) else None
        self._after = stages[place + 1 :]
        self._before = self._chain(stages[:place], ())
        self.chain = lru_cache(maxsize=CACHED_EPOCHS)(self._epoch)
        self.chain(0)
        self._measuring = False

    def _epoch(self, epoch: int) -> Stage:
        """All stages, as they are in one epoch; the first has the keys of a single epoch."""
        stage = self._before
        if self._epoch_spec is not None:
            stage = self._one_epoch(self._epoch_spec, stage, epoch)
        path: Path = ("epoch", epoch) if epoch else ()
        for spec in self._after:
            stage = self._next(spec, stage, path)
        return stage

    def _one_epoch(self, spec: StageSpec, inner: Stage, epoch: int) -> Stage:
        """The items of one epoch, of a stage that says how many there are."""
        epochs = OPERATIONS[spec.op].epochs
        assert epochs is not None  # noqa: S101 - it is such a stage
        of = epochs.of

        def make() -> Stage:
            if isinstance(inner, Sequential):
                return inner
            if inner.length is None:
                raise spec.error(
                    "goes over items without end",
                    epochs.option,
                    "Leave it out, or give the source a range.",
                )
            if inner.length == 0:
                if self.epochs is None:
                    raise spec.error(
                        "is without end over no items",
                        epochs.option,
                        "Give the number of epochs.",
                    )
                return inner
            return inner if of is None else of(spec, inner, epoch)

        stage = located(spec, make)
        self._measure(spec, inner)
        # Where an epoch is the items as they come, they have been wrapped.
        return stage if of is None else self._wrapped(spec, stage)

    def _chain(self, stages: Sequence[StageSpec], path: Path) -> Stage:
        stage = self._first(stages[0], path)
        for spec in stages[1:]:
            stage = self._next(spec, stage, path)
        return stage

    def _first(self, spec: StageSpec, path: Path) -> Stage:
        inputs = [self._chain(stages, (*path, "input", k)) for k, stages in enumerate(spec.inputs)]
        return self._made(Making(spec, path, self._open, inputs))

    def _next(self, spec: StageSpec, inner: Stage, path: Path) -> Stage:
        if OPERATIONS[spec.op].make is None:
            return inner
        stage = self._made(Making(spec, path, self._open, inner=inner))
        self._measure(spec, inner)
        return stage

    def _made(self, making: Making) -> Stage:
        """A stage; errors point at its spec."""
        spec = making.spec
        make = OPERATIONS[spec.op].make
        assert make is not None  # noqa: S101 - every stage a list begins with has one
        return self._wrapped(spec, located(spec, lambda: make(making)))

    def _measure(self, spec: StageSpec, inner: Stage) -> None:
        """Note what a stage takes; those of later epochs take the same."""
        if self._measuring:
            length = inner.length if isinstance(inner, Indexed) else None
            taken = Taken(spec, item_bytes(inner.schema), length)
            self.costs.append((spec, OPERATIONS[spec.op].cost(taken)))

    def _wrapped(self, spec: StageSpec, stage: Stage) -> Stage:
        return stage if self._wrap is None else self._wrap(stage, f"{spec.place}.{spec.op}")

    def bucketed(self, spec: StageSpec) -> Callable[[int], BucketBatch]:
        """The stage that makes batches of differing sizes itself, by epoch."""
        make = OPERATIONS[spec.op].make_batches
        assert make is not None  # noqa: S101 - it is such a stage

        def chain(epoch: int) -> BucketBatch:
            path: Path = ("epoch", epoch) if epoch else ()
            return located(spec, lambda: make(spec, self.chain(epoch), path))

        return lru_cache(maxsize=CACHED_EPOCHS)(chain)


def _epochs(stages: Sequence[StageSpec]) -> tuple[int | None, int]:
    """How many epochs, and the place of the stage that says so."""
    for k, spec in enumerate(stages):
        epochs = OPERATIONS[spec.op].epochs
        if epochs is not None and epochs.when(spec.options):
            return spec.options[epochs.option], k
    return 1, len(stages)
