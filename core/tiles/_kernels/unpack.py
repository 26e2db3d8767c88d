"""Kernels that unpack the pixels of whole frames, any number of frames per call.

A kernel takes the bytes of all frames as one contiguous array, the distance in bytes between
frames, and the pixels to fill, shape (frames, pixels). It does not check bounds;
:class:`core.tiles.packing.Decoder` does before the call.

A Medipix chip sends 64-bit words, highest byte first, in which pixels are packed from the
lowest bits up. The pixels of a run are therefore in order when the bytes of each word are read
backwards. Four chips in a square are stored side by side; the first two in each stored row are
the lower half of the frame, which is upside down::

    stored row y:   | chip 0 | chip 1 | chip 2 | chip 3 |

    frame:          | chip 3 | chip 2 |   upper half, row y
                    | chip 1 | chip 0 |   lower half, row 2 * side - 1 - y, reversed
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, kernel, subkernel
from ...arrays import Octets

Narrow = Octets
Middle = npt.NDArray[np.uint16]
Wide = npt.NDArray[np.uint32]
Pixels = npt.NDArray[Any]

_U = np.uintp
_ONE = np.uint8(1)

K2_BLOCK = 0x5758
K2_HEADER = 40
K2_ROWS = 930
K2_COLUMNS = 16
K2_WIDTH = 256


@subkernel
def _bits(raw: Octets, start: int, row: Narrow) -> None:
    """Unpack a run of 1-bit pixels."""
    for word in range(len(row) >> 6):
        for byte in range(8):
            value = raw[_U(start) + _U(8 * word + 7 - byte)]
            at = _U(64 * word + 8 * byte)
            for bit in range(8):
                row[at + _U(bit)] = (value >> np.uint8(bit)) & _ONE


@subkernel
def _octets(raw: Octets, start: int, row: Narrow) -> None:
    """Unpack a run of 6-bit pixels stored in one byte each."""
    for word in range(len(row) >> 3):
        at = _U(8 * word)
        for k in range(8):
            row[at + _U(k)] = raw[_U(start) + at + _U(7 - k)]


@subkernel
def _pairs(raw: Octets, start: int, row: Middle) -> None:
    """Unpack a run of 12-bit pixels stored in two bytes each."""
    for word in range(len(row) >> 2):
        source = _U(start) + _U(8 * word)
        at = _U(4 * word)
        for k in range(4):
            low = np.uint16(raw[source + _U(7 - 2 * k)])
            high = np.uint16(raw[source + _U(6 - 2 * k)])
            row[at + _U(k)] = low | (high << np.uint16(8))


@subkernel
def _two_images(raw: Octets, start: int, distance: int, row: Wide) -> None:
    """Unpack a run of 24-bit pixels: the lower 12 bits are ``distance`` bytes after the upper."""
    for word in range(len(row) >> 2):
        source = _U(start) + _U(8 * word)
        second = source + _U(distance)
        at = _U(4 * word)
        for k in range(4):
            upper = np.uint32(raw[source + _U(7 - 2 * k)])
            upper |= np.uint32(raw[source + _U(6 - 2 * k)]) << np.uint32(8)
            lower = np.uint32(raw[second + _U(7 - 2 * k)])
            lower |= np.uint32(raw[second + _U(6 - 2 * k)]) << np.uint32(8)
            row[at + _U(k)] = (upper << np.uint32(12)) | lower


@subkernel
def _reverse(row: npt.NDArray[np.unsignedinteger]) -> None:
    """Reverse a run of pixels in place."""
    n = len(row)
    for k in range(n >> 1):
        first = row[_U(k)]
        row[_U(k)] = row[_U(n - 1 - k)]
        row[_U(n - 1 - k)] = first


@inlined
def _run(raw: Octets, start: int, row: Pixels, depth: int, distance: int) -> None:
    """Unpack a run of pixels of a counter depth.

    The size of a pixel is known when this is compiled, so only its branch is. The views are what
    the rows are already: without them, branches would be compiled for pixels that never take them.
    """
    bits = np.iinfo(row.dtype).bits
    if bits == 8:
        if depth == 1:
            _bits(raw, start, row.view(np.uint8))
        else:
            _octets(raw, start, row.view(np.uint8))
    elif bits == 16:
        _pairs(raw, start, row.view(np.uint16))
    else:
        _two_images(raw, start, distance, row.view(np.uint32))


@kernel
def unpack_chips(raw: Octets, stride: int, out: Pixels, depth: int, side: int) -> None:
    """Unpack frames of four chips ``side`` pixels wide, or of one if that is 0.

    ``depth`` is that of the counter: 1, 6, 12 or 24 bits, in pixels of 1, 1, 2 and 4 bytes.
    """
    distance = 2 * out.shape[1]
    size = side >> 3 if depth == 1 else side if depth == 6 else 2 * side
    # One chip is one run.
    rows, chips = (side, 4) if side else (1, 1)
    for f in range(out.shape[0]):
        for y in range(rows):
            for chip in range(chips):
                at = _run_start(y, chip, side) if side else 0
                run = out[f, at : at + (side or out.shape[1])]
                _run(raw, f * stride + size * (4 * y + chip), run, depth, distance)
                if side and chip < 2:
                    _reverse(run)


@subkernel
def _run_start(y: int, chip: int, side: int) -> int:
    """Return the index in the frame of a run's first pixel; chips count in stored order."""
    row = 2 * side - 1 - y if chip < 2 else y
    column = side if chip & 1 == 0 else 0
    return row * 2 * side + column


