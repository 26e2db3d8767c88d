"""Map and filter.

A map is indexed or sequential like the stage below it; :func:`mapped`, :func:`randomly_mapped`
and :func:`named_map` build the right kind. A filter is always sequential, because only reading
tells how many items pass.

Functions take whole blocks, for speed. If one fails, it is called again item by item, and
:class:`TransformError` names the position of the first item on which it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..arrays import Indices, Mask
from ..budget import Scope, current
from ..errors import PipelineError, TransformError, WorkStoppedError, names_hint
from ..rng import Draws
from .base import Block, Counting, Indexed, Schema, Stage, State, check_state, in_order
from .columns import (
    block_bytes,
    block_length,
    check_positions,
    concatenate,
    empty_block,
    schema_of,
    slice_block,
    take_block,
)
from .options import seed_key
from .transforms import (
    PREDICATES,
    RANDOM_TRANSFORMS,
    TRANSFORMS,
    Function,
    Predicate,
    RandomFunction,
)

T = TypeVar("T")
_MIN_READ, _MAX_READ = 64, 65_536
"""Fewest and most items that a filter reads at once."""
_READ_BYTES = 16 << 20
"""Bytes of items that a filter reads at once; a single item may be larger."""
_RAGGED_BYTES = 16 << 10
"""Bytes that a ragged item is assumed to have before any was read."""
_CHECKED = 256
"""Items tried one by one between two checks of the budget."""
_MAX_REJECTED = 2**26
"""Items in a row that a filter may reject from an endless stage."""


Applied = Callable[[Block, Indices], Block]
"""From items and their positions to as many items."""


class _Pointwise:
    """Applies a function to items and their positions, and checks the results."""

    def __init__(self, function: Applied, schema: Schema | None, inner: Stage) -> None:
        self._function = function
        self.schema = self._inferred(inner) if schema is None else schema

    def _inferred(self, inner: Stage) -> Schema:
        """The schema of the result for the first item, which is read for this."""
        stage = in_order(inner)
        block, _ = stage.take(stage.initial, 1)
        positions = np.arange(block_length(block), dtype=np.int64)
        result = _located("transform", self._call, block, positions)
        return schema_of(result)

    def apply(self, block: Block, positions: Indices) -> Block:
        """Apply the function to a block of items with their positions.

        Raises:
            TransformError: the function fails, or its results do not fit the schema.
        """
        if not len(positions):
            return empty_block(self.schema)
        result = _located("transform", self._call, block, positions)
        if schema_of(result) != self.schema:
            raise TransformError(
                "a transform returned fields other than those it declares",
                position=int(positions[0]),
                hint=f"Declared: {self.schema}; returned: {schema_of(result)}.",
            )
        return {field.name: result[field.name] for field in self.schema}

    def _call(self, block: Block, positions: Indices) -> Block:
        result = self._function(block, positions)
        count, lengths = len(positions), {name: len(column) for name, column in result.items()}
        if not lengths or set(lengths.values()) != {count}:
            raise ValueError(f"it returned columns of lengths {lengths} for {count} items")
        return result


def _located(
    noun: str, function: Callable[[Block, Indices], T], block: Block, positions: Indices
) -> T:
    """Call a caller's function; an error names the first item on which it fails.

    Raises:
        TransformError: it fails.
    """
    try:
        return function(block, positions)
    except WorkStoppedError:
        raise
    except Exception as error:
        at = _first_failure(function, block, positions)
        where = "a block" if at is None else f"the item at position {at}"
        raise TransformError(
            f"a {noun} failed on {where}: {error}",
            hint="Filter such items out, or change them, in a stage before. Positions are those"
            " of the stage's input: after shuffles, shards and filters",
            position=at,
        ) from error


def _first_failure(
    function: Callable[[Block, Indices], object], block: Block, positions: Indices
) -> int | None:
    """Position of the first item on which a function fails alone, or None."""
    for i in range(len(positions)):
        if i % _CHECKED == 0:
            current().check("map")
        try:
            function(slice_block(block, i, i + 1), positions[i : i + 1])
        except Exception:  # noqa: BLE001 - whichever error a caller's function raises
            return int(positions[i])
    return int(positions[0]) if len(positions) == 1 else None


class Map(Indexed):
    """Applies a function to every item of an indexed stage.

    Args:
        inner: stage the items come from.
        function: see :data:`Applied`.
        schema: of the result; None infers it from the first item.
    """

    def __init__(self, inner: Indexed, function: Applied, schema: Schema | None = None) -> None:
        self.inner = inner
        self._points = _Pointwise(function, schema, inner)
        self.schema = self._points.schema
        self.length = inner.length

    def at(self, positions: Indices) -> Block:
        """Read items and apply the function.

        Raises:
            PositionError: a position is out of range.
            TransformError: the function fails, or its results do not fit the schema.
        """
        positions = check_positions(positions, self.length)
        return self._points.apply(self.inner.at(positions), positions)


class MapInOrder(Counting):
    """:class:`Map` for a sequential stage."""

    def __init__(self, inner: Stage, function: Applied, schema: Schema | None = None) -> None:
        self.inner = in_order(inner)
        self._points = _Pointwise(function, schema, inner)
        self.schema = self._points.schema
        self.initial = self.inner.initial
        self.endless = self.inner.endless

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items and apply the function.

        Raises:
            TransformError: the function fails, or its results do not fit the schema.
        """
        check_state(state, self.initial)
        block, after = self.inner.take(state, count)
        return self._points.apply(block, np.arange(state[0], after[0])), after

    def skip(self, state: State, count: int) -> State:
        """Skip in the inner stage; the function is not called."""
        return self.inner.skip(state, count)


