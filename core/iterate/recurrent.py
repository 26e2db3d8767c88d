"""Scans: running sums, means and extremes over items in order.

A running result needs everything before it, so resuming would mean reading from the start. But
a sum needs only the sum so far, a mean the count and the mean so far, and so on: a few
*accumulators* of 64 bits that no number of items makes larger. They become part of the state,
which resumes at any item at once and to the last bit::

    state   (low, high, ..., position, ...)
             one accumulator: its bits 0-31, then 32-63
             then the state of the inner stage, which begins with the number of earlier values

States hold integers below 2**63, and the bit pattern of a double or a negative int64 needs all
64 bits. Hence the two halves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .._jit import kernel
from ..arrays import Array, Floats
from ..errors import StateError
from .base import Block, Counting, Field, Stage, State, check_state, in_order
from .columns import block_length, unique_names, values_of
from .options import one_of, refuse

_HALF = 32
_HALF_VALUES = 1 << _HALF
_REAL, _WHOLE = np.dtype(np.float64), np.dtype(np.int64)
Cells = Array
"""Accumulators, shape (m,), float64 or int64."""


class Accumulator(ABC):
    """A running result, as a pure function of accumulators and values."""

    cells: int
    """Number of accumulators."""
    results: tuple[str, ...]
    """Names of the results."""
    result_dtype: np.dtype[Any] | None = None
    """Dtype of the results; None for that of the values."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    @property
    def outputs(self) -> Mapping[str, np.dtype[Any]]:
        """Dtypes of its results, by name."""
        return dict.fromkeys(self.results, self.result_dtype or self.dtype)

    @abstractmethod
    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        """Results after each value, and the accumulators after the last.

        Args:
            cells: accumulators after the earlier values, zeros at first.
            values: shape (k,), k at least 1, of ``dtype``.
            first: number of earlier values.
        """


class _Sum(Accumulator):
    """Running sum; integers wrap at 64 bits."""

    cells = 1
    results = ("cumsum",)

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        del first
        sums = np.cumsum(np.concatenate([cells, values]))[1:]
        return {"cumsum": sums}, sums[-1:]


class _Difference(Accumulator):
    """Difference from the previous value, 0 for the first; integers wrap at 64 bits."""

    cells = 1
    results = ("diff",)

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        differences = np.diff(values, prepend=cells if first else values[:1])
        if not first:  # of NaN from itself, too
            differences[0] = 0
        return {"diff": differences}, values[-1:]


class _Extremes(Accumulator):
    """Running minimum and maximum; NaN from the first NaN on."""

    cells = 2
    results = ("min", "max")

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        low, high = (cells[:1], cells[1:]) if first else (values[:1], values[:1])
        lowest = np.minimum.accumulate(np.concatenate([low, values]))[1:]
        highest = np.maximum.accumulate(np.concatenate([high, values]))[1:]
        return {"min": lowest, "max": highest}, np.array([lowest[-1], highest[-1]], self.dtype)


class _Count(Accumulator):
    """Number of items up to and including this one."""

    cells = 0
    results = ("count",)
    result_dtype = _WHOLE

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        return {"count": np.arange(first + 1, first + 1 + len(values))}, cells


class _Smooth(Accumulator):
    """Exponential moving average; ``alpha`` is the weight of a new value."""

    cells = 1
    results = ("ema",)
    result_dtype = _REAL

    def __init__(self, dtype: np.dtype[Any], alpha: float) -> None:
        super().__init__(dtype)
        self._alpha = alpha

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        state, out = np.array([float(first), cells[0]]), np.empty(len(values))
        smooth(values, self._alpha, state, out)
        return {"ema": out}, state[1:]


class _Moments(Accumulator):
    """Running mean and standard deviation (Welford, 1962)."""

    cells = 2
    results = ("mean", "std")
    result_dtype = _REAL

    def run(self, cells: Cells, values: Array, first: int) -> tuple[dict[str, Array], Cells]:
        state = np.concatenate([[float(first)], cells])
        mean, std = np.empty(len(values)), np.empty(len(values))
        accumulate(values, state, mean, std)
        return {"mean": mean, "std": std}, state[1:]


def _alpha(args: Mapping[str, Any]) -> float:
    alpha = args.get("alpha")
    number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool)
    if alpha is None or not number or not 0 < alpha <= 1:
        raise refuse(f"alpha is {alpha!r}", "A number above 0 and at most 1.")
    return float(alpha)


_NATIVE: Mapping[str, Callable[[np.dtype[Any]], Accumulator]] = {
    "count": _Count,
    "cumsum": _Sum,
    "diff": _Difference,
    "minmax": _Extremes,
}
"""Accumulators that compute in float64 for floats and in int64 for integers."""
SCANS = frozenset({*_NATIVE, "ema", "welford"})
"""Names of all accumulators."""


