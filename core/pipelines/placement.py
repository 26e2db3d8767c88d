"""Rules on the order of stages, checked before any dataset is opened.

Most orders of stages are sound, and a few cannot work: nothing can permute items after a
filter, which has no random access; a split after a shuffle would move items between training
and validation as the data grows; batches cannot be batched again. Found while the pipeline is
built, such a mistake would appear only with data, as the error of a stage that did nothing
wrong. Here the spec alone shows it, and the hint says which stage to move where.

The check walks each list of stages once and notes what it has seen (:class:`_Seen`). At every
stage each rule of ``_RULES`` compares the row of the stage in :mod:`.operations` with these
notes. The inputs of ``zip`` and ``mix`` are lists of their own, in which no batches are made.
Whether ``select_many`` keeps random access depends on the data, so that is left to building.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .operations import OPERATIONS
from .spec import PipelineSpec
from .stage import StageSpec


def check_placement(spec: PipelineSpec) -> None:
    """Check the order of the stages of a pipeline.

    Raises:
        PipelineError: a stage is in the wrong place, or none makes batches.
    """
    _check(spec.stages, outermost=True)


def is_sequential(stage: StageSpec) -> bool:
    """Whether the spec alone shows that a stage is sequential, by itself or through an input."""
    if OPERATIONS[stage.op].sequential(stage.options):
        return True
    return any(is_sequential(inner) for stages in stage.inputs for inner in stages)


@dataclass(slots=True)
class _Seen:
    """Notes on the stages before the current one: the first or last of each kind."""

    outermost: bool
    ops: list[str] = field(default_factory=list)
    batched: StageSpec | None = None
    sequential: StageSpec | None = None
    epochs: StageSpec | None = None


def _check(stages: Sequence[StageSpec], *, outermost: bool) -> None:
    seen = _Seen(outermost)
    for stage in stages:
        for rule in _RULES:
            rule(stage, seen)
        for inner in stage.inputs:
            _check(inner, outermost=False)
        seen.ops.append(stage.op)
        if OPERATIONS[stage.op].batches:
            seen.batched = stage
        if seen.sequential is None and is_sequential(stage):
            seen.sequential = stage
        if OPERATIONS[stage.op].makes_epochs(stage.options):
            seen.epochs = stage
    if outermost and seen.batched is None:
        raise stages[-1].error(
            "ends the pipeline, and no stage makes batches",
            hint='Append {"op": "batch", "size": …}.',
        )


def _beginning(stage: StageSpec, seen: _Seen) -> None:
    begins = OPERATIONS[stage.op].takes == "nothing"
    if begins and seen.ops:
        raise stage.error(
            "must be the first stage", hint="Combine several sources with zip or mix."
        )
    if not begins and not seen.ops:
        raise stage.error("cannot be the first stage", hint="Begin with source, zip or mix.")


def _batches(stage: StageSpec, seen: _Seen) -> None:
    operation = OPERATIONS[stage.op]
    if operation.batches and not seen.outermost:
        raise stage.error(
            "cannot be part of an input", hint="Put it after the stage that combines the inputs."
        )
    if operation.batches and seen.batched is not None:
        raise stage.error(
            f"cannot follow {seen.batched.op}, which makes batches already", hint="Remove one."
        )
    if operation.takes == "items" and seen.batched is not None:
        raise stage.error(
            f"takes items and cannot follow {seen.batched.op}",
            hint=f"Put it before {seen.batched.op}.",
        )
    if operation.takes == "batches" and seen.batched is None:
        hint = "Put it after batch."
        if not seen.outermost:
            hint = "Put it after batch, outside of any input."
        raise stage.error("takes batches, but no stage before it makes any", hint=hint)


def _once(stage: StageSpec, seen: _Seen) -> None:
    operation = OPERATIONS[stage.op]
    ops = seen.ops
    if operation.takes == "either" and seen.batched is not None:
        ops = ops[ops.index(seen.batched.op) :]
    if operation.once and stage.op in ops:
        raise stage.error("occurs twice", hint="Remove one.")


def _random_access(stage: StageSpec, seen: _Seen) -> None:
    operation, before = OPERATIONS[stage.op], seen.sequential
    if before is None:
        return
    if operation.random_access(stage.options):
        raise stage.error(
            f"needs random access, but {before.op} before it is sequential",
            hint=f"{_order(stage, before)} {operation.beyond_order}".strip(),
        )
    if operation.epochs is not None and not seen.outermost:
        raise stage.error(
            f"cannot follow {before.op} inside an input",
            hint="Repeat the whole pipeline, after the stage that combines the inputs.",
        )


def _order(stage: StageSpec, before: StageSpec) -> str:
    """How to give a stage random access that follows a sequential one."""
    inner = [item for stages in before.inputs for item in stages if is_sequential(item)]
    found = inner[0] if inner else before
    if inner and found.inputs:
        return _order(stage, found)
    if found.op == stage.op:
        return "Remove one."
    if inner:
        return f"Put {found.op} after {stage.op}, not into an input of {before.op}."
    if before.inputs:
        return f'Give {before.op} the order "quota".'
    return f"Put {stage.op} before {before.op}."


def _epochs(stage: StageSpec, seen: _Seen) -> None:
    if seen.epochs is None:
        return
    operation = OPERATIONS[stage.op]
    if operation.epochs is not None and operation.makes_epochs(stage.options):
        raise stage.error(
            f"contradicts {seen.epochs.op}, which sets the number of epochs already",
            operation.epochs.option,
            "Let one stage set it.",
        )
    if operation.limit is not None and seen.batched is None:
        raise stage.error(
            f"cannot follow {seen.epochs.op}, which repeats the items",
            operation.limit,
            f"Put it before {seen.epochs.op} to limit items, or after batch to limit batches.",
        )


def _sides(stage: StageSpec, seen: _Seen) -> None:
    if not OPERATIONS[stage.op].keeps_sides:
        return
    for op in seen.ops:
        if OPERATIONS[op].reorders:
            raise stage.error(
                f"cannot follow {op}, after which items would change sides as the data grows",
                hint=f"Put it before {op}.",
            )


_RULES: Sequence[Callable[[StageSpec, _Seen], None]] = (
    _beginning,
    _batches,
    _once,
    _random_access,
    _epochs,
    _sides,
)
