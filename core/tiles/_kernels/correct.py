"""Values out of a buffer or a mapped file into a tile: read once, written once.

``values`` is flat and holds more than is wanted: pixel (y, x) of frame i is at
``starts[i] + y * pitch + x``. So frames need not lie one after the other, and a tile
that is narrower than its frames needs no copy of them.
"""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Array, Indices, Octets

"""Stored values, shape (k,), contiguous, native byte order, read-only."""


@kernel
def gather(values: Array, starts: Indices, pitch: int, out: Array) -> None:
    """Convert to the floating type of ``out``, shape (frames, rows, columns)."""
    frames, rows, columns = out.shape
    for i in range(frames):
        for y in range(rows):
            begin = starts[i] + y * pitch
            source = values[begin : begin + columns]
            target = out[i, y]
            for x in range(columns):
                target[x] = source[x]


@kernel
def correct(
    values: Array, starts: Indices, pitch: int, dark: Array, gain: Array, out: Array
) -> None:
    """(value - dark) x gain in the type of ``out``; dark and gain have shape (rows, columns)."""
    frames, rows, columns = out.shape
    for i in range(frames):
        for y in range(rows):
            begin = starts[i] + y * pitch
            source = values[begin : begin + columns]
            target = out[i, y]
            offset = dark[y]
            factor = gain[y]
            for x in range(columns):
                target[x] = (target.dtype.type(source[x]) - offset[x]) * factor[x]


@kernel
def copy(values: Octets, starts: Indices, pitch: int, out: Octets) -> None:
    """Bytes as they are, whatever they stand for; everything counts bytes."""
    frames, rows, columns = out.shape
    for i in range(frames):
        for y in range(rows):
            begin = starts[i] + y * pitch
            source = values[begin : begin + columns]
            target = out[i, y]
            for x in range(columns):
                target[x] = source[x]
