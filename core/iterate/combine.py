"""Zip: items of several inputs side by side.

The result is indexed if all inputs are, and sequential otherwise; :func:`zipped` builds the
right kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..arrays import Indices
from .base import Block, Column, Counting, Field, Indexed, Stage, State, check_state, in_order
from .columns import block_length, check_positions, slice_block, unique_names
from .options import one_of, refuse

MAX_INPUTS = 64
_SHORTEST = "Inputs of different lengths need stop shortest."


def check_inputs(inputs: Sequence[Stage]) -> None:
    """Check the number of inputs of a stage.

    Raises:
        PipelineError: there are none, or more than MAX_INPUTS.
    """
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise refuse(f"{len(inputs)} inputs", f"From 1 to {MAX_INPUTS}.", "inputs")


class _Names:
    """The fields of zipped inputs, renamed so that they differ."""

    def __init__(self, inputs: Sequence[Stage], names: Sequence[str] | None) -> None:
        if names is not None and len(names) != len(inputs):
            raise refuse(f"{len(names)} names for {len(inputs)} inputs", option="names")
        self._fields: list[list[tuple[str, Field]]] = []
        for i, stage in enumerate(inputs):
            fields = []
            for field in stage.schema:
                name = field.name if names is None else f"{names[i]}.{field.name}"
                fields.append((field.name, replace(field, name=name)))
            self._fields.append(fields)
        self.schema = tuple(field for fields in self._fields for _, field in fields)
        unique_names(
            (field.name for field in self.schema),
            "names",
            hint='Give each input a name, such as "names": ["a", "b"]: its x is then a.x.',
        )

    def joined(self, blocks: Sequence[Block]) -> Block:
        """One block with the columns of all inputs under their new names."""
        columns: dict[str, Column] = {}
        for fields, block in zip(self._fields, blocks, strict=True):
            columns.update({field.name: block[old] for old, field in fields})
        return columns


class Zip(Indexed):
    """Item k of every input, side by side.

    Args:
        inputs: 1 to 64 stages.
        names: one for every input, whose field x is then called ``name.x``. Without names
            no two inputs may share a field name.
        stop: ``shortest`` ends with the shortest input; ``strict`` requires equal lengths.

    Raises:
        PipelineError: there are too many inputs, or names or lengths do not fit.
    """

    def __init__(
        self,
        inputs: Sequence[Indexed],
        *,
        names: Sequence[str] | None = None,
        stop: str = "shortest",
    ) -> None:
        check_inputs(inputs)
        one_of("stop", stop, ("shortest", "strict"))
        self.inputs = tuple(inputs)
        self._names = _Names(inputs, names)
        lengths = {stage.length for stage in inputs}
        if stop == "strict" and len(lengths) > 1:
            raise refuse(f"inputs of lengths {', '.join(map(str, lengths))}", _SHORTEST, "stop")
        ends = [n for n in lengths if n is not None]
        self.length = min(ends) if ends else None
        self.schema = self._names.schema

    def at(self, positions: Indices) -> Block:
        """Read the same positions from every input."""
        positions = check_positions(positions, self.length)
        return self._names.joined([stage.at(positions) for stage in self.inputs])


class ZipInOrder(Counting):
    """:class:`Zip` where some inputs are sequential; the state holds the states of all.

    After every item, even the last, all inputs are at the same position: a longer input
    does not lose the items that found no partner.
    """

    def __init__(
        self, inputs: Sequence[Stage], *, names: Sequence[str] | None = None, stop: str = "shortest"
    ) -> None:
        check_inputs(inputs)
        self._strict = one_of("stop", stop, ("shortest", "strict")) == "strict"
        self.inputs = tuple(in_order(stage) for stage in inputs)
        self._names = _Names(inputs, names)
        self.schema = self._names.schema
        self.initial = join_states([stage.initial for stage in self.inputs])
        self.endless = all(stage.endless for stage in self.inputs)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read all inputs, and put back the items that the shortest one cannot match.

        Raises:
            PipelineError: ``stop`` is ``strict`` and the lengths of the inputs differ.
        """
        check_state(state, self.initial)
        before = split_states(state, self.inputs)
        results = [s.take(at, count) for s, at in zip(self.inputs, before, strict=True)]
        lengths = [block_length(block) for block, _ in results]
        shortest = min(lengths)
        if self._strict and shortest < count and self._differ(before, lengths, shortest):
            raise refuse("inputs are of different lengths", _SHORTEST, "stop")
        blocks = [slice_block(block, 0, shortest) for block, _ in results]
        after = [
            after if n == shortest else stage.skip(at, shortest)
            for stage, at, n, (_, after) in zip(self.inputs, before, lengths, results, strict=True)
        ]
        return self._names.joined(blocks), join_states(after)

    def _differ(self, before: Sequence[State], lengths: Sequence[int], shortest: int) -> bool:
        return max(lengths) > shortest or len({at[0] for at in before}) > 1

    def skip(self, state: State, count: int) -> State:
        """Skip in all inputs."""
        before = split_states(state, self.inputs)
        return join_states([s.skip(at, count) for s, at in zip(self.inputs, before, strict=True)])


def join_states(states: Sequence[State]) -> State:
    """Join the states of several stages into one."""
    return tuple(value for state in states for value in state)


def split_states(state: State, stages: Sequence[Counting]) -> list[State]:
    """Split a joined state into the states of the stages."""
    parts, at = [], 0
    for stage in stages:
        size = len(stage.initial)
        parts.append(state[at : at + size])
        at += size
    return parts


def zipped(
    inputs: Sequence[Stage], *, names: Sequence[str] | None = None, stop: str = "shortest"
) -> Stage:
    """Zip inputs, with random access if all of them have it."""
    indexed = [stage for stage in inputs if isinstance(stage, Indexed)]
    if len(indexed) == len(inputs):
        return Zip(indexed, names=names, stop=stop)
    return ZipInOrder(inputs, names=names, stop=stop)
