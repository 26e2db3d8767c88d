r"""Two loops over the samples of a block, in vectors where the compiler would not use them.

LLVM turns most loops of kernels into vector instructions by itself. It leaves two of those that
every block goes through: one may stop at any element, and one has more partial sums than LLVM
keeps in registers, so that it loads and stores them all for every 32 samples. Each is a function
here, whose Python says what is computed and runs where kernels are not compiled. In kernels the
code beside it stands for it::

    words   | id loss id loss id loss ...  |   64 words are loaded at once,
             \\  |     |     |               |   shuffled into ids and losses, and stored;
    ids     | id id id id ... |   == 0  ->  a bit each  ->  count of zeros below the lowest set bit

The code is LLVM's, for vectors of a fixed length that LLVM maps to the registers of any CPU. No
operation is reordered or fused, so sums have the same last bit as in a plain loop over as many
lanes.

:func:`separate` also asks for the bytes that the next call but some will load. Between two blocks
reports are computed for longer than the hardware's own prefetching looks ahead: with four reports,
waiting for the stream was a fifth of the time. The bytes go to the second-level cache only, as the
first has no room for them. :func:`ask_for` does so for loops that read here and there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .arrays import Array

F = TypeVar("F", bound=Callable[..., Any])

GROUP = 32
"""Elements handled at once, and lanes of a sum."""

_AHEAD = 6144
"""Bytes between those that are loaded and those that are asked for: more than a block of 500
samples, as the next block is loaded at once."""
_LINE = 64
"""Bytes of a line of the caches; where lines are longer, some are asked for twice."""

_Untyped = Any
"""An object of numba or llvmlite, which have no types."""

_types: _Untyped = types
_cgutils: _Untyped = cgutils
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_DOUBLE = ir.DoubleType()


def _in_kernels(build: Callable[..., _Untyped]) -> Callable[[F], F]:
    """Let kernels use the code of ``build`` for the decorated function."""

    def decorate(function: F) -> F:
        if cast("Any", numba.config).DISABLE_JIT:
            return function
        return cast("F", intrinsic(build))

    return decorate


def _vector(element: _Untyped, count: int = GROUP) -> _Untyped:
    return ir.VectorType(element, count)


def _pick(builder: _Untyped, vector: _Untyped, places: list[int]) -> _Untyped:
    """The elements of a vector at some places."""
    mask = ir.Constant(_vector(_I32, len(places)), places)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _spread(builder: _Untyped, value: _Untyped) -> _Untyped:
    """A vector of equal elements."""
    nothing = ir.Constant(_vector(value.type), ir.Undefined)
    return _pick(builder, builder.insert_element(nothing, value, _I32(0)), [0] * GROUP)


def _call(builder: _Untyped, name: str, result: _Untyped, *args: _Untyped) -> _Untyped:
    """Call a function that LLVM provides."""
    signature = ir.FunctionType(result, [value.type for value in args])
    return builder.call(_cgutils.get_or_insert_function(builder.module, signature, name), args)


def _ask(builder: _Untyped, octet: _Untyped) -> None:
    """Ask for a line, to read it, into all caches but the first, as data."""
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), octet, _I32(0), _I32(2), _I32(1))


def _build_ask_for(_context: _Untyped, array: _Untyped, index: _Untyped) -> _Untyped:
    def generate(
        context: _Untyped, builder: _Untyped, _signature: _Untyped, args: _Untyped
    ) -> _Untyped:
        data = context.make_array(array)(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        _ask(builder, builder.bitcast(place, ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return _types.void(array, index), generate


@_in_kernels(_build_ask_for)
def ask_for(array: Array, index: int) -> None:
    """Ask for the memory of an element, which need not exist, without waiting for it.

    Args:
        array: of one dimension.
        index: int64.
    """


def _build_separate(
    _context: _Untyped, words: _Untyped, at: _Untyped, sidx: _Untyped, bits: _Untyped, k: _Untyped
) -> _Untyped:
    stride = 1 + bits.dtype.bitwidth // 32

    def generate(
        context: _Untyped, builder: _Untyped, _signature: _Untyped, args: _Untyped
    ) -> _Untyped:
        def pointer(
            kind: _Untyped, array: _Untyped, index: _Untyped, element: _Untyped
        ) -> _Untyped:
            data = context.make_array(kind)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [index]), element.as_pointer())

        count = stride * GROUP
        source = pointer(words, args[0], args[1], _vector(_I32, count))
        pairs = builder.load(source, align=4)
        for line in range(0, 4 * count, _LINE):
            place = builder.add(args[1], _I64((_AHEAD + line) // 4))
            octet = pointer(words, args[0], place, ir.IntType(8))
            _ask(builder, octet)
        ids = _pick(builder, pairs, [i for i in range(count) if i % stride == 0])
        losses = _pick(builder, pairs, [i for i in range(count) if i % stride])
        builder.store(ids, pointer(sidx, args[2], args[4], ids.type), align=4)
        builder.store(losses, pointer(bits, args[3], args[4], losses.type), align=4)
        ends = builder.icmp_signed("==", ids, ir.Constant(ids.type, [0] * GROUP))
        mask = builder.bitcast(ends, ir.IntType(GROUP))
        return builder.zext(builder.cttz(mask, ir.IntType(1)(0)), _I64)

    return _types.int64(words, at, sidx, bits, k), generate


@_in_kernels(_build_separate)
def separate(words: Array, at: int, sidx: Array, bits: Array, k: int) -> int:
    """Separate ``GROUP`` interleaved pairs of an id and a loss.

    Args:
        words: int32; all of the pairs must lie in it.
        at: word at which they begin.
        sidx: int32; receives the ids from ``k`` on.
        bits: int32 or int64; receives the losses from ``k`` on, which are as wide.
        k: index of the first pair in both.

    Returns:
        Number of pairs before the first whose id is 0; ``GROUP`` if there is none.
    """
    stride = 1 + bits.itemsize // 4
    pairs = words[at : at + stride * GROUP].reshape(GROUP, stride)
    sidx[k : k + GROUP] = pairs[:, 0]
    bits[k : k + GROUP] = np.ascontiguousarray(pairs[:, 1:]).view(bits.dtype)[:, 0]
    ends = np.flatnonzero(pairs[:, 0] == 0)
    return int(ends[0]) if len(ends) else GROUP


def _build_shifted_sums(_context: _Untyped, values: _Untyped, _shift: _Untyped) -> _Untyped:
    width = values.dtype.bitwidth

    def generate(
        context: _Untyped, builder: _Untyped, signature: _Untyped, args: _Untyped
    ) -> _Untyped:
        array = context.make_array(values)(context, builder, args[0])
        group = _vector(context.get_data_type(values.dtype))
        zeros = ir.Constant(_vector(_DOUBLE), [0.0] * GROUP)
        shifts = _spread(builder, args[1])
        sums = [_cgutils.alloca_once_value(builder, zeros) for _ in range(2)]

        def pointer(index: _Untyped) -> _Untyped:
            return builder.bitcast(builder.gep(array.data, [index]), group.as_pointer())

        def add(losses: _Untyped, mask: _Untyped = None) -> None:
            if losses.type != zeros.type:
                losses = builder.fpext(losses, zeros.type)
            d = builder.fsub(losses, shifts)
            if mask is not None:
                # Adding 0 changes no sum, as none is -0.
                d = builder.select(mask, d, zeros)
            for total, term in zip(sums, (d, builder.fmul(d, d)), strict=True):
                builder.store(builder.fadd(builder.load(total), term), total)

        count = builder.extract_value(array.shape, 0)
        rest = builder.and_(count, _I64(GROUP - 1))
        whole = builder.sub(count, rest)
        with _cgutils.for_range_slice(builder, _I64(0), whole, _I64(GROUP)) as (index, _):
            add(builder.load(pointer(index), align=width // 8))
        with builder.if_then(builder.icmp_signed("!=", rest, _I64(0))):
            numbers = ir.Constant(_vector(_I32), list(range(GROUP)))
            limit = _spread(builder, builder.trunc(rest, _I32))
            mask = builder.icmp_signed("<", numbers, limit)
            nothing = ir.Constant(group, [0.0] * GROUP)
            name = f"llvm.masked.load.v{GROUP}f{width}.p0"
            args_of_load = (pointer(whole), _I32(width // 8), mask, nothing)
            add(_call(builder, name, group, *args_of_load), mask)
        totals = [_folded(builder, builder.load(total)) for total in sums]
        return context.make_tuple(builder, signature.return_type, totals)

    return _types.UniTuple(_types.float64, 2)(values, _types.float64), generate


def _folded(builder: _Untyped, lanes: _Untyped) -> _Untyped:
    """Sum of the lanes, as a tree."""
    half = GROUP // 2
    while half:
        low = _pick(builder, lanes, list(range(half)))
        high = _pick(builder, lanes, list(range(half, 2 * half)))
        lanes = builder.fadd(low, high)
        half //= 2
    return builder.extract_element(lanes, _I32(0))


@_in_kernels(_build_shifted_sums)
def shifted_sums(values: Array, shift: float) -> tuple[float, float]:
    """Sums of (value - shift) and of its square, in one pass.

    Args:
        values: float32 or float64, shape (n,).
        shift: float64.

    Returns:
        Both as float64, each added up in ``GROUP`` lanes, and these as a tree.
    """
    lanes = np.zeros((2, GROUP))
    for i in range(0, len(values), GROUP):
        d = values[i : i + GROUP].astype(np.float64) - shift
        lanes[0, : len(d)] += d
        lanes[1, : len(d)] += d * d
    half = GROUP // 2
    while half:
        lanes[:, :half] += lanes[:, half : 2 * half]
        half //= 2
    return float(lanes[0, 0]), float(lanes[1, 0])
