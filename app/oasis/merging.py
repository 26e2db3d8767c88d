"""Merges sorted tables by a key, in bounded memory.

The peer merges with a heap: of the heads of all files it takes the lowest key, and of equal keys
that of the first file. For files that are sorted by key that is a stable merge. In a file that is
not, a row with a key below the largest before it follows at once, because every other head is
higher; so a row stands where a row of that largest key would stand, and the order is

    by (largest key so far in its file, file, row),

which needs no heap: of each file a piece is in memory, with the running maximum of its keys. The
lowest of the last maxima of all pieces, c, of a file f whose end is not yet read, says how far the
pieces may go: below c from all files, and c itself from files up to f, whose further rows of key c
are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

_P = TypeVar("_P")
Keys = npt.NDArray[np.int64]
Piece = tuple[Keys, _P]
"""Keys of some rows of a table, and the rows: anything that slices."""


class _Head(Generic[_P]):
    """The piece of a table that comes next."""

    def __init__(self, pieces: Iterator[Piece[_P]]) -> None:
        self._pieces = pieces
        self._largest = np.iinfo(np.int64).min
        self.ended = False
        self.maxima: Keys = np.zeros(0, np.int64)
        self.rows: Any = None
        self.read()

    def read(self) -> None:
        """Take the next piece, once this one is used up."""
        while not self.ended and not len(self.maxima):
            piece = next(self._pieces, None)
            if piece is None:
                self.ended = True
                return
            keys, self.rows = piece
            if len(keys):
                self.maxima = np.maximum(np.maximum.accumulate(keys), self._largest)
                self._largest = int(self.maxima[-1])

    def take(self, count: int) -> tuple[Keys, Any]:
        """Remove and return the first rows."""
        result = (self.maxima[:count], self.rows[:count])
        self.maxima, self.rows = self.maxima[count:], self.rows[count:]
        return result


def merge(
    tables: Sequence[Iterator[Piece[_P]]], reorder: Callable[[list[_P], Keys], _P]
) -> Iterator[_P]:
    """Yield the rows of all tables by key, as the peer orders them.

    Args:
        tables: pieces of each, in order.
        reorder: joins rows and returns them in the order of these indices.
    """
    heads = [_Head(table) for table in tables]
    while True:
        for head in heads:
            head.read()
        waiting = [head for head in heads if len(head.maxima)]
        if not waiting:
            return
        limit = min(int(head.maxima[-1]) for head in waiting)
        holder = next(head for head in waiting if int(head.maxima[-1]) == limit)
        parts = []
        up_to_limit = True
        for head in waiting:
            side: Literal["left", "right"] = "right" if up_to_limit else "left"
            count = int(np.searchsorted(head.maxima, limit, side=side))
            if count:
                parts.append(head.take(count))
            up_to_limit = up_to_limit and head is not holder
        maxima = np.concatenate([keys for keys, _ in parts])
        yield reorder([rows for _, rows in parts], np.argsort(maxima, kind="stable"))


def join_rows(parts: Sequence[npt.NDArray[Any]], order: Keys) -> npt.NDArray[Any]:
    """Join rows and return them in the order of these indices."""
    return np.concatenate(parts)[order]
