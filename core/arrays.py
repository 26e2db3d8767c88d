"""Types of arrays that several packages share, and long lists of integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of any dtype."""
Mask = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
"""Random bits."""
Rows = npt.NDArray[np.void]
"""Records: the rows of a table, or the blocks of a stream."""


class Integers(Sequence[int]):
    """A sequence of integers in 8 bytes each, a fifth of what a list takes.

    Args:
        values: the integers, shape (n,).
    """

    def __init__(self, values: Indices) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Integers: ...
    def __getitem__(self, index: int | slice) -> int | Integers:
        if isinstance(index, slice):
            return Integers(self.values[index])
        return int(self.values[index])

    def __iter__(self) -> Iterator[int]:
        for value in self.values:
            yield int(value)
