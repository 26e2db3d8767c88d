"""Stages with several inputs: side by side, or mixed.

Where all inputs are indexed and no random draw decides, the result is indexed, else
sequential: :func:`zipped` and :func:`mixed` give whichever it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..arrays import Indices
from ..errors import PipelineError, PositionError, StateError
from ..rng import below
from .base import Block, Column, Field, Indexed, Schema, Stage, State
from .columns import (
    block_length,
    check_positions,
    concatenate,
    empty_block,
    slice_block,
    take_block,
    unique_names,
)
from .inorder import Counting, check_state, in_order
from .options import one_of, seed_key, whole
from .quota import Plan, make_plan

MAX_INPUTS = 64
MAX_WEIGHT = 2**31
_STOPS = ("first", "all", "cycle")
_MOST_DRAWN = 65_536


def _check_inputs(inputs: Sequence[Stage]) -> None:
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise PipelineError(
            f"{len(inputs)} inputs", field="inputs", hint=f"From 1 to {MAX_INPUTS}."
        )


class _Names:
    """How the fields of inputs are called side by side."""

    def __init__(self, inputs: Sequence[Stage], names: Sequence[str] | None) -> None:
        if names is not None and len(names) != len(inputs):
            raise PipelineError(f"{len(names)} names of {len(inputs)} inputs", field="names")
        self._fields: list[list[tuple[str, Field]]] = []
        for i, stage in enumerate(inputs):
            fields = []
            for field in stage.schema:
                name = field.name if names is None else f"{names[i]}.{field.name}"
                fields.append((field.name, replace(field, name=name)))
            self._fields.append(fields)
        self.schema = tuple(field for fields in self._fields for _, field in fields)
        unique_names((field.name for field in self.schema), "names")

    def joined(self, blocks: Sequence[Block]) -> Block:
        """Blocks of the inputs as one."""
        columns: dict[str, Column] = {}
        for fields, block in zip(self._fields, blocks, strict=True):
            columns.update({field.name: block[old] for old, field in fields})
        return columns


class Zip(Indexed):
    """Item k of every input, side by side.

    Args:
        inputs: from 1 to 64.
        names: one for every input: its field x is then called ``name.x``. Without names
            no two inputs may have fields of one name.
        stop: ``shortest`` ends with the shortest input; ``strict`` wants all of a length.

    Raises:
        PipelineError: inputs, names or lengths that do not fit.
    """

    def __init__(
        self,
        inputs: Sequence[Indexed],
        *,
        names: Sequence[str] | None = None,
        stop: str = "shortest",
    ) -> None:
        _check_inputs(inputs)
        one_of("stop", stop, ("shortest", "strict"))
        self.inputs = tuple(inputs)
        self._names = _Names(inputs, names)
        lengths = {stage.length for stage in inputs}
        if stop == "strict" and len(lengths) > 1:
            raise PipelineError(
                f"inputs of lengths {', '.join(map(str, lengths))}",
                field="stop",
                hint="Inputs of differing lengths need stop shortest.",
            )
        ends = [n for n in lengths if n is not None]
        self._length = min(ends) if ends else None

    @property
    def schema(self) -> Schema:
        """The fields of all inputs."""
        return self._names.schema

    @property
    def length(self) -> int | None:
        """That of the shortest input."""
        return self._length

    def at(self, positions: Indices) -> Block:
        """The items at these positions."""
        positions = check_positions(positions, self._length)
        return self._names.joined([stage.at(positions) for stage in self.inputs])


class ZipInOrder(Counting):
    """As :class:`Zip`, of inputs of which some are sequential; the state is all of theirs.

    No input is a step ahead of another after any item, the last included.
    """

    def __init__(
        self,
        inputs: Sequence[Stage],
        *,
        names: Sequence[str] | None = None,
        stop: str = "shortest",
    ) -> None:
        _check_inputs(inputs)
        self._strict = one_of("stop", stop, ("shortest", "strict")) == "strict"
        self.inputs = tuple(in_order(stage) for stage in inputs)
        self._names = _Names(inputs, names)

    @property
    def schema(self) -> Schema:
        """The fields of all inputs."""
        return self._names.schema

    @property
    def initial(self) -> State:
        """Those of the inputs, one after another."""
        return _together([stage.initial for stage in self.inputs])

    @property
    def endless(self) -> bool:
        """Whether all inputs are."""
        return all(stage.endless for stage in self.inputs)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items.

        Raises:
            PipelineError: the inputs are of differing lengths and must not be.
        """
        check_state(state, self.initial)
        before = _apart(state, self.inputs)
        taken = [s.take(at, count) for s, at in zip(self.inputs, before, strict=True)]
        lengths = [block_length(block) for block, _ in taken]
        least = min(lengths)
        if self._strict and least < count and self._differ(before, lengths, least):
            raise PipelineError(
                "inputs are of differing lengths",
                field="stop",
                hint="Inputs of differing lengths need stop shortest.",
            )
        blocks = [slice_block(block, 0, least) for block, _ in taken]
        after = [
            after if n == least else stage.skip(at, least)
            for stage, at, n, (_, after) in zip(self.inputs, before, lengths, taken, strict=True)
        ]
        return self._names.joined(blocks), _together(after)

    def _differ(self, before: Sequence[State], lengths: Sequence[int], least: int) -> bool:
        return max(lengths) > least or len({at[0] for at in before}) > 1

    def skip(self, state: State, count: int) -> State:
        """Further on in all inputs."""
        before = _apart(state, self.inputs)
        return _together([s.skip(at, count) for s, at in zip(self.inputs, before, strict=True)])


