"""The extension point: a caller's own numba function in the engine's pass."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .._jit import foreign_kernel
from ..arrays import Array
from ..errors import OptionError, StateError
from ._kernels.layout import OK, Parameters, Record, Scratch, Seen, Tables, Totals, Words
from ._kernels.scan import scan
from ._kernels.stretches import Arena

Function = Callable[..., None]
_ARGUMENTS = ("event_id", "block_id", "sidx", "losses", "state")


@dataclass(frozen=True, slots=True, eq=False)
class Aggregator:
    """A function to call for every block of a stream, and the memory it keeps.

    ``function(event_id, block_id, sidx, losses, state)`` must compile with numba in
    nopython mode; a plain Python function is compiled here. It counts as the kernels do:
    what is divided by 0 is infinite or NaN, of whole numbers 0, and no error. ``sidx`` (int32)
    and ``losses`` (float32 or float64, as the stream) are the block's checked pairs in
    the order they came, special sidx included, valid only during the call.
    ``state`` is the array below; it is exported and restored with the analysis, of whatever
    function it is.

    Raises:
        OptionError: the function takes other arguments, or the state is no array that compiled
            code can change.
    """

    function: Function
    state: Array

    def __post_init__(self) -> None:
        """Check what numba would say in many lines, and not before the first block."""
        try:
            inspect.signature(getattr(self.function, "py_func", self.function)).bind(*_ARGUMENTS)
        except TypeError as e:
            takes = f"function(…) takes {', '.join(_ARGUMENTS)}"
            raise OptionError(f"the function of an aggregator is another: {takes}") from e
        state: object = self.state
        if not isinstance(state, np.ndarray):
            raise OptionError(f"the state of an aggregator is an array, not {type(state).__name__}")
        if state.dtype.kind in "OSU" or state.dtype.char in "eg" or not state.dtype.isnative:
            hint = "Compiled code takes numbers of this machine's byte order, but neither float16"
            raise OptionError(
                f"the state of an aggregator is of dtype {state.dtype.str}",
                hint=f"{hint} nor long double.",
            )
        if not state.flags.writeable:
            raise OptionError("the state of an aggregator cannot be written to")


def _chain(functions: Sequence[Function]) -> Function:
    """One function that calls each with its own element of a tuple of states."""
    head = foreign_kernel(functions[0])
    if len(functions) == 1:

        def call(event: int, block: int, sidx: Any, losses: Any, states: Any) -> None:  # noqa: ANN401
            head(event, block, sidx, losses, states[0])
    else:
        tail = _chain(functions[1:])

        def call(event: int, block: int, sidx: Any, losses: Any, states: Any) -> None:  # noqa: ANN401
            head(event, block, sidx, losses, states[0])
            tail(event, block, sidx, losses, states[1:])

    return foreign_kernel(call)


@lru_cache(maxsize=16)
def compile_pass(functions: tuple[Function, ...]) -> Callable[..., int] | None:
    """The engine's pass with these functions called for every block, or None if none.

    Only this loop and the functions are compiled anew, once for the same functions;
    the engine's part of the pass comes from the kernel cache. That is why the number of
    blocks, always 1, is an argument: numba compiles a function anew for a literal.
    """
    if not functions:
        return None
    call = _chain(functions)

    # Named one by one: as a tuple, they would take LLVM minutes.
    def scan_with(  # noqa: PLR0913, PLR0917 - a kernel takes arrays, not objects
        words: Words,
        stop: int,
        rules: Record,
        state: Record,
        scratch: Scratch,
        seen: Seen,
        totals: Totals,
        inputs: Parameters,
        tables: Tables,
        arena: Arena,
        max_blocks: int,
        max_events: int,
        states: Any,  # noqa: ANN401 - a tuple of the callers' arrays
    ) -> int:
        status = OK
        while status == OK:
            status = scan(
                words,
                stop,
                rules,
                state,
                scratch,
                seen,
                totals,
                inputs,
                tables,
                arena,
                max_blocks,
                max_events,
            )
            if status == OK:
                b = scratch.block[0]
                n = b["pairs"]
                call(b["event"], b["id"], scratch.sidx[:n], scratch.losses[:n], states)
        return status

    return foreign_kernel(scan_with)


def encode_array(array: Array) -> str:
    """The values of an array as text."""
    return base64.b85encode(np.ascontiguousarray(array).tobytes()).decode()


def encode_aggregators(aggregators: Mapping[str, Aggregator]) -> dict[str, Any]:
    """Encode the state array of every aggregator."""
    return {
        name: [a.state.dtype.str, list(a.state.shape), encode_array(a.state)]
        for name, a in aggregators.items()
    }


def restore_aggregators(aggregators: Mapping[str, Aggregator], states: Mapping[str, Any]) -> None:
    """Restore state arrays.

    Raises:
        StateError: they belong to other aggregators.
    """
    if set(states) != set(aggregators):
        raise StateError("the state is of an analysis with other aggregators")
    for name, (dtype, shape, text) in states.items():
        target = aggregators[name].state
        if (dtype, shape) != (target.dtype.str, list(target.shape)):
            raise StateError(f"the state of aggregator {name!r} has another shape")
        target[...] = np.frombuffer(base64.b85decode(text), target.dtype).reshape(shape)
