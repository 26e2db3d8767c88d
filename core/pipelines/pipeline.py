"""Pipelines: JSON in, batches out, from any state.

A pipeline is canonical JSON with a digest. A batch is a function of that digest, the data and a
state, which is a few integers: one, the number of the global batch, if all stages have random
access. The stages and their options are in :mod:`.operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..errors import OptionError, PositionError
from ..iterate.base import Indexed, Schema, Sequential, State, check_state
from ..iterate.limits import Clock
from ..iterate.sources import fingerprint_of
from .building import Builder, Wrap, bounded
from .cost import (
    BASE_BYTES,
    CACHED,
    RAGGED_VALUES,
    STATE_VALUE_BYTES,
    Bounds,
    Cost,
    Demand,
    item_bytes,
)
from .operations import OPERATIONS
from .placement import check_placement, is_sequential
from .reading import RUN_BYTES, BatchReader, IndexedStepper
from .spec import PipelineSpec, parse_spec
from .stage import Batching, OpenSource, Sizing, StageSpec
from .stepping import SequentialStepper, Step, Stepper

__all__ = ["Bounds", "Pipeline", "PipelineSpec", "Step", "build_pipeline", "parse_pipeline"]


def parse_pipeline(values: Mapping[str, Any]) -> PipelineSpec:
    """Parse a pipeline from JSON values, and check all that needs no data.

    Raises:
        PipelineError: the spec is invalid; names the stage and the field.
    """
    spec = parse_spec(values)
    check_placement(spec)
    return spec


class Pipeline:
    """A pipeline over its data. It is immutable, so any number of threads may step it.

    Args:
        spec: the parsed spec.
        stepper: produces the batches.
        cost: the sum over all stages.
        blocks: bytes of the blocks that all stages hold for one batch.
        notes: what people should know of its data, such as items that are left out.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        stepper: Stepper,
        cost: Cost,
        blocks: int,
        notes: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.notes = list(notes)
        self._stepper = stepper
        self._batching = stepper.batching
        # The length of ragged items is not known before they are read.
        is_ragged = any(field.ragged for field in stepper.schema)
        self._run = 1 if is_ragged else RUN_BYTES // max(blocks, 1)
        self.memory = cost.memory
        """Bytes it may hold."""
        self.resume_work = cost.resume_work
        """Most items or draws between a state and the first batch after it."""

    @property
    def identity(self) -> bytes:
        """Digest of the spec, followed by the fingerprints of the sources that have one."""
        return self.spec.digest + fingerprint_of(self._stepper.first)

    @property
    def schema(self) -> Schema:
        """Fields of the rows of its batches; an axis of -1 differs from batch to batch."""
        padding = self._batching.padding
        return self._stepper.schema if padding is None else padding.padded(self._stepper.schema)

    @property
    def batch_size(self) -> int:
        """Rows of a global batch; the most rows if batches differ."""
        return self._batching.size

    @property
    def batches(self) -> int | None:
        """Number of batches; None if endless, or unknown until they are read."""
        stepper = self._stepper
        return stepper.end if isinstance(stepper, IndexedStepper) else None

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches of an epoch; None if unknown until they are read, or if there are no epochs."""
        size = self._batching.epoch_size
        return self._stepper.batches_per_epoch if size is None else size

    @property
    def indexed(self) -> bool:
        """Whether a batch can be read without those before it."""
        return isinstance(self._stepper, IndexedStepper)

    @property
    def initial(self) -> State:
        """The state before the first batch."""
        return self._stepper.initial

    def check(self, state: State) -> None:
        """Check a state.

        Raises:
            StateError: it cannot be a state of this pipeline.
        """
        check_state(state, self.initial)
        self._stepper.check(state)

    def sequence(self, state: State) -> int:
        """Number of the global batch that follows a state.

        Raises:
            StateError: it cannot be a state of this pipeline.
        """
        self.check(state)
        return state[0]

    def step(self, state: State, rank: int = 0, world: int = 1) -> Step | None:
        """The batch after a state, or one rank's rows of it; None at the end.

        Of a batch of g rows, rank r of W has rows floor(r g / W) to floor((r + 1) g / W) - 1.

        Raises:
            StateError: it cannot be a state of this pipeline.
            OptionError: there is no such rank, or there are more ranks than rows.
            TransformError: a transform fails on an item.
        """
        self.check(state)
        return self.reader(rank, world).step(state)

    def emptiness(self) -> str:
        """What became of the items, once :meth:`step` has found no batch after the first state."""
        count, left = self._stepper.fate()
        if count is None or is_sequential(self.spec.stages[0]):
            return "no item reached the stage that makes batches"
        drops = [f"{s.op} (stage {s.place})" for s in self.spec.stages if OPERATIONS[s.op].drops]
        through = f" of {' and '.join(drops)}" if drops else ""
        few = ", too few for a batch, and last is drop" if left else ""
        return f"{count:,} items came in, {left or 'none'} came out{through}{few}"

    def reader(
        self, rank: int = 0, world: int = 1, clock: Clock | None = None, every: int = 1
    ) -> BatchReader:
        """What reads batches that follow each other, as :meth:`step` does one by one.

        Args:
            rank: whose rows of each batch to return.
            world: number of ranks.
            clock: has small batches that take little time read several at once.
            every: distance from each batch to the next one that is asked for.

        Raises:
            OptionError: there is no such rank, or there are more ranks than rows.
        """
        self.check_ranks(rank, world)

        def rows(count: int) -> tuple[int, int]:
            return rank * count // world, (rank + 1) * count // world

        return BatchReader(self._stepper, rows, self._run, every, clock)

    def check_ranks(self, rank: int, world: int) -> None:
        """Check that ``world`` ranks can share a batch, and that ``rank`` is one of them.

        Raises:
            OptionError: there are no ranks, more ranks than rows of a batch, or no such rank.
        """
        if world < 1 or world > self.batch_size:
            raise OptionError(
                f"world is {world}, but a batch has {self.batch_size} rows",
                hint="Every rank needs a row. Make batches larger, or use fewer ranks.",
            )
        if not 0 <= rank < world:
            raise OptionError(f"rank is {rank} of {world}", hint="Ranks count from 0.")

    def skip(self, state: State, count: int) -> State:
        """The state ``count`` batches further on; takes no time if every stage is indexed.

        Raises:
            StateError: it cannot be a state of this pipeline.
            PositionError: fewer batches remain, or ``count`` is negative.
            LimitError: a stage is sequential, and the batches between are too many to read.
        """
        self.check(state)
        if count < 0:
            raise PositionError(f"cannot skip {count} batches")
        return self._stepper.skip(state, count)


def build_pipeline(
    spec: PipelineSpec,
    open_source: OpenSource,
    *,
    bounds: Bounds | None = None,
    wrap: Wrap | None = None,
) -> Pipeline:
    """Build a pipeline over its data. Of the data, only the key of a split is read.

    Args:
        spec: as :func:`parse_pipeline` returns it.
        open_source: returns the source of a dataset, given its id and those of the options
            ``fields``, ``unit`` and ``view`` that the spec sets. Ranges are applied here.
        bounds: the most that the pipeline may cost.
        wrap: applied to every stage, such as a timer.

    Raises:
        PipelineError: the spec does not fit the data, or the pipeline costs too much.
        TypeError: ``open_source`` returned no source.
    """
    bounds = bounds or Bounds()
    cut = next(k for k, stage in enumerate(spec.stages) if OPERATIONS[stage.op].batches)
    batch = spec.stages[cut]
    demand = OPERATIONS[batch.op].reads(batch.options, Demand(0))
    builder = Builder(spec.stages[:cut], open_source, demand, bounds, wrap)
    batching = _batching(spec.stages[cut:], builder)
    drops = [stage for stage in spec.stages[:cut] if OPERATIONS[stage.op].drops]
    stepper = _stepper(batch, builder, batching, drops[-1] if drops else batch)
    batches = _batch_costs(spec.stages[cut:], stepper, builder.block_bytes)
    total = bounded([*builder.costs, *batches], bounds)
    cost = Cost(BASE_BYTES + total.memory, total.resume_work)
    pipeline = Pipeline(spec, stepper, cost, builder.block_bytes, builder.notes)
    _check_state_size(spec, stepper, bounds)
    _check_names(batch, pipeline.schema)
    return pipeline


def _batch_costs(
    stages: Sequence[StageSpec], stepper: Stepper, blocks: int
) -> list[tuple[StageSpec, Cost]]:
    """The costs of cutting batches, with the blocks they take, and of padding them."""
    batch, batching = stages[0], stepper.batching
    rows, size = batching.size, item_bytes(stepper.schema)
    own = OPERATIONS[batch.op].cost(Sizing(batch, size, None, rows))
    kept = 1 if isinstance(stepper, IndexedStepper) else CACHED + 2
    costs = [(batch, Cost(own.memory + blocks + kept * rows * size, own.resume_work))]
    padding = batching.padding
    if padding is None:
        return costs
    pad = next(stage for stage in stages if OPERATIONS[stage.op].pads)
    width = max(RAGGED_VALUES, padding.multiple)
    return [*costs, (pad, Cost(rows * item_bytes(padding.padded(stepper.schema), width)))]


def _batching(stages: Sequence[StageSpec], builder: Builder) -> Batching:
    schema = builder.chain(0).schema
    settings: dict[str, Any] = {"epochs": builder.epochs}
    for stage in stages:
        settings |= OPERATIONS[stage.op].shape(stage, schema)
    return Batching(**settings)


def _stepper(batch: StageSpec, builder: Builder, batching: Batching, last: StageSpec) -> Stepper:
    first = builder.chain(0)
    if OPERATIONS[batch.op].make_batches is not None:
        return SequentialStepper(builder.bucketed(batch), batching, last)
    # The epochs that follow have the same stages, and so random access or not.
    if isinstance(first, Sequential):
        return SequentialStepper(cast("Callable[[int], Sequential]", builder.chain), batching, last)
    stepper = IndexedStepper(cast("Callable[[int], Indexed]", builder.chain), batching)
    if stepper.batches_per_epoch == 0 and batching.epochs != 1:
        endless = ", which repeats for ever" if batching.epochs is None else ""
        raise batch.error(
            f"leaves no batch in an epoch of {first.length} items{endless}",
            "last" if batching.last == "drop" else "size",
            "Make batches smaller, or set last to keep, pad or wrap.",
        )
    if stepper.batches_per_epoch == 0 and first.length:
        raise batch.error(
            f"exceeds the {first.length} items, and last is drop",
            "size",
            "Make batches smaller, or set last to keep, pad or wrap.",
        )
    return stepper


def _check_state_size(spec: PipelineSpec, stepper: Stepper, bounds: Bounds) -> None:
    size = len(stepper.initial) * STATE_VALUE_BYTES
    if size > bounds.state_bytes:
        stage = next(filter(is_sequential, spec.stages), spec.stages[0])
        raise stage.error(
            f"leads to states of {len(stepper.initial)} integers, up to {size} bytes",
            "inputs" if stage.inputs else None,
            f"A state may have {bounds.state_bytes} bytes. Use fewer inputs, or fewer sequential "
            "stages.",
        )


def _check_names(batch: StageSpec, schema: Schema) -> None:
    """Check that no field has the name that the offsets of another one have in a batch."""
    names = {field.name for field in schema}
    for field in schema:
        offsets = f"{field.name}.offsets"
        if field.ragged and offsets in names:
            raise batch.error(
                f"has a field {offsets!r}, as the offsets of the ragged field {field.name!r} "
                "are named",
                hint="Select one of them by fields of the source, or rename one by the map rename.",
            )
