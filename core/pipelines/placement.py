"""Which stage can follow which: refused before any data is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .operations import OPERATIONS
from .spec import PipelineSpec, StageSpec

_REORDERING = ("permute", "repeat", "shuffle", "shard", "select_many", "window", "mix")
"""Behind these an item's position says nothing of the item, or changes as data grows."""


def check_placement(spec: PipelineSpec) -> None:
    """Check that the stages of a pipeline can follow each other.

    Raises:
        PipelineError: one cannot stand where it does, or one is missing.
    """
    _check(spec.stages, outermost=True)


def is_sequential(stage: StageSpec) -> bool:
    """Whether its items come one after the other only; a select_many only may."""
    match stage.op:
        case "shuffle":
            return bool(stage.options["kind"] == "reservoir")
        case "mix" if stage.options["order"] == "random":
            return True
    if OPERATIONS[stage.op].sequential:
        return True
    return any(is_sequential(each) for stages in stage.inputs for each in stages)


def makes_epochs(stage: StageSpec) -> bool:
    """Whether it says how often the data is gone through."""
    return stage.op == "repeat" or (stage.op == "permute" and stage.options["epochs"] != 1)


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
        if makes_epochs(stage):
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
            "cannot be in an input: batches are made at the end", hint="Put it behind the inputs."
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
        hint = "Put it behind batch." if seen.outermost else "It belongs to the outermost stages."
        raise stage.error("takes batches, and none are made before it", hint=hint)


def _once(stage: StageSpec, seen: _Seen) -> None:
    behind = seen.batched is not None and stage.op == "limit"
    same = seen.ops[seen.ops.index(seen.batched.op) :] if behind and seen.batched else seen.ops
    if stage.op in {"permute", "epoch", "pad", "limit", "split"} and stage.op in same:
        raise stage.error("is there twice", hint="Leave one out.")


def _random_access(stage: StageSpec, seen: _Seen) -> None:
    indexed = OPERATIONS[stage.op].random_access or (
        stage.op == "shuffle" and stage.options["kind"] != "reservoir"
    )
    before = seen.sequential
    if indexed and before is not None:
        raise stage.error(
            f"needs items by position, which {before.op} cannot give",
            hint=f"Put it before {before.op}"
            + (', or take kind "reservoir".' if stage.op == "shuffle" else "."),
        )
    if stage.op == "repeat" and not seen.outermost and before is not None:
        raise stage.error(
            f"cannot follow {before.op} in an input", hint="Repeat the whole pipeline."
        )


def _epochs(stage: StageSpec, seen: _Seen) -> None:
    if seen.epochs is None:
        return
    if makes_epochs(stage):
        name = "times" if stage.op == "repeat" else "epochs"
        raise stage.error(
            f"contradicts {seen.epochs.op}, which has epochs already",
            name,
            "One stage says how many epochs there are.",
        )
    if stage.op == "limit" and seen.batched is None:
        raise stage.error(
            f"of items cannot follow {seen.epochs.op}, which goes through them anew",
            "count",
            f"Put it before {seen.epochs.op}, or behind the batches to limit these.",
        )


def _positions(stage: StageSpec, seen: _Seen) -> None:
    if stage.op != "split":
        return
    for op in seen.ops:
        if op in _REORDERING:
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
    _positions,
)


def every_stage(stages: Sequence[StageSpec]) -> Iterator[StageSpec]:
    """The stages and those of their inputs, inputs first."""
    for stage in stages:
        for inner in stage.inputs:
            yield from every_stage(inner)
        yield stage