def mapped(inner: Stage, function: Function, schema: Schema | None = None) -> Stage:
    """Map a function over a stage; the result is indexed if the stage is."""
    return _mapped(inner, lambda block, _positions: function(block), schema)


def randomly_mapped(
    inner: Stage,
    function: RandomFunction,
    schema: Schema | None = None,
    *,
    seed: int = 0,
    path: tuple[str | int, ...] = (),
) -> Stage:
    """Map a function of items and random numbers, which depend only on their positions.

    In a sequential stage, the position of an item is the count before it.

    Args:
        inner: stage the items come from.
        function: from a block and :class:`Draws` to a block of as many items.
        schema: of the result; None infers it from the first item.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.
    """
    key = seed_key(seed, "map", *path)
    stage = _mapped(inner, lambda block, positions: function(block, Draws(key, positions)), schema)
    return stage.naming(seed=seed, path=path)


def _mapped(inner: Stage, function: Applied, schema: Schema | None) -> Stage:
    if isinstance(inner, Indexed):
        return Map(inner, function, schema)
    return MapInOrder(inner, function, schema)


def named_map(
    inner: Stage,
    fn: str,
    args: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    path: tuple[str | int, ...] = (),
) -> Stage:
    """Map a transform of ``TRANSFORMS`` or ``RANDOM_TRANSFORMS`` over a stage.

    Raises:
        PipelineError: there is no transform of that name (field ``fn``), or its arguments
            are invalid for these items (field ``args``).
    """
    if fn in TRANSFORMS:
        function, schema = TRANSFORMS[fn](args or {}, inner.schema)
        return mapped(inner, function, schema).naming(fn=fn, args=args)
    if fn in RANDOM_TRANSFORMS:
        random, schema = RANDOM_TRANSFORMS[fn](args or {}, inner.schema)
        stage = randomly_mapped(inner, random, schema, seed=seed, path=path)
        return stage.naming(fn=fn, args=args)
    hint = names_hint(fn, sorted({**TRANSFORMS, **RANDOM_TRANSFORMS}))
    raise PipelineError(f"fn is {fn!r}", field="fn", hint=f"{hint}.")


def named_filter(inner: Stage, pred: str, args: Mapping[str, Any] | None = None) -> Filter:
    """Filter a stage by a predicate of ``PREDICATES``.

    Raises:
        PipelineError: there is no predicate of that name (field ``pred``), or its arguments
            are invalid for these items (field ``args``).
    """
    if pred not in PREDICATES:
        hint = names_hint(pred, sorted(PREDICATES))
        raise PipelineError(f"pred is {pred!r}", field="pred", hint=f"{hint}.")
    predicate = PREDICATES[pred](args or {}, inner.schema)
    return Filter(inner, predicate).naming(pred=pred, args=args)


class Filter(Counting):
    """The items that pass a predicate.

    Args:
        inner: stage the items come from.
        predicate: from a block to one bool per item, shape (k,).
    """

    def __init__(self, inner: Stage, predicate: Predicate) -> None:
        self.inner = in_order(inner)
        self._predicate = predicate
        sizes = [field.nbytes or _RAGGED_BYTES for field in inner.schema]
        self._first = max(min(_READ_BYTES // sum(sizes, 1), _MAX_READ), 1)
        self.schema = self.inner.schema
        self.initial = self.inner.initial
        self.endless = self.inner.endless

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items that pass.

        Raises:
            TransformError: the predicate fails, or rejects 2**26 items in a row from an
                endless stage.
        """
        check_state(state, self.initial)
        parts: list[Block] = []
        missing, rejected, size, most = count, 0, max(count, _MIN_READ), self._first
        while missing:
            size = min(size, most)
            with Scope():
                block, after = self.inner.take(state, size)
                read = after[0] - state[0]
                passed = np.flatnonzero(self._passes(block, state[0], read))[:missing]
                part = take_block(block, passed)
                missing -= len(passed)
                if not missing:
                    after = self.inner.skip(state, int(passed[-1]) + 1)
            parts.append(part)
            state = after
            if read < size or not missing:
                break
            current().hold("filter", block_bytes(part))
            rejected = 0 if len(passed) else rejected + read
            self._check_rejected(rejected, state[0])
            size, most = 2 * size, self._most(block, read)
        return concatenate(parts, self.schema), state

    @staticmethod
    def _most(block: Block, read: int) -> int:
        """Most items to read next, if they are as large as those before."""
        size = block_bytes(block) // max(read, 1)
        return max(min(_READ_BYTES // max(size, 1), _MAX_READ), 1)

    def _check_rejected(self, rejected: int, position: int) -> None:
        if rejected >= _MAX_REJECTED and self.endless:
            raise TransformError(
                f"a filter rejected {rejected} items in a row of an endless stage",
                position=position,
            )

    def _passes(self, block: Block, start: int, count: int) -> Mask:
        if not count:
            return np.zeros(0, bool)
        positions = np.arange(start, start + count)
        return _located("predicate", self._verdicts, block, positions)

    def _verdicts(self, block: Block, positions: Indices) -> Mask:
        passes, count = np.asarray(self._predicate(block)), len(positions)
        if passes.dtype != np.bool_ or passes.shape != (count,):
            found = f"{passes.dtype} of shape {passes.shape}"
            raise ValueError(f"it returned {found}, not {count} bools")
        return passes
