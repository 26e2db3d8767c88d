"""Mix: items of several inputs with the same fields, interleaved by weight.

There are two ways to decide which input is next:

* By *quota* (:class:`Mix`): in a fixed pattern, in which weights 2 and 1 give ``a b a``. Where an
  item is in the pattern follows from its position by division, so indexed inputs make an
  indexed mix. The weights define a *round*. Rounds repeat, so a position is the number of a
  round and a place in it. If an input runs out, possibly within a round, the others continue
  in a new *phase* with a round of their own; there are at most as many phases as inputs::

      position   0  1  2  3  4  5  6  |  7  8  9        b has 2 items
      item       a0 b0 a1 a2 b1 a3 a4 |  a5 a6 a7
      phase      0, round a b a       |  1, round a a

* By *random draws* (:class:`RandomMix`): draw k is a function of the key and k. Yet *which item*
  of the drawn input comes next depends on all earlier draws, so this mix is sequential::

      k            0  1  2  3  4
      draw         a  a  b  a  b
      item         a0 a1 b0 a2 b1
      state after  the states of a and b, each of which begins with a count

  The counts sum to k, so the state needs no position of its own.

Draws are made and items are read in blocks. If an input runs out, the block is cut there:
``first`` ends, and ``all`` draws the rest again among the remaining inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Indices
from ..budget import Scope, current
from ..errors import PositionError, StateError
from ..rng import below
from .base import MAX_ITEMS, Block, Counting, Indexed, Stage, State, check_state, in_order
from .columns import (
    block_bytes,
    block_length,
    check_positions,
    concatenate,
    empty_block,
    gather,
    slice_block,
    take_block,
)
from .combine import check_inputs, join_states, split_states
from .options import one_of, refuse, seed_key, whole

MAX_ROUND = 2**16
"""Most items of a round, which are the sum of the weights in lowest terms."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """A stretch of positions in which the same inputs take part."""

    start: int
    inputs: Indices
    """Input at every place of a round."""
    rank: Indices
    """For every place, the number of earlier places of the same input in the round."""
    quota: Indices
    """Places of each input in a round."""
    consumed: Indices
    """Items taken from each input before the phase."""

    def at(self, positions: Indices) -> tuple[Indices, Indices]:
        """Input of every position, and the number of its item."""
        rounds = (positions - self.start) // len(self.inputs)
        place = positions - self.start - rounds * len(self.inputs)
        inputs = self.inputs[place]
        index = self.consumed[inputs] + rounds * self.quota[inputs] + self.rank[place]
        return inputs, index


@dataclass(frozen=True, slots=True)
class Plan:
    """The phases of a mix, and its length."""

    phases: tuple[_Phase, ...]
    length: int | None

    def at(self, positions: Indices) -> tuple[Indices, Indices]:
        """Input of every position, and the number of its item; shapes (k,)."""
        if len(self.phases) == 1:
            return self.phases[0].at(positions)
        starts = np.array([phase.start for phase in self.phases], np.int64)
        phase_of = np.searchsorted(starts, positions, side="right") - 1
        inputs, index = np.empty_like(positions), np.empty_like(positions)
        for i in np.unique(phase_of).tolist():
            places = phase_of == i
            inputs[places], index[places] = self.phases[i].at(positions[places])
        return inputs, index


def _round(weights: Sequence[int]) -> Indices:
    """The input at every place of a round.

    Item m of w is at (2 m + 1) / (2 w) of the round, so that each input is spread evenly.
    """
    common = math.gcd(*weights)
    shares = [weight // common for weight in weights]
    total = sum(shares)
    if total > MAX_ROUND:
        hint = f"Choose coarser weights, with a sum of at most {MAX_ROUND}."
        raise refuse(f"the weights in lowest terms sum to {total}", hint, "weights")
    inputs = np.repeat(np.arange(len(shares)), shares)
    item = np.concatenate([np.arange(share) for share in shares])
    # Fractions that differ do so by at least 1 / 2**33, which float64 tells apart.
    place = (2 * item + 1) / (2 * np.repeat(shares, shares))
    return np.asarray(inputs[np.lexsort((inputs, place))], np.int64)


def _phase(start: int, inputs: Indices, consumed: Indices) -> _Phase:
    rank = np.empty(len(inputs), np.int64)
    quota = np.zeros(len(consumed), np.int64)
    for j in range(len(consumed)):
        places = np.flatnonzero(inputs == j)
        rank[places] = np.arange(len(places))
        quota[j] = len(places)
    return _Phase(start, inputs, rank, quota, consumed)


def _shortage(phase: _Phase, lengths: Sequence[int | None]) -> int | None:
    """First position at which an input of the phase has no item left, or None."""
    first = None
    for j, length in enumerate(lengths):
        if length is None or not phase.quota[j]:
            continue
        rounds, rank = divmod(length - int(phase.consumed[j]), int(phase.quota[j]))
        place = int(np.flatnonzero(phase.inputs == j)[rank])
        position = phase.start + rounds * len(phase.inputs) + place
        first = position if first is None else min(first, position)
    return first


def make_plan(weights: Sequence[int], lengths: Sequence[int | None], stop: str) -> Plan:
    """Plan a mix by quota.

    Args:
        weights: of the inputs, not all zero.
        lengths: of the inputs, None if endless, as all are with ``cycle``.
        stop: ``first``, ``all`` or ``cycle``.

    Raises:
        PipelineError: the sum of weights in lowest terms is above ``MAX_ROUND``.
    """
    inputs = _round(weights)
    phase = _phase(0, inputs, np.zeros(len(weights), np.int64))
    phases = [phase]
    while True:
        end = _shortage(phase, lengths)
        if end is None or end > MAX_ITEMS:
            return Plan(tuple(phases), None)
        if stop == "first":
            return Plan(tuple(phases), end)
        # The phase from ``end`` on, without the input that has no item there.
        rounds, place = divmod(end - phase.start, len(phase.inputs))
        partly = np.bincount(phase.inputs[:place], minlength=len(phase.consumed))
        consumed = phase.consumed + rounds * phase.quota + partly
        gone = int(phase.inputs[place])
        rest = np.roll(phase.inputs, -place)
        phase = _phase(end, rest[rest != gone], consumed)
        if not len(phase.inputs):
            return Plan(tuple(phases), end)
        phases.append(phase)


MAX_WEIGHT = 2**31
_STOPS = ("first", "all", "cycle")
_MAX_DRAWN = 65_536
_GATHER_BYTES = 7 * 8
"""Memory of an item while those of several inputs are put in order: its input, number, round and
places."""


def _check_mix(inputs: Sequence[Stage], weights: Sequence[int] | None, stop: str) -> list[int]:
    """Check that inputs can be mixed; return one weight for each."""
    check_inputs(inputs)
    one_of("stop", stop, _STOPS)
    for stage in inputs[1:]:
        if stage.schema != inputs[0].schema:
            raise refuse(
                f"inputs with different fields cannot be mixed: {_difference(inputs[0], stage)}",
                "Make them alike by map in the inputs: cast changes a dtype, select chooses"
                " fields in order, rename names them.",
                "inputs",
            )
    weights = [1] * len(inputs) if weights is None else list(weights)
    if len(weights) != len(inputs):
        raise refuse(f"{len(weights)} weights for {len(inputs)} inputs", option="weights")
    for weight in weights:
        whole("weights", weight, 0, MAX_WEIGHT)
    if not sum(weights):
        raise refuse("the weights sum to zero", "Give one input a weight above 0.", "weights")
    return weights


def _difference(first: Stage, other: Stage) -> str:
    """How the fields of two inputs differ, in words."""
    known, found = ({field.name: field.words for field in each.schema} for each in (first, other))
    for name in known | found:
        if known.get(name) != found.get(name):
            one, two = known.get(name, "missing"), found.get(name, "missing")
            return f"{name} is {one} in the first, {two} in another"
    return f"they are in the order {', '.join(known)} in the first, {', '.join(found)} in another"


def _cycled(inputs: Sequence[Stage], weights: Sequence[int]) -> list[Indexed]:
    """The inputs, each repeated for ever."""
    cycled: list[Indexed] = []
    for stage, weight in zip(inputs, weights, strict=True):
        if not isinstance(stage, Indexed):
            hint = "Use stop first or all."
            raise refuse("a sequential input cannot start over", hint, "stop")
        if weight and stage.length == 0:
            raise refuse("an empty input cannot start over", option="stop")
        cycled.append(_Cycled(stage))
    return cycled


class Mix(Indexed):
    """Items of all inputs in rounds, ``weights`` items of each, spread evenly.

    Weights are first divided by their greatest common divisor. Item m of the w that an
    input has in a round of S items is sorted to (m + 1/2) S / w; ties go to the first input.

    Args:
        inputs: 1 to 64 stages with the same fields.
        weights: one for every input, all 1 by default.
        stop: ``first`` ends when an input has no item for its place; ``all`` continues
            with the others until none has items; ``cycle`` restarts inputs for ever.

    Raises:
        PipelineError: weights are negative, sum to zero or are too fine, the fields of
            inputs differ, or one is empty with ``cycle``.
    """

    def __init__(
        self,
        inputs: Sequence[Indexed],
        *,
        weights: Sequence[int] | None = None,
        stop: str = "first",
    ) -> None:
        checked = _check_mix(inputs, weights, stop)
        self.inputs = tuple(_cycled(inputs, checked) if stop == "cycle" else inputs)
        self._plan: Plan = make_plan(checked, [stage.length for stage in self.inputs], stop)
        self.schema = self.inputs[0].schema
        self.length = self._plan.length

    def at(self, positions: Indices) -> Block:
        """Read the items of each input together, then restore the order of positions."""
        positions = check_positions(positions, self.length)
        if len(self.inputs) == 1:
            return self.inputs[0].at(positions)
        current().hold("mix", _GATHER_BYTES * len(positions))
        inputs, index = self._plan.at(positions)
        return gather(inputs, lambda j, places: self.inputs[j].at(index[places]), self.schema)


class _Cycled(Indexed):
    """An indexed stage, repeated for ever."""

    def __init__(self, inner: Indexed) -> None:
        self.inner = inner
        self.schema = self.inner.schema
        self.length = None

    def at(self, positions: Indices) -> Block:
        n = self.inner.length
        positions = check_positions(positions, None)
        if n == 0:  # allowed with weight 0, so no item is drawn
            if len(positions):
                raise PositionError("an item cannot be drawn from an empty input")
            return self.inner.at(positions)
        return self.inner.at(positions if n is None else positions % n)


class RandomMix(Counting):
    """Items of all inputs; a random draw by weight chooses the input of each.

    Draw k is ``below(derive(seed, "mix", *path), k, sum of weights)`` over the weights of
    the inputs that still have items. The state holds the states of all inputs; each begins
    with the number of items taken from it.

    Args:
        inputs: 1 to 64 stages with the same fields.
        weights: one for every input, all 1 by default.
        stop: ``first`` ends when the drawn input has no item; ``all`` draws among the
            others until none has items; ``cycle`` restarts inputs for ever.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: weights are negative or sum to zero, the fields of inputs differ, or
            an input is empty or sequential with ``cycle``.
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
            inputs = _cycled(inputs, self._weights.tolist())
        self.inputs = tuple(in_order(stage) for stage in inputs)
        self.schema = inputs[0].schema
        self.initial = join_states([stage.initial for stage in self.inputs])
        self.endless = all(stage.endless for stage in self.inputs)

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Draw inputs and read their next items.

        Raises:
            StateError: it cannot be a state of this stage.
        """
        check_state(state, self.initial)
        states = split_states(state, self.inputs)
        if sum(at[0] for at in states) >= 2**62:
            raise StateError("the counts in the state sum to 2**62 items or more")
        parts: list[Block] = []
        missing = count
        while missing:
            with Scope():
                active = self._active(states)
                if not active.any():
                    break
                block, states, ended = self._draw(states, active, min(missing, _MAX_DRAWN))
            parts.append(block)
            current().hold("mix", block_bytes(block))
            missing -= block_length(block)
            if ended:
                break
        return concatenate(parts, self.schema), join_states(states)

    def _active(self, states: Sequence[State]) -> Indices:
        """Weights of the inputs to draw among; 0 for those that ran out, with ``all``."""
        weights = self._weights.copy()
        if self._stop == "all":
            for j, (stage, at) in enumerate(zip(self.inputs, states, strict=True)):
                if weights[j] and not block_length(stage.take(at, 1)[0]):
                    weights[j] = 0
        return weights

    def _draw(
        self, states: list[State], weights: Indices, count: int
    ) -> tuple[Block, list[State], bool]:
        """Draw ``count`` items, fewer if an input runs out; the flag says that the mix ends."""
        drawn = sum(at[0] for at in states)
        numbers = np.arange(drawn, drawn + count).view(np.uint64)
        draws = below(self._key, numbers, int(weights.sum()))
        inputs = np.searchsorted(np.cumsum(weights), draws, side="right")
        places = [np.flatnonzero(inputs == j) for j in range(len(self.inputs))]
        # With "all", an input takes part only while it has a further item, so each is read one
        # item ahead: the draw that follows its last item is among the others.
        more = int(self._stop == "all")
        blocks: list[Block] = []
        following: list[State] = []
        cut = count
        for stage, at, hits in zip(self.inputs, states, places, strict=True):
            block, state = stage.take(at, len(hits)) if len(hits) else ({}, at)
            blocks.append(block)
            following.append(state)
            available = block_length(block)
            if more and 0 < available == len(hits):
                available += block_length(stage.take(state, 1)[0])
            if available < len(hits) + more and len(hits):
                cut = min(cut, int(hits[available - 1]) + 1 if more else int(hits[available]))
        counts = [int(np.searchsorted(hits, cut)) for hits in places]
        # Skipping may read all again: it is needed only where fewer items are used than drawn.
        after = [
            state if n == len(hits) == block_length(block) else stage.skip(at, n)
            for stage, at, state, hits, block, n in zip(
                self.inputs, states, following, places, blocks, counts, strict=True
            )
        ]
        parts = [slice_block(b, 0, n) for b, n in zip(blocks, counts, strict=True) if n]
        if not parts:
            return empty_block(self.schema), after, True
        back = np.empty(cut, np.int64)
        back[np.concatenate([hits[:n] for hits, n in zip(places, counts, strict=True)])] = (
            np.arange(cut)
        )
        whole_block = take_block(concatenate(parts, self.schema), back)
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
    """Mix inputs by quota or by random draws.

    Raises:
        PipelineError: as in :class:`Mix` and :class:`RandomMix`, or an input is sequential
            and ``order`` is ``quota``.
    """
    if one_of("order", order, ("quota", "random")) == "random":
        return RandomMix(inputs, weights=weights, stop=stop, seed=seed, path=path)
    indexed = [stage for stage in inputs if isinstance(stage, Indexed)]
    if len(indexed) < len(inputs):
        hint = "Use order random, or put the sequential stages after the mix."
        raise refuse("a mix by quota of sequential inputs", hint, "order")
    return Mix(indexed, weights=weights, stop=stop)
