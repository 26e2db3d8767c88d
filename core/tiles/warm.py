"""Warm-up: compile every kernel of the tile engine by using it once."""

from __future__ import annotations

import numpy as np

from ._kernels.correct import are_delivered, copy, correct, farthest, gather
from ._kernels.orders import count_keys
from .formats import Format
from .packing import Decoder
from .reader import FAST_OUT, FAST_STORED
from .reduce import Reducer, parse_reduction
from .shuffled import Shuffled

_SHAPE = (2, 3, 5)
_REDUCTIONS = (
    {"op": "sum"},
    {"op": "std"},
    {"op": "std", "over": "pixels"},
    {"op": "com"},
)


def use_reading() -> None:
    """Locate, copy, convert and correct a few values of every dtype that has kernels."""
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
    Shuffled.of(0, 0, frames).box((0,), (frames,))
    count_keys(np.uint64(0), 0, frames, np.uint64(63), np.zeros(2, np.int64))
    farthest(starts)
    are_delivered(np.ones(1, np.int32), starts, 12, 1)


def use_reductions() -> None:
    """Run each reduction kernel on a few frames."""
    for code in ("f4", "f8"):
        for spec in _REDUCTIONS:
            reducer = Reducer(parse_reduction(spec, _SHAPE[1:]), _SHAPE[1:], np.dtype(code))
            reducer.partial(np.ones(_SHAPE, code))


def use_format(form: Format) -> None:
    """Decode a frame of zeros with each decoder of a format."""
    for decoder in form.decoders:
        use_decoder(decoder)


def use_decoder(decoder: Decoder) -> None:
    """Decode a frame of zeros, if the decoder has a sample shape."""
    shape = decoder.sample_shape
    if shape is not None:
        size = decoder.frame_bytes(shape)
        out = np.empty((1, shape[0] * shape[1]), decoder.dtype)
        decoder.decode(np.zeros(size, np.uint8), size, out, shape)