def _together(states: Sequence[State]) -> State:
    return tuple(value for state in states for value in state)


def _apart(state: State, stages: Sequence[Counting]) -> list[State]:
    """The state of each stage out of all of them one after another."""
    parts, at = [], 0
    for stage in stages:
        size = len(stage.initial)
        parts.append(state[at : at + size])
        at += size
    return parts


def zipped(
    inputs: Sequence[Stage], *, names: Sequence[str] | None = None, stop: str = "shortest"
) -> Stage:
    """Inputs side by side, with random access if all have it."""
    indexed = [stage for stage in inputs if isinstance(stage, Indexed)]
    if len(indexed) == len(inputs):
        return Zip(indexed, names=names, stop=stop)
    return ZipInOrder(inputs, names=names, stop=stop)


def _check_mix(inputs: Sequence[Stage], weights: Sequence[int] | None, stop: str) -> list[int]:
    """The weights of inputs that can be mixed."""
    _check_inputs(inputs)
    one_of("stop", stop, _STOPS)
    for stage in inputs[1:]:
        if stage.schema != inputs[0].schema:
            raise PipelineError(
                "inputs with different fields cannot be mixed",
                field="inputs",
                hint=f"{inputs[0].schema} and {stage.schema}",
            )
    weights = [1] * len(inputs) if weights is None else list(weights)
    if len(weights) != len(inputs):
        raise PipelineError(f"{len(weights)} weights of {len(inputs)} inputs", field="weights")
    for weight in weights:
        whole("weights", weight, 0, MAX_WEIGHT)
    if not sum(weights):
        raise PipelineError(
            "the weights sum to zero", field="weights", hint="One at least is above zero."
        )
    return weights


def _check_cycle(inputs: Sequence[Stage], weights: Sequence[int]) -> None:
    for stage, weight in zip(inputs, weights, strict=True):
        if not isinstance(stage, Indexed):
            raise PipelineError(
                "an input that is read in order only cannot begin anew",
                field="stop",
                hint="Use stop first or all.",
            )
        if weight and stage.length == 0:
            raise PipelineError("an empty input cannot begin anew", field="stop")


