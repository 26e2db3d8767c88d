"""Values and pairs at a cursor in a buffer, for a caller's own kernels.

:class:`~core.losses.reader.LossReader` and :class:`~core.losses.analysis.Analysis` check all
they read and are what most programs need. The functions here check nothing but the bounds
of the buffer; they read and write what no report needs, from Python or from a function
compiled with numba::

    @numba.njit
    def largest(octets, cursor, loss):  # of the block whose first pair is at the cursor
        most = 0.0
        sidx, value, cursor = read_pair(octets, cursor, loss)
        while sidx:
            most = max(most, value)
            sidx, value, cursor = read_pair(octets, cursor, loss)
        return most, cursor


    largest(np.frombuffer(stream, "u1"), 16, np.dtype("<f4"))

Each function returns the cursor after what it read or wrote. None moves it past the end of
the buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._jit import foreign_kernel
from ..arrays import Octets

DType = np.dtype[Any]


@foreign_kernel
def read(octets: Octets, cursor: int, dtype: DType) -> tuple[Any, int]:
    """Read one value; return it and the cursor after it.

    Args:
        octets: the buffer, uint8, shape (n,).
        cursor: index of the value's first byte; it need not be aligned.
        dtype: of the value, such as ``np.dtype("<i4")``.

    Raises:
        IndexError: the value is not whole in the buffer.
    """
    end = cursor + octets[:0].view(dtype).itemsize
    if cursor < 0 or end > len(octets):
        raise IndexError("the value is not whole in the buffer")
    return octets[cursor:end].view(dtype)[0], end


@foreign_kernel
def write(octets: Octets, cursor: int, dtype: DType, value: Any) -> int:  # noqa: ANN401 - a number
    """Write one value; return the cursor after it.

    Args:
        octets: the buffer, uint8, shape (n,), writable.
        cursor: index of the value's first byte; it need not be aligned.
        dtype: the value is converted to it.
        value: a number.

    Raises:
        IndexError: the buffer has no room for it.
    """
    end = cursor + octets[:0].view(dtype).itemsize
    if cursor < 0 or end > len(octets):
        raise IndexError("the buffer has no room for the value")
    octets[cursor:end].view(dtype)[0] = value
    return end


@foreign_kernel
def read_pair(octets: Octets, cursor: int, loss: DType) -> tuple[int, float, int]:
    """Read one (sidx, loss) pair; return both and the cursor after them.

    A sidx of 0 is the end of a block, and its loss is 0.

    Args:
        octets: the buffer, uint8, shape (n,).
        cursor: index of the pair's first byte.
        loss: dtype of losses, ``np.dtype("<f4")`` or ``np.dtype("<f8")``.

    Raises:
        IndexError: the pair is not whole in the buffer.
    """
    sidx, middle = read(octets, cursor, np.dtype(np.int32))
    value, end = read(octets, middle, loss)
    return int(sidx), float(value), end


@foreign_kernel
def write_pair(octets: Octets, cursor: int, loss: DType, sidx: int, value: float) -> int:
    """Write one (sidx, loss) pair; return the cursor after it. ``0, 0.0`` ends a block.

    Args:
        octets: the buffer, uint8, shape (n,), writable.
        cursor: index of the pair's first byte.
        loss: dtype of losses, ``np.dtype("<f4")`` or ``np.dtype("<f8")``.
        sidx: sample id.
        value: the loss.

    Raises:
        IndexError: the buffer has no room for the pair.
    """
    if cursor < 0 or cursor + 4 + octets[:0].view(loss).itemsize > len(octets):
        raise IndexError("the buffer has no room for the pair")
    middle = write(octets, cursor, np.dtype(np.int32), sidx)
    return write(octets, middle, loss, value)
