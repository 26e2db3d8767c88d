"""Long work on arrays in slices, between which the budget is asked.

Whoever asked for the work may leave while it runs, and what computes must notice soon. A call of
numpy or of a kernel cannot be stopped, so none may take long: arrays of any length are worked on
in slices of some ten milliseconds::

    for begin, end in slices(len(values), "sums"):     a check before each slice
        kernel(values[begin:end])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from .arrays import Indices
from .budget import current

SLICE = 1 << 20
"""Elements that the slowest of these loops takes some ten milliseconds for."""
_PAGE = 512
"""Integers of the smallest page of memory."""
_HASHED = 8 << 20
"""Bytes that a hash takes about as long for."""


class Hash(Protocol):
    """What digests bytes."""

    def update(self, data: memoryview, /) -> object:
        """Take more of them."""


def slices(count: int, stage: str, size: int = SLICE) -> Iterator[tuple[int, int]]:
    """Yield begin and end of slices of ``size`` elements, the last one shorter.

    Args:
        count: number of elements.
        stage: what is working, for the message.
        size: elements of a slice.

    Raises:
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    budget = current()
    for begin in range(0, count, size):
        budget.check(stage)
        yield begin, min(begin + size, count)


def touched(count: int, stage: str) -> Indices:
    """Return integers whose memory is there.

    The system provides a page when it is first written to, some 50 milliseconds for each 100 MB.
    What writes here and there, as a sort does, would wait for all pages in its first slice.

    Args:
        count: number of integers.
        stage: what is working, for the message.

    Raises:
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    values = np.empty(count, np.int64)
    for begin, end in slices(count, stage):
        values[begin:end:_PAGE] = 0
    return values


def digest(hashed: Hash, data: bytes | memoryview, stage: str) -> None:
    """Update a hash with many bytes.

    Raises:
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    octets = memoryview(data).cast("B")
    for begin, end in slices(len(octets), stage, _HASHED):
        hashed.update(octets[begin:end])


def grouped(starts: Indices, stage: str, size: int = SLICE) -> Iterator[tuple[int, int]]:
    """Yield ranges of groups that have about ``size`` elements together, and one group at least.

    Args:
        starts: first element of each group, and the one after the last; shape (groups + 1,).
        stage: what is working, for the message.
        size: elements of a range.

    Raises:
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    budget = current()
    first = 0
    while first < len(starts) - 1:
        budget.check(stage)
        last = int(np.searchsorted(starts, starts[first] + size, side="right")) - 1
        last = min(max(last, first + 1), len(starts) - 1)
        yield first, last
        first = last
