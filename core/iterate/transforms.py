"""The transforms and predicates that a served pipeline may name.

IEEE 754 determines the result of every operation here, so a pipeline returns the same bytes on
every machine. Logarithms and sines are left out, because libraries differ in the last place.

A transform is built from its arguments and the schema of the items. An argument that does not
fit raises ``PipelineError`` with the field ``args``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array, Indices, Mask
from ..budget import current
from ..errors import CastingError, names_hint
from ..rng import Draws
from .base import Block, Column, Field, Ragged, Schema
from .columns import unique_names, values_of
from .options import NUMBERS, Args, Arguments, refuse

Function = Callable[[Block], Block]
RandomFunction = Callable[[Block, Draws], Block]
Predicate = Callable[[Block], Mask]
Transform = tuple[Function, Schema]
"""A function and the schema of its results."""
RandomTransform = tuple[RandomFunction, Schema]

_STRETCH = 1 << 20
"""Elements that a function computes at once; it may take several arrays of their size."""
_LEAST = -(2.0**63)
"""The least int64."""
_FLOAT = np.dtype(np.float64)
_INTEGER = np.dtype(np.int64)


def _on_values(column: Column, function: Callable[[Array], Array]) -> Column:
    if isinstance(column, Ragged):
        return Ragged(function(column.values), column.offsets)
    return function(column)


def _replaced(schema: Schema, field: Field, out: Field) -> Schema:
    """The schema with one field in place of another."""
    return tuple(out if candidate is field else candidate for candidate in schema)


def _lengths(column: Column) -> Indices:
    return np.diff(column.offsets) if isinstance(column, Ragged) else np.empty(0, np.int64)


def _ragged(args: Args) -> Field:
    """The field that the argument ``field`` names, which must be ragged."""
    field = args.field(NUMBERS + "c")
    if not field.ragged:
        raise refuse(f"items of field {field.name!r} are all of one length")
    return field


def _in_stretches(values: Array, run: Callable[[Array], Array]) -> Array:
    """Apply a function of rows of elements, a bounded number at a time."""
    if values.size <= _STRETCH or len(values) < 2:  # noqa: PLR2004
        return run(values)
    step = max(_STRETCH * len(values) // values.size, 1)
    begin = run(values[:step])
    shape = (len(values), *begin.shape[1:])
    current().hold("map", begin.nbytes // len(begin) * len(values))
    out = np.empty(shape, begin.dtype)
    out[:step] = begin
    for first in range(step, len(values), step):
        current().check("map")
        out[first : first + step] = run(values[first : first + step])
    return out


def _elementwise(
    schema: Schema, field: Field, out: Field, run: Callable[[Array], Array]
) -> Transform:
    """A function of every element of one field."""

    def function(block: Block) -> Block:
        with np.errstate(all="ignore"):
            column = _on_values(block[field.name], lambda values: _in_stretches(values, run))
            return {**block, field.name: column}

    return function, _replaced(schema, field, out)


def _real(field: Field) -> np.dtype[Any]:
    """The floating dtype for arithmetic on a field: its own, or float64."""
    return field.dtype if field.dtype.kind == "f" else _FLOAT


def _cast(arguments: Arguments, schema: Schema) -> Transform:
    """Convert to another dtype; integers wrap around as in C, floats become no integers."""
    args = Args(arguments, schema, ("field", "dtype"))
    field, dtype = args.field(), args.dtype()
    if field.dtype.kind == "f" and dtype.kind in "iu":
        raise refuse(
            f"{field.dtype} to {dtype} depends on the machine for values out of range",
            "Use clip with a dtype.",
        )
    out = replace(field, dtype=dtype)
    return _elementwise(schema, field, out, lambda values: values.astype(dtype))


def _scale(arguments: Arguments, schema: Schema) -> Transform:
    """Value x factor + offset, or (value - mean) / std, in a floating dtype."""
    args = Args(arguments, schema, ("field", "factor", "offset", "mean", "std", "dtype"))
    field = args.field()
    dtype = args.dtype().newbyteorder("=") if "dtype" in arguments else _real(field)
    if dtype.kind != "f":
        raise refuse(f"dtype is {dtype}", "Give a floating dtype, such as <f4; or append clip.")
    out = replace(field, dtype=dtype)
    if {"mean", "std"} & set(arguments):
        if {"factor", "offset"} & set(arguments):
            raise refuse("mean and std contradict factor and offset", "Give one pair or the other.")
        mean, std = _moments(args, dtype, field)
        return _elementwise(schema, field, out, lambda v: (v.astype(dtype) - mean) / std)
    factor, offset = dtype.type(args.number("factor", 1)), dtype.type(args.number("offset", 0))
    return _elementwise(schema, field, out, lambda v: v.astype(dtype) * factor + offset)


def _moments(args: Args, dtype: np.dtype[Any], field: Field) -> tuple[Array, Array]:
    """The means and the standard deviations to normalise by, as numbers of a dtype."""
    with np.errstate(all="ignore"):
        mean, std = (
            np.asarray(args.numbers(name, default, field), dtype.type)
            for name, default in (("mean", 0), ("std", 1))
        )
    if not np.all((std > 0) & (std < np.inf)):
        raise refuse(f"std is {std} as {dtype}", "Give a number above 0.")
    if not np.all(np.isfinite(mean)):
        raise refuse(f"mean is {mean} as {dtype}", "Give a number within its range.")
    return mean, std


def _clip(arguments: Arguments, schema: Schema) -> Transform:
    """Limit values to ``low`` and ``high``; with an integer ``dtype``, round them to it."""
    args = Args(arguments, schema, ("field", "low", "high", "dtype"))
    field = args.field("iuf")
    low, high = args.number("low"), args.number("high")
    dtype = args.dtype() if "dtype" in arguments else field.dtype
    if not low <= high:
        raise refuse(f"low is {low}, high is {high}")
    out, whole = replace(field, dtype=dtype), dtype.kind in "iu"
    if whole:
        limits = np.iinfo(dtype)
        if low < limits.min or high > limits.max:
            raise refuse(f"{low} to {high} do not fit {dtype}")
        if field.dtype.kind in "iu":
            return _elementwise(schema, field, out, _clipping(round(low), round(high), dtype))
        _check_float("low", low, high)
        _check_float("high", high, low)

    def run(values: Array) -> Array:
        clipped = np.clip(values.astype(_FLOAT), low, high)
        if whole:
            if np.isnan(clipped).any():
                raise CastingError(f"NaN is no number of {dtype}")
            clipped = np.rint(clipped)
        return clipped.astype(dtype)

    return _elementwise(schema, field, out, run)


def _check_float(name: str, bound: float, other: float) -> None:
    """Check that float64 holds a bound; if not, name the nearest number towards the other one."""
    nearest = float(bound)
    if nearest == bound:
        return
    if (nearest < bound) == (bound <= other):
        nearest = math.nextafter(nearest, other)
    raise refuse(
        f"{name} is {bound}, which float64 cannot hold",
        f"The field has floats: give {nearest:.0f}.",
    )


def _clipping(low: int, high: int, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    """Limit integers to what the dtype of the results holds."""

    def run(values: Array) -> Array:
        clipped = values.astype(dtype)  # what wraps is beyond a limit, and replaced
        clipped[values < low] = low
        clipped[values > high] = high
        return clipped

    return run


def _absolute(arguments: Arguments, schema: Schema) -> Transform:
    """Absolute value."""
    field = Args(arguments, schema, ("field",)).field("iuf")

    def run(values: Array) -> Array:
        found = np.abs(values)
        if (found < 0).any():
            raise CastingError(f"{field.dtype} has no absolute value of {found.min()}")
        return found

    return _elementwise(schema, field, field, run)


def _sqrt(arguments: Arguments, schema: Schema) -> Transform:
    """Square root in a floating dtype; NaN for negative values."""
    field = Args(arguments, schema, ("field",)).field()
    dtype = _real(field)
    out = replace(field, dtype=dtype)
    return _elementwise(schema, field, out, lambda values: np.sqrt(values.astype(dtype)))


def _select(arguments: Arguments, schema: Schema) -> Transform:
    """Select fields, in the order given."""
    names = Args(arguments, schema, ("fields",)).texts("fields")
    unique_names(names, "args")
    known = {candidate.name: candidate for candidate in schema}
    for name in names:
        if name not in known:
            raise refuse(f"there is no field {name!r}", f"{names_hint(name, known)}.")
    return (lambda block: {name: block[name] for name in names}), tuple(known[n] for n in names)


def _rename(arguments: Arguments, schema: Schema) -> Transform:
    """Rename a field."""
    args = Args(arguments, schema, ("field", "to"))
    field, name = args.field(NUMBERS + "cSUVmM"), args.text("to")
    out = _replaced(schema, field, replace(field, name=name))
    unique_names((candidate.name for candidate in out), "args")

    def function(block: Block) -> Block:
        return {name if key == field.name else key: column for key, column in block.items()}

    return function, out


def _flatten(arguments: Arguments, schema: Schema) -> Transform:
    """Flatten arrays to one axis."""
    field = Args(arguments, schema, ("field",)).field(NUMBERS + "c")
    if field.ragged or not field.shape:
        raise refuse(f"field {field.name!r} has no axes to flatten")
    size = int(np.prod(field.shape))
    out = replace(field, shape=(size,))

    def function(block: Block) -> Block:
        values = values_of(block[field.name])
        return {**block, field.name: values.reshape(len(values), size)}

    return function, _replaced(schema, field, out)


def _length(arguments: Arguments, schema: Schema) -> Transform:
    """Add the lengths of a ragged field as a field."""
    args = Args(arguments, schema, ("field", "to"))
    field, name = _ragged(args), args.text("to", "length")
    out = (*schema, Field(name, _INTEGER))
    unique_names((candidate.name for candidate in out), "args")
    return (lambda block: {**block, name: _lengths(block[field.name])}), out


def _uniform(arguments: Arguments, schema: Schema) -> RandomTransform:
    """Add a field with a random number in [0, 1) for every item."""
    name = Args(arguments, schema, ("to",)).text("to", "random")
    out = (*schema, Field(name, _FLOAT))
    unique_names((candidate.name for candidate in out), "args")
    return (lambda block, draws: {**block, name: draws.uniform()}), out


def _jitter(arguments: Arguments, schema: Schema) -> RandomTransform:
    """Add a random number from -amount to amount to all elements of an item."""
    args = Args(arguments, schema, ("field", "amount"))
    field, amount = args.field(), args.number("amount")
    if amount < 0:
        raise refuse(f"amount is {amount}", "Give the largest change, from 0.")
    dtype = _real(field)

    def function(block: Block, draws: Draws) -> Block:
        shift = ((2 * draws.uniform() - 1) * amount).astype(dtype)
        column = block[field.name]
        with np.errstate(all="ignore"):
            if isinstance(column, Ragged):
                shift = np.repeat(shift, np.diff(column.offsets))
            added = _on_values(
                column, lambda values: values.astype(dtype) + _aligned(shift, values)
            )
        return {**block, field.name: added}

    out = replace(field, dtype=dtype)
    return function, _replaced(schema, field, out)


def _aligned(numbers: Array, values: Array) -> Array:
    """One number per item, shaped to broadcast over the elements of the item."""
    return numbers.reshape((-1,) + (1,) * (values.ndim - 1))


def _flip(arguments: Arguments, schema: Schema) -> RandomTransform:
    """Reverse one axis of the items that are drawn with ``probability``."""
    args = Args(arguments, schema, ("field", "axis", "probability"))
    field, probability = args.field(NUMBERS + "c"), args.number("probability", 0.5)
    axis = arguments.get("axis", -1)
    dimensions = 0 if field.ragged else len(field.shape)
    if not dimensions:
        raise refuse(f"field {field.name!r} has no axes to flip")
    if type(axis) is not int or not -dimensions <= axis < dimensions:
        raise refuse(f"axis is {axis!r} of {dimensions}")
    if not 0 <= probability <= 1:
        raise refuse(f"probability is {probability}", "Give a number from 0 to 1.")

    def function(block: Block, draws: Draws) -> Block:
        chosen = draws.uniform() < probability

        def run(values: Array) -> Array:
            mirrored = np.flip(values, axis + 1 if axis >= 0 else axis)
            return np.where(_aligned(chosen, values), mirrored, values)

        return {**block, field.name: _on_values(block[field.name], run)}

    return function, schema


def _comparison(
    compare: Callable[[Array, float], Array], *, exact: bool = False
) -> Callable[..., Predicate]:
    def make(arguments: Arguments, schema: Schema) -> Predicate:
        args = Args(arguments, schema, ("field", "value"))
        field = args.field(scalar=True)
        value = _exact(field, args.number("value"))
        if field.dtype.kind in "iu":
            limits = np.iinfo(field.dtype)
            ends = np.array([limits.min, limits.max], field.dtype)
            if exact:
                if not isinstance(value, int) or not limits.min <= value <= limits.max:
                    hint = f"{field.name} is {field.dtype}: none equals that."
                    raise refuse(f"value is {value}", hint)
            elif not compare(ends, value).any():
                hint = f"{field.name} is {field.dtype}, {limits.min} to {limits.max}: none passes."
                raise refuse(f"value is {value}", hint)
        return lambda block: compare(values_of(block[field.name]), value)

    return make


def _exact(field: Field, value: float) -> float:
    """A number as numpy compares it exactly: with integers as an integer.

    Fractions are below 2**53, and what is beyond 2**70 above all integers: as float64, no integer
    rounds to their other side. JSON's integers below -2**63 come as float64, the first of them
    rounded to -2**63, which an integer of the field may be.
    """
    if not isinstance(value, int) and value == _LEAST:
        value = int(_LEAST) - 1
    whole = field.dtype.kind in "iu" and abs(value) < 2**70 and value == int(value)
    return int(value) if whole else float(value)


def _interval(args: Args, field: Field, default: float | None = None) -> tuple[float, float]:
    low = _exact(field, args.number("low", default))
    high = _exact(field, args.number("high"))
    if not low < high:
        raise refuse(f"low is {low}, high is {high}", "high is excluded: give one above low.")
    return low, high


def _between(arguments: Arguments, schema: Schema) -> Predicate:
    """Whether a value is from ``low`` to below ``high``."""
    args = Args(arguments, schema, ("field", "low", "high"))
    field = args.field(scalar=True)
    low, high = _interval(args, field)
    if field.dtype.kind in "iu":
        limits = np.iinfo(field.dtype)
        # Refuse an interval without a whole number from ``least`` to ``most``.
        first = max(math.ceil(low), limits.min)
        if first >= high or first > limits.max:
            hint = f"{field.name} has whole numbers, {limits.min} to {limits.max}: none passes."
            raise refuse(f"low is {low}, high is {high}", hint)

    def predicate(block: Block) -> Mask:
        values = values_of(block[field.name])
        return (values >= low) & (values < high)

    return predicate


def _finite(arguments: Arguments, schema: Schema) -> Predicate:
    """Whether a value is finite."""
    field = Args(arguments, schema, ("field",)).field(scalar=True)
    return lambda block: np.isfinite(values_of(block[field.name]))


def _length_between(arguments: Arguments, schema: Schema) -> Predicate:
    """Whether a ragged item has from ``low`` to below ``high`` elements."""
    args = Args(arguments, schema, ("field", "low", "high"))
    field = _ragged(args)
    low, high = _interval(args, field, 0)

    def predicate(block: Block) -> Mask:
        lengths = _lengths(block[field.name])
        return (lengths >= low) & (lengths < high)

    return predicate


TRANSFORMS: Mapping[str, Callable[[Arguments, Schema], Transform]] = {
    "absolute": _absolute,
    "cast": _cast,
    "clip": _clip,
    "flatten": _flatten,
    "length": _length,
    "rename": _rename,
    "scale": _scale,
    "select": _select,
    "sqrt": _sqrt,
}
"""Transforms of items, by name."""
RANDOM_TRANSFORMS: Mapping[str, Callable[[Arguments, Schema], RandomTransform]] = {
    "flip": _flip,
    "jitter": _jitter,
    "uniform": _uniform,
}
"""Transforms with random numbers that depend on the position of the item, by name."""
PREDICATES: Mapping[str, Callable[[Arguments, Schema], Predicate]] = {
    "between": _between,
    "equal": _comparison(np.equal, exact=True),
    "finite": _finite,
    "greater": _comparison(np.greater),
    "greater_equal": _comparison(np.greater_equal),
    "length_between": _length_between,
    "less": _comparison(np.less),
    "less_equal": _comparison(np.less_equal),
    "not_equal": _comparison(np.not_equal),
}
"""Predicates for filters, by name."""