@kernel
def unfold(raw: Octets, stride: int, out: Middle, rows: int, columns: int, binning: int) -> None:
    """Unfold rows that hold a row of the upper half, then a reversed one of the lower half.

    The rows of the lower half are stored from the bottom up. Each stored row is repeated
    ``binning`` times in the frame; ``columns`` counts pixels of the frame.
    """
    for f in range(out.shape[0]):
        for y in range(rows):
            start = _U(f * stride + 4 * columns * y)
            upper = out[f, y * binning * columns : (y * binning + 1) * columns]
            last = (2 * rows - 1 - y) * binning
            lower = out[f, last * columns : (last + 1) * columns]
            for x in range(columns):
                at = start + _U(2 * x)
                upper[_U(x)] = np.uint16(raw[at]) | (np.uint16(raw[at + _U(1)]) << np.uint16(8))
                at += _U(2 * columns)
                lower[_U(columns - 1 - x)] = np.uint16(raw[at]) | (
                    np.uint16(raw[at + _U(1)]) << np.uint16(8)
                )
            for repeat in range(1, binning):
                above = _U((y * binning + repeat) * columns)
                below = _U((last + repeat) * columns)
                for x in range(columns):
                    out[_U(f), above + _U(x)] = upper[_U(x)]
                    out[_U(f), below + _U(x)] = lower[_U(x)]


@kernel
def unpack_k2_sector(raw: Octets, stride: int, out: Middle) -> None:
    """Unpack sectors: blocks of 12-bit pixels, two in three bytes, right to left in each half."""
    for f in range(out.shape[0]):
        for block in range(32):
            source = _U(f * stride + block * K2_BLOCK + K2_HEADER)
            corner = (block >> 4) * K2_ROWS * K2_WIDTH + K2_WIDTH - K2_COLUMNS * ((block & 15) + 1)
            for y in range(K2_ROWS):
                row = out[f, corner + y * K2_WIDTH : corner + y * K2_WIDTH + K2_COLUMNS]
                for x in range(K2_COLUMNS >> 1):
                    first = np.uint16(raw[source])
                    middle = np.uint16(raw[source + _U(1)])
                    last = np.uint16(raw[source + _U(2)])
                    row[_U(2 * x)] = first | ((middle & np.uint16(15)) << np.uint16(8))
                    row[_U(2 * x + 1)] = (middle >> np.uint16(4)) | (last << np.uint16(4))
                    source += _U(3)
