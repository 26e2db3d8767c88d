"""Kernels that move values from a buffer or mapped file to a tile in a single pass.

``values`` is flat, and pixel (y, x) of frame i is at ``starts[i] + y * pitch + x``. Frames need
not be adjacent, and a tile narrower than its frames is cropped without copying them first.
Stored values are contiguous, in native byte order and read-only.
"""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Array, Indices, Octets


@kernel
def gather(values: Array, starts: Indices, pitch: int, out: Array) -> None:
    """Convert values to the floating dtype of ``out``, shape (frames, rows, columns)."""
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
    """Compute (value - dark) x gain in the dtype of ``out``, shape (frames, rows, columns).

    Dark and gain have shape (rows, columns).
    """
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
    """Copy bytes unchanged; starts, pitch and shapes are in bytes."""
    frames, rows, columns = out.shape
    for i in range(frames):
        for y in range(rows):
            begin = starts[i] + y * pitch
            source = values[begin : begin + columns]
            target = out[i, y]
            for x in range(columns):
                target[x] = source[x]
