"""Uses every kernel of the tile engine once, so that it is compiled."""

from __future__ import annotations

import numpy as np

from ._kernels.correct import copy, correct, gather
from .reader import FAST_OUT, FAST_STORED
from .reduce import Reducer, parse_reduction

_SHAPE = (2, 3, 5)
_REDUCTIONS = (
    {"op": "sum"},
    {"op": "std"},
    {"op": "std", "over": "pixels"},
    {"op": "com"},
)


def use_kernels() -> None:
    """Read, correct and reduce a few values of every type that has kernels."""
    frames, rows, columns = _SHAPE
    starts = np.arange(frames, dtype=np.int64) * rows * columns
    for stored in FAST_STORED:
        values = np.zeros(frames * rows * columns, stored)
        values.flags.writeable = False
        for dtype in FAST_OUT:
            out = np.zeros(_SHAPE, dtype)
            dark, gain = np.zeros(_SHAPE[1:], dtype), np.ones(_SHAPE[1:], dtype)
            gather(values, starts, columns, out)
            correct(values, starts, columns, dark, gain, out)
    octets = np.zeros(frames * rows * columns, np.uint8)
    octets.flags.writeable = False
    copy(octets, starts, columns, np.zeros(_SHAPE, np.uint8))
    for code in ("f4", "f8"):
        for spec in _REDUCTIONS:
            reducer = Reducer(parse_reduction(spec, _SHAPE[1:]), _SHAPE[1:], np.dtype(code))
            reducer.partial(np.ones(_SHAPE, code))
