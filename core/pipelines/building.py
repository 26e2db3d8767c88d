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

from collections.abc import Callable, Sequence
from functools import lru_cache

from ..iterate.base import Indexed, Sequential, Stage
from ..iterate.batching import BucketBatch
from .cost import Bounds, Cost, item_bytes
from .operation import BuildContext, OpenSource, Path, Sizing
from .operations import OPERATIONS
from .stage import StageSpec, located

Wrap = Callable[[Stage, str], Stage]
"""Wraps a stage, given its place and name, such as ``2.map``."""

CACHED_EPOCHS = 8
"""Epochs whose stages are cached, for readers in different epochs."""


class Builder:
    """Builds the stages of items; those after the epoch stage are built again for every epoch.

    Args:
        stages: specs of the stages before the one that makes batches.
        open_source: returns the source of a dataset.
        bounds: the most that the pipeline may cost.
        wrap: applied to every stage, such as a timer.

    Raises:
        PipelineError: the stages do not fit the data.
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
        self.epochs, cut = _find_epochs(stages)
        self._epoch_spec = stages[cut] if cut < len(stages) else None
        self._after = stages[cut + 1 :]
        self._before = self._chain(stages[:cut], ())
        self.chain = lru_cache(maxsize=CACHED_EPOCHS)(self._epoch)
        self.chain(0)
        self._measuring = False

    def _epoch(self, epoch: int) -> Stage:
        """The last stage of the chain of one epoch."""
        stage = self._before
        if self._epoch_spec is not None:
            stage = self._one_epoch(self._epoch_spec, stage, epoch)
        path: Path = ("epoch", epoch) if epoch else ()
        for spec in self._after:
            stage = self._next(spec, stage, path)
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

        stage = located(spec, make)
        self._measure(spec, inner)
        # Without a stage of its own, an epoch is the inner stage, which is wrapped already.
        return stage if items_of is None else self._wrapped(spec, stage)

    def _chain(self, stages: Sequence[StageSpec], path: Path) -> Stage:
        stage = self._first(stages[0], path)
        for spec in stages[1:]:
            stage = self._next(spec, stage, path)
        return stage

    def _first(self, spec: StageSpec, path: Path) -> Stage:
        inputs = [self._chain(stages, (*path, "input", k)) for k, stages in enumerate(spec.inputs)]
        return self._build(BuildContext(spec, path, self._open, inputs))

    def _next(self, spec: StageSpec, inner: Stage, path: Path) -> Stage:
        if OPERATIONS[spec.op].make is None:
            return inner
        stage = self._build(BuildContext(spec, path, self._open, inner=inner))
        self._measure(spec, inner)
        return stage

    def _build(self, context: BuildContext) -> Stage:
        """Build one stage; errors point at its spec."""
        spec = context.spec
        make = OPERATIONS[spec.op].make
        assert make is not None  # noqa: S101 - _next passes over stages without
        return self._wrapped(spec, located(spec, lambda: make(context)))

    def _measure(self, spec: StageSpec, inner: Stage) -> None:
        """Add the cost of a stage, which is cached for readers in different epochs."""
        if self._measuring:
            length = inner.length if isinstance(inner, Indexed) else None
            cost = OPERATIONS[spec.op].cost(Sizing(spec, item_bytes(inner.schema), length))
            epochs = 1
            if spec in self._after:
                epochs = CACHED_EPOCHS if self.epochs is None else min(self.epochs, CACHED_EPOCHS)
            memory = cost.memory + epochs * cost.cached
            self.costs.append((spec, Cost(memory, cost.resume_work)))

    def _wrapped(self, spec: StageSpec, stage: Stage) -> Stage:
        return stage if self._wrap is None else self._wrap(stage, f"{spec.place}.{spec.op}")

    def bucketed(self, spec: StageSpec) -> Callable[[int], BucketBatch]:
        """A function from the number of an epoch to the stage that cuts its batches itself."""
        make = OPERATIONS[spec.op].make_batches
        assert make is not None  # noqa: S101 - the caller has checked

        def chain(epoch: int) -> BucketBatch:
            path: Path = ("epoch", epoch) if epoch else ()
            return located(spec, lambda: make(spec, self.chain(epoch), path))

        return lru_cache(maxsize=CACHED_EPOCHS)(chain)


def _find_epochs(stages: Sequence[StageSpec]) -> tuple[int | None, int]:
    """The number of epochs (None: endless), and the index of the stage that repeats the data."""
    for k, spec in enumerate(stages):
        epochs = OPERATIONS[spec.op].epochs
        if epochs is not None and epochs.when(spec.options):
            return spec.options[epochs.option], k
    return 1, len(stages)
