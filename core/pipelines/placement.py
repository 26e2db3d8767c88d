"""Which stage can follow which: refused before any data is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .operations import OPERATIONS
from .spec import PipelineSpec
from .stage import StageSpec


def check_placement(spec: PipelineSpec) -> None:
    """Check that the stages of a pipeline can follow each other.

    Raises:
        PipelineError: one cannot stand where it does, or one is missing.
    """
    _check(spec.stages, outermost=True)


def is_sequential(stage: StageSpec) -> bool:
    """Whether its items come one after the other only; those of a select_many may, too."""
    if OPERATIONS[stage.op].sequential(stage.options):
        return True
    return any(is_sequential(inner) for stages in stage.inputs for inner in stages)


@dataclass(slots=True)
class _Seen:
    """What stood before a stage."""

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
            "is the last stage, and nothing makes batches",
            hint='Add {"op": "batch", "size": …}.',
        )


def _beginning(stage: StageSpec, seen: _Seen) -> None:
    begins = OPERATIONS[stage.op].takes == "nothing"
    if begins and seen.ops:
        raise stage.error(
            "can only be the first stage", hint="Several sources are inputs of zip or mix."
        )
    if not begins and not seen.ops:
        raise stage.error("cannot be the first stage", hint="Begin with source, zip or mix.")


def _batches(stage: StageSpec, seen: _Seen) -> None:
    operation = OPERATIONS[stage.op]
    if operation.batches and not seen.outermost:
        raise stage.error(
            "cannot be in an input: batches are made at the end", hint="Put it after the inputs."
        )
    if operation.batches and seen.batched is not None:
        raise stage.error(
            f"cannot follow {seen.batched.op}: there are batches already", hint="Leave one out."
        )
    if operation.takes == "items" and seen.batched is not None:
        raise stage.error(
            f"takes items and cannot follow {seen.batched.op}",
            hint=f"Put it before {seen.batched.op}.",
        )
    if operation.takes == "batches" and seen.batched is None:
        hint = "Put it after batch." if seen.outermost else "It belongs to the outermost stages."
        raise stage.error("takes batches, and none are made before it", hint=hint)


def _once(stage: StageSpec, seen: _Seen) -> None:
    operation = OPERATIONS[stage.op]
    ops = seen.ops
    if operation.takes == "either" and seen.batched is not None:
        ops = ops[ops.index(seen.batched.op) :]
    if operation.once and stage.op in ops:
        raise stage.error("is there twice", hint="Leave one out.")


def _random_access(stage: StageSpec, seen: _Seen) -> None:
    operation, before = OPERATIONS[stage.op], seen.sequential
    if before is None:
        return
    if operation.random_access(stage.options):
        instead = f", or {operation.without_access}" if operation.without_access else ""
        raise stage.error(
            f"needs items by position, which {before.op} cannot give",
            hint=f"Put it before {before.op}{instead}.",
        )
    if operation.epochs is not None and not seen.outermost:
        raise stage.error(
            f"cannot follow {before.op} in an input", hint="Repeat the whole pipeline."
        )


def _epochs(stage: StageSpec, seen: _Seen) -> None:
    if seen.epochs is None:
        return
    operation = OPERATIONS[stage.op]
    if operation.epochs is not None and operation.makes_epochs(stage.options):
        raise stage.error(
            f"contradicts {seen.epochs.op}, which has epochs already",
            operation.epochs.option,
            "One stage says how many epochs there are.",
        )
    if operation.limit is not None and seen.batched is None:
        raise stage.error(
            f"of items cannot follow {seen.epochs.op}, which goes through them anew",
            operation.limit,
            f"Put it before {seen.epochs.op}, or after the batches to limit these.",
        )


def _sides(stage: StageSpec, seen: _Seen) -> None:
    if not OPERATIONS[stage.op].keeps_sides:
        return
    for op in seen.ops:
        if OPERATIONS[op].reorders:
            raise stage.error(
                f"cannot follow {op}: items would change sides as the data grows",
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