class Mix(Indexed):
    """Items of all inputs, ``weights`` of them in every round, as evenly as that goes.

    Item m of the w that an input gives in a round of S stands where (m + 1/2) S / w sorts
    it, ties in the order of the inputs; weights are first divided by what they share.

    Args:
        inputs: from 1 to 64, with the same fields.
        weights: one for every input, all 1 by default.
        stop: ``first`` ends where an input has no item for its place; ``all`` goes on with
            the others until none has items; ``cycle`` lets inputs begin anew, for ever.

    Raises:
        PipelineError: weights that are negative, sum to zero or are too fine, inputs that
            differ in their fields, or an empty one with ``cycle``.
    """

    def __init__(
        self,
        inputs: Sequence[Indexed],
        *,
        weights: Sequence[int] | None = None,
        stop: str = "first",
    ) -> None:
        checked = _check_mix(inputs, weights, stop)
        self.inputs = tuple(inputs)
        self._cycle = stop == "cycle"
        if self._cycle:
            _check_cycle(inputs, checked)
        lengths = [None if self._cycle else stage.length for stage in inputs]
        self._plan: Plan = make_plan(checked, lengths, stop)

    @property
    def schema(self) -> Schema:
        """That of every input."""
        return self.inputs[0].schema

    @property
    def length(self) -> int | None:
        """Number of items; None for no end."""
        return self._plan.length

    def at(self, positions: Indices) -> Block:
        """The items at these positions."""
        positions = check_positions(positions, self.length)
        which, index = self._plan.at(positions)
        return _gathered(self.inputs, which, index, cycle=self._cycle)


def _gathered(inputs: Sequence[Indexed], which: Indices, index: Indices, *, cycle: bool) -> Block:
    """Item ``index[k]`` of input ``which[k]``."""
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(len(inputs) + 1))
    blocks = []
    for j, stage in enumerate(inputs):
        indices = index[order[ends[j] : ends[j + 1]]]
        if len(indices):
            n = stage.length
            blocks.append(stage.at(indices % n if cycle and n is not None else indices))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    if not blocks:
        return empty_block(inputs[0].schema)
    return take_block(concatenate(blocks, inputs[0].schema), back)


class _Cycled(Indexed):
    """An indexed stage over and over, as an input that never ends."""

    def __init__(self, inner: Indexed) -> None:
        self.inner = inner

    @property
    def schema(self) -> Schema:
        return self.inner.schema

    @property
    def length(self) -> None:
        return None

    def at(self, positions: Indices) -> Block:
        n = self.inner.length
        positions = check_positions(positions, None)
        if n == 0:  # of no weight, so never asked for an item
            if len(positions):
                raise PositionError("an item of an empty input")
            return self.inner.at(positions)
        return self.inner.at(positions if n is None else positions % n)


