"""Kernels that move values from a buffer or mapped file to a tile in a single pass.

``values`` is flat, and pixel (y, x) of frame i is at ``starts[i] + y * pitch + x``. Frames need
not be adjacent, and a tile narrower than its frames is cropped without copying them first.
Stored values are contiguous, in native byte order and read-only.

Kernels that look at the positions of many ranges replace a few array operations each: in numpy
these take longer than a small read.
"""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Array, Indices


@kernel
def farthest(starts: Indices) -> int:
    """Return the largest start, or -1 if one is negative."""
    largest = 0
    for i in range(len(starts)):
        if starts[i] < 0:
            return -1
        largest = max(largest, starts[i])
    return largest


@kernel
def are_delivered(delivered: Array, starts: Indices, page_bits: int, size: int) -> bool:
    """Whether the pages of each range were delivered.

    Args:
        delivered: how many pages from each one on were delivered, int32, one axis.
        starts: first byte of each range, in the pages.
        page_bits: binary logarithm of the size of a page.
        size: bytes of each range.
    """
    for i in range(len(starts)):
        first = starts[i] >> page_bits
        if delivered[first] <= ((starts[i] + size - 1) >> page_bits) - first:
            return False
    return True


@kernel
def copy(values: Array, starts: Indices, pitch: int, out: Array) -> None:
    """Convert values to the dtype of ``out``, shape (frames, rows, columns), or copy bytes."""
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