def _accumulator(fn: str, dtype: np.dtype[Any], args: Mapping[str, Any]) -> Accumulator:
    for name in args:
        if fn != "ema" or name != "alpha":
            raise refuse(f"unknown argument {name!r}")
    if fn == "ema":
        return _Smooth(_REAL, _alpha(args))
    if fn == "welford":
        return _Moments(_REAL)
    return _NATIVE[fn](_REAL if dtype.kind == "f" else _WHOLE)


class Scan(Counting):
    """Adds running results of one field to items, as fields named ``field.result``.

    The functions ``cumsum``, ``diff``, ``count`` and ``ema`` (with ``args={"alpha": a}``)
    add a field of their name, ``minmax`` adds ``min`` and ``max``, ``welford`` adds
    ``mean`` and ``std``. Floats are computed in float64, integers in int64.

    Args:
        inner: stage the items come from.
        fn: one of ``SCANS``.
        field: a field of one number per item.
        args: arguments of the function.

    Raises:
        PipelineError: there is no such function or field, or an argument is invalid.
    """

    def __init__(
        self, inner: Stage, *, fn: str, field: str, args: Mapping[str, Any] | None = None
    ) -> None:
        one_of("fn", fn, SCANS)
        matches = [candidate for candidate in inner.schema if candidate.name == field]
        if (
            not matches
            or matches[0].dtype.kind not in "biuf"
            or matches[0].shape
            or matches[0].ragged
        ):
            raise refuse(f"there is no field {field!r} of one number per item", option="field")
        if matches[0].dtype == np.dtype(np.uint64):
            raise refuse(f"field {field!r} is uint64", "Cast it first.", "field")
        self.inner = in_order(inner)
        self._field = field
        self._run = _accumulator(fn, matches[0].dtype, args or {})
        new = tuple(Field(f"{field}.{name}", kind) for name, kind in self._run.outputs.items())
        self.schema = (*inner.schema, *new)
        unique_names((candidate.name for candidate in self.schema), "field")
        self.initial = (*(0 for _ in range(2 * self._run.cells)), *self.inner.initial)
        self.endless = self.inner.endless

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items and add the results.

        Raises:
            StateError: it cannot be a state of this stage.
        """
        check_state(state, self.initial)
        split = 2 * self._run.cells
        block, after = self.inner.take(state[split:], count)
        values = values_of(block[self._field])
        if not block_length(block):
            empty = {name: np.empty(0, kind) for name, kind in self._run.outputs.items()}
            return self._with(block, empty), (*state[:split], *after)
        cells = _unpacked(state[:split], self._run.dtype)
        with np.errstate(all="ignore"):
            results, cells = self._run.run(cells, values.astype(self._run.dtype), state[split])
        return self._with(block, results), (*_packed(cells), *after)

    def _with(self, block: Block, results: Mapping[str, Array]) -> Block:
        return {**block, **{f"{self._field}.{name}": out for name, out in results.items()}}


def _packed(cells: Cells) -> State:
    """Split every accumulator into two integers, the lower 32 bits first."""
    words = np.ascontiguousarray(cells).view(np.uint64)
    return tuple(
        half for word in words.tolist() for half in (word & (_HALF_VALUES - 1), word >> _HALF)
    )


def _unpacked(state: State, dtype: np.dtype[Any]) -> Cells:
    if any(half >= _HALF_VALUES for half in state):
        raise StateError("accumulator state exceeds 64 bits")
    words = [low | high << _HALF for low, high in zip(state[::2], state[1::2], strict=True)]
    cells: Array = np.array(words, np.uint64).view(dtype)
    return cells


@kernel
def smooth(values: Floats, alpha: float, state: Floats, out: Floats) -> None:
    """Exponential moving average: y += alpha (x - y), beginning with the first x.

    Args:
        values: shape (k,).
        alpha: weight of a new value.
        state: shape (2,), number of earlier values and y; updated.
        out: shape (k,), receives y after every value.
    """
    count, mean = state[0], state[1]
    for i in range(len(values)):
        if count == 0.0:
            mean = values[i]
        else:
            mean += alpha * (values[i] - mean)
        count += 1.0
        out[i] = mean
    state[0], state[1] = count, mean


@kernel
def accumulate(values: Floats, state: Floats, mean_out: Floats, std_out: Floats) -> None:
    """Mean and standard deviation so far (Welford, 1962; the deviation divides by n).

    Args:
        values: shape (k,).
        state: shape (3,), number, mean and sum of squared differences; updated.
        mean_out: shape (k,), receives the mean after every value.
        std_out: shape (k,), receives the deviation after every value.
    """
    count, mean, squares = state[0], state[1], state[2]
    for i in range(len(values)):
        count += 1.0
        difference = values[i] - mean
        mean += difference / count
        squares += difference * (values[i] - mean)
        mean_out[i] = mean
        std_out[i] = np.sqrt(squares / count)
    state[0], state[1], state[2] = count, mean, squares