class RandomMix(Counting):
    """Items of all inputs, each item from an input drawn by weight.

    Draw k is ``below(derive(seed, "mix", *path), k, sum of weights)``, where weights are
    those of the inputs that can still give an item. The state is all of theirs, each
    beginning with the number of items it gave.

    Args:
        inputs: from 1 to 64, with the same fields.
        weights: one for every input, all 1 by default.
        stop: ``first`` ends where the input drawn has no item; ``all`` draws among the
            others until none has items; ``cycle`` lets inputs begin anew, for ever.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: weights that are negative or sum to zero, inputs that differ in
            their fields, or ``cycle`` of inputs that are empty or sequential.
    """

    def __init__(
        self,
        inputs: Sequence[Stage],
        *,
        weights: Sequence[int] | None = None,
        stop: str = "first",
        seed: int = 0,
        path: tuple[str | int, ...] = (),
    ) -> None:
        self._weights = np.array(_check_mix(inputs, weights, stop), np.int64)
        self._stop = stop
        self._key = seed_key(seed, "mix", *path)
        if stop == "cycle":
            _check_cycle(inputs, self._weights.tolist())
            inputs = [_Cycled(stage) for stage in inputs if isinstance(stage, Indexed)]
        self.inputs = tuple(in_order(stage) for stage in inputs)
        self._schema = inputs[0].schema

    @property
    def schema(self) -> Schema:
        """That of every input."""
        return self._schema

    @property
    def initial(self) -> State:
        """Those of the inputs, one after another."""
        return _together([stage.initial for stage in self.inputs])

    @property
    def endless(self) -> bool:
        """Whether it surely is: all inputs are."""
        return all(stage.endless for stage in self.inputs)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items."""
        check_state(state, self.initial)
        states = _apart(state, self.inputs)
        if sum(at[0] for at in states) >= 2**62:
            raise StateError("more items given than there can be")
        parts: list[Block] = []
        missing = count
        while missing:
            active = self._active(states)
            if not active.any():
                break
            block, states, ended = self._some(states, active, min(missing, _MOST_DRAWN))
            parts.append(block)
            missing -= block_length(block)
            if ended:
                break
        return concatenate(parts, self._schema), _together(states)

    def _active(self, states: Sequence[State]) -> Indices:
        """The weights of the inputs that are drawn among."""
        weights = self._weights.copy()
        if self._stop == "all":
            for j, (stage, at) in enumerate(zip(self.inputs, states, strict=True)):
                if weights[j] and not block_length(stage.take(at, 1)[0]):
                    weights[j] = 0
        return weights

    def _some(
        self, states: list[State], weights: Indices, count: int
    ) -> tuple[Block, list[State], bool]:
        """Items up to ``count`` or to where what is drawn among changes."""
        drawn = sum(at[0] for at in states)
        numbers = np.arange(drawn, drawn + count).view(np.uint64)
        draws = below(self._key, numbers, int(weights.sum()))
        which = np.searchsorted(np.cumsum(weights), draws, side="right")
        places = [np.flatnonzero(which == j) for j in range(len(self.inputs))]
        # An input that is drawn among must have one more item than it gives, for "all"
        # draws among others as soon as one has none.
        more = int(self._stop == "all")
        blocks: list[Block] = []
        cut = count
        for stage, at, hits in zip(self.inputs, states, places, strict=True):
            block = stage.take(at, len(hits) + more)[0] if len(hits) else {}
            blocks.append(block)
            available = block_length(block)
            if available < len(hits) + more and len(hits):
                cut = min(cut, int(hits[available - 1]) + 1 if more else int(hits[available]))
        counts = [int(np.searchsorted(hits, cut)) for hits in places]
        after = [s.skip(at, n) for s, at, n in zip(self.inputs, states, counts, strict=True)]
        parts = [slice_block(b, 0, n) for b, n in zip(blocks, counts, strict=True) if n]
        if not parts:
            return empty_block(self._schema), after, True
        back = np.empty(cut, np.int64)
        back[np.concatenate([hits[:n] for hits, n in zip(places, counts, strict=True)])] = (
            np.arange(cut)
        )
        whole_block = take_block(concatenate(parts, self._schema), back)
        return whole_block, after, cut < count and not more


def mixed(  # noqa: PLR0913 - the options of the stage
    inputs: Sequence[Stage],
    *,
    weights: Sequence[int] | None = None,
    order: str = "quota",
    stop: str = "first",
    seed: int = 0,
    path: tuple[str | int, ...] = (),
) -> Stage:
    """Inputs mixed by fixed quotas or by random draws.

    Raises:
        PipelineError: as the stages say, or quotas of inputs that are sequential.
    """
    if one_of("order", order, ("quota", "random")) == "random":
        return RandomMix(inputs, weights=weights, stop=stop, seed=seed, path=path)
    indexed = [stage for stage in inputs if isinstance(stage, Indexed)]
    if len(indexed) < len(inputs):
        raise PipelineError(
            "quotas of inputs that are read in order only",
            field="order",
            hint="Use order random, or put what is read in order after the mix.",
        )
    return Mix(indexed, weights=weights, stop=stop)
