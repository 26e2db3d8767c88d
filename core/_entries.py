"""Kernels entered without a look at the types of their arguments.

At each call of a kernel numba compares the types of all arguments with those that it has
compiled. For the forty arrays of a scan that takes ten times as long as passing them on, and
several times that where other data has filled the caches in between. So a caller whose
arguments stay of the same types asks once for the compiled code, the *entry point*, and calls
that.

To ask numba for the types of those arrays takes two milliseconds, as it describes a record by
going through its fields each time: as long as a small stream takes. So arguments are described
first, by what their types depend on, and types and code are looked up by the description.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numba.core import types
from numba.extending import is_jitted
from numba.np import numpy_support

F = TypeVar("F", bound=Callable[..., Any])


class _Described(NamedTuple):
    """All that the type of an array depends on."""

    dtype: np.dtype[Any]
    is_aligned: bool  # which is no part of the equality of dtypes
    dimensions: int
    layout: Literal["C", "F", "A"]
    is_readonly: bool

    def type(self) -> Any:  # noqa: ANN401 - numba's types are untyped
        dtype = numpy_support.from_dtype(self.dtype)
        return types.Array(dtype, self.dimensions, self.layout, readonly=self.is_readonly)


class _DescribedTuple(NamedTuple):
    kind: type[tuple[object, ...]]
    items: tuple[object, ...]

    def type(self) -> Any:  # noqa: ANN401 - numba's types are untyped
        items = [_type(item) for item in self.items]
        return types.BaseTuple.from_types(items, self.kind)  # type: ignore[no-untyped-call]


def entry_point(function: F, *args: object) -> F:
    """Return a kernel that takes arguments of these types, and no longer looks at them.

    Args:
        function: the kernel.
        args: arguments of the types that all calls will have, in layout and mutability of
            arrays too. Nothing notices others.
    """
    return _compiled(function, _describe(args)) if is_jitted(function) else function


def _describe(value: object) -> Any:  # noqa: ANN401 - numba's types are untyped
    if type(value) is np.ndarray:
        flags = value.flags
        layout: Literal["C", "F", "A"]
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        dtype = value.dtype
        return _Described(dtype, dtype.isalignedstruct, value.ndim, layout, not flags.writeable)
    if isinstance(value, tuple):
        return _DescribedTuple(type(value), tuple(map(_describe, value)))
    return numba.typeof(value)  # type: ignore[no-untyped-call]


def _type(described: Any) -> Any:  # noqa: ANN401 - numba's types are untyped
    is_type = not isinstance(described, _Described | _DescribedTuple)
    return described if is_type else described.type()


@lru_cache(maxsize=256)
def _compiled(function: F, described: _DescribedTuple) -> F:
    signature = tuple(_type(item) for item in described.items)
    return cast("F", cast("Any", function).compile(signature))
