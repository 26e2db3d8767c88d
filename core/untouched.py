"""Arrays whose memory the system gives page by page, as they are written to."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np

from .arrays import Array

_SMALL = 1 << 15
"""Bytes of an array for which a mapping of its own does not pay."""


def zeros(count: int, dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros, shape (count,), that takes memory only where it is written to.

    An allocator would hand out memory that was used before, and fill all of it with zeros.
    """
    if count * dtype.itemsize < _SMALL:
        return np.zeros(count, dtype)
    room = mmap.mmap(-1, count * dtype.itemsize)
    with contextlib.suppress(OSError):
        # A page, not two megabytes, at the first touch.
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, dtype)
