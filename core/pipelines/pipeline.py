"""Pipelines: JSON in, batches out, from any state.

A pipeline is canonical JSON with a digest; what it gives is a function of that digest, of
the data and of a state, which is a few integers. Where all stages have random access the
state is one integer, the number of the global batch. The stages and their options are in
:mod:`.operations`; every epoch goes through all stages anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import OptionError, PositionError
from ..iterate.base import Indexed, Schema, Sequential, State
from ..iterate.inorder import check_state
from ..iterate.sources import fingerprint_of
from .batching import Batching
from .building import Builder, Wrap
from .cost import STATE_VALUE_BYTES, Bounds, Cost, item_bytes
from .operation import OpenSource, Taken
from .operations import OPERATIONS
from .placement import check_placement, is_sequential
from .spec import PipelineSpec, parse_spec
from .stage import StageSpec
from .stepping import (
    Course,
    IndexedCourse,
    SequentialCourse,
    Step,
    numbered,
)

__all__ = [
    "Bounds",
    "Pipeline",
    "PipelineSpec",
    "Step",
    "build_pipeline",
    "parse_pipeline",
]


def parse_pipeline(values: Mapping[str, Any]) -> PipelineSpec:
    """A pipeline out of JSON values, checked as far as that goes without its data.

    Raises:
        PipelineError: with the stage and the field that cannot be.
    """
    spec = parse_spec(values)
    check_placement(spec)
    return spec


class Pipeline:
    """A pipeline over its data. Nothing in it changes: any thread may step it.

    Args:
        spec: what it was made from.
        course: where its batches come from.
        cost: what it takes, all stages together.
    """

    def __init__(self, spec: PipelineSpec, course: Course, cost: Cost) -> None:
        self.spec = spec
        self._course = course
        self._batching = course.batching
        self.memory = cost.memory
        """Bytes it may take."""
        self.resume_work = cost.resume_work
        """The most items or draws gone through before the first batch after a state."""

    @property
    def identity(self) -> bytes:
        """Digest of the spec and fingerprints of the sources, if those have any."""
        return self.spec.digest + fingerprint_of(self._course.first)

    @property
    def schema(self) -> Schema:
        """Fields of the rows of its batches; an axis of -1 differs from batch to batch."""
        padding = self._batching.padding
        return self._course.schema if padding is None else padding.padded(self._course.schema)

    @property
    def batch_size(self) -> int:
        """Rows of a global batch; the most, where they differ."""
        return self._batching.size

    @property
    def batches(self) -> int | None:
        """In all; None without end, or if it is not known before they are read."""
        course = self._course
        return course.end if isinstance(course, IndexedCourse) else None

    @property
    def batches_per_epoch(self) -> int | None:
        """None if it is not known before they are read, or there are no epochs."""
        size = self._batching.epoch_size
        return self._course.batches_per_epoch if size is None else size

    @property
    def indexed(self) -> bool:
        """Whether any batch can be had without those before it."""
        return isinstance(self._course, IndexedCourse)

    @property
    def initial(self) -> State:
        """The state before the first batch."""
        return self._course.initial

    def check(self, state: State) -> None:
        """Refuse what cannot be a state of this pipeline.

        Raises:
            StateError: it cannot be.
        """
        check_state(state, self.initial)
        self._course.check(state)

    def sequence(self, state: State) -> int:
        """Number of the global batch that follows a state.

        Raises:
            StateError: it cannot be a state of this pipeline.
        """
        self.check(state)
        return state[0]

    def step(self, state: State, rank: int = 0, world: int = 1) -> Step | None:
        """The batch after a state, or one rank's rows of it; None at the end.

        Rank r of W has rows floor(r g / W) to floor((r + 1) g / W) of a batch of g.

        Raises:
            StateError: it cannot be a state of this pipeline.
            OptionError: a rank that is none, or more ranks than rows of a batch.
            TransformError: a transform fails on an item.
        """
        self.check(state)
        self.check_ranks(rank, world)
        step = self._course.step(state, lambda n: (rank * n // world, (rank + 1) * n // world))
        return None if step is None else numbered(step, self._batching.epoch_size)

    def check_ranks(self, rank: int, world: int) -> None:
        """Refuse ranks that cannot share a batch.

        Raises:
            OptionError: fewer than one rank, more than rows of a batch, or a rank that is
                none of them.
        """
        if world < 1 or world > self.batch_size:
            raise OptionError(
                f"world is {world}, and a batch has {self.batch_size} rows",
                hint="Every rank needs a row: make batches larger, or use fewer ranks.",
            )
        if not 0 <= rank < world:
            raise OptionError(f"rank is {rank} of {world}", hint="Ranks count from 0.")

    def skip(self, state: State, count: int) -> State:
        """The state ``count`` batches further; at once where every stage is indexed.

        Raises:
            StateError: it cannot be a state of this pipeline.
            PositionError: there are not so many, or a negative number of them.
            LimitError: a stage is sequential and too much would have to be read.
        """
        self.check(state)
        if count < 0:
            raise PositionError(f"{count} batches cannot be skipped")
        return self._course.skip(state, count)


def build_pipeline(
    spec: PipelineSpec,
    open_source: OpenSource,
    *,
    bounds: Bounds | None = None,
    wrap: Wrap | None = None,
) -> Pipeline:
    """A pipeline over its data, of which nothing but the key of a split is read.

    Args:
        spec: of :func:`parse_pipeline`.
        open_source: gives the source of a dataset id and of those of the options
            ``fields``, ``unit`` and ``view`` that were given; a range is applied here.
        bounds: what it may take.
        wrap: put around every stage, such as a timer.

    Raises:
        PipelineError: it cannot be over this data, or takes more than it may.
    """
    bounds = bounds or Bounds()
    cut = next(k for k, stage in enumerate(spec.stages) if OPERATIONS[stage.op].batches)
    builder = Builder(spec.stages[:cut], open_source, bounds, wrap)
    batch = spec.stages[cut]
    batching = _batching(spec.stages[cut:], builder)
    course = _course(batch, builder, batching)
    taken = Taken(batch, item_bytes(course.schema), None, batching.size)
    costs = [*builder.costs, (batch, OPERATIONS[batch.op].cost(taken))]
    pipeline = Pipeline(spec, course, _bounded(costs, bounds))
    _check_state_size(spec, course, bounds)
    return pipeline


def _batching(stages: Sequence[StageSpec], builder: Builder) -> Batching:
    """What the stage that makes batches and those after it say."""
    batching = Batching(size=1, epochs=builder.epochs)
    schema = builder.chain(0).schema
    for stage in stages:
        shape = OPERATIONS[stage.op].shape
        if shape is not None:
            batching = shape(batching, stage, schema)
    return batching


def _course(batch: StageSpec, builder: Builder, batching: Batching) -> Course:
    first = builder.chain(0)
    if OPERATIONS[batch.op].make_batches is not None:
        return SequentialCourse(builder.bucketed(batch), batching)
    if isinstance(first, Sequential):
        return SequentialCourse(_sequential_chain(builder), batching)
    course = IndexedCourse(_indexed_chain(builder), batching)
    if course.batches_per_epoch == 0 and batching.epochs != 1:
        raise batch.error(
            f"makes no batch of the {first.length} items of an epoch, so that none ends",
            "last" if batching.last == "drop" else "size",
            "Take last keep, pad or wrap, or smaller batches.",
        )
    if course.batches_per_epoch == 0 and first.length:
        raise batch.error(
            f"is more than the {first.length} items there are, and last is drop",
            "size",
            "Make batches smaller, or take last keep, pad or wrap.",
        )
    return course


def _indexed_chain(builder: Builder) -> Callable[[int], Indexed]:
    def chain(epoch: int) -> Indexed:
        stage = builder.chain(epoch)
        if not isinstance(stage, Indexed):
            raise TypeError("the stages of an epoch are not indexed as those of the first are")
        return stage

    return chain


def _sequential_chain(builder: Builder) -> Callable[[int], Sequential]:
    def chain(epoch: int) -> Sequential:
        stage = builder.chain(epoch)
        if not isinstance(stage, Sequential):
            raise TypeError("the stages of an epoch are indexed and those of the first are not")
        return stage

    return chain


def _bounded(costs: Sequence[tuple[StageSpec, Cost]], bounds: Bounds) -> Cost:
    """All costs together; too much points at the stage that takes most.

    Raises:
        PipelineError: it is too much.
    """
    total = Cost(sum(cost.memory for _, cost in costs), sum(cost.resume_work for _, cost in costs))
    if total.memory > bounds.memory:
        stage, cost = max(costs, key=lambda entry: entry[1].memory)
        raise stage.error(
            f"takes {cost.memory} bytes of the {total.memory} of the pipeline",
            _size_field(stage),
            f"A pipeline may take {bounds.memory} bytes: make it smaller.",
        )
    if total.resume_work > bounds.resume_work:
        stage, cost = max(costs, key=lambda entry: entry[1].resume_work)
        raise stage.error(
            f"goes through {cost.resume_work} items to resume, of {total.resume_work}",
            _size_field(stage),
            f"A pipeline may go through {bounds.resume_work}: make it smaller.",
        )
    return total


def _size_field(stage: StageSpec) -> str | None:
    sizes = (name for name in ("read_ahead", "size", "key") if name in stage.options)
    return next(sizes, None)


def _check_state_size(spec: PipelineSpec, course: Course, bounds: Bounds) -> None:
    size = len(course.initial) * STATE_VALUE_BYTES
    if size > bounds.state_bytes:
        stage = next(filter(is_sequential, spec.stages), spec.stages[0])
        raise stage.error(
            f"makes states of {len(course.initial)} integers, up to {size} bytes",
            "inputs" if stage.inputs else None,
            f"A state may take {bounds.state_bytes} bytes: use fewer inputs or stages that are "
            "read in order.",
        )
