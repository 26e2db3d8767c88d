"""A range cut into blocks, each permuted under a key of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Indices, Words
from ..rng import SMALL, Key, Permutation
from ..rng.kernels import ROUND_WORDS
from ._kernels.blocks import Tables, count_misses, permute_big, permute_small
from .reuse import ReusePool

_NO_END = 2**62
_TABLES = 2
_KEPT = 4
"""Sets of tables: as many threads read one stage without making each other's anew."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Tables of two blocks, and which blocks those are (-1: none)."""

    owners: Indices
    tables: Tables


class BlockPermutation:
    """Block j, of ``size`` positions, is permuted by ``Permutation(size, key.nth(j))``.

    Args:
        key: of all blocks.
        size: of a block, at least 1.
        total: number of positions, so that the last block may be shorter; None for no end.
        lead: by how much the first block is shorter than the others, below ``size``.
    """

    def __init__(self, key: Key, size: int, total: int | None, lead: int = 0) -> None:
        self._key = key
        self._words: Words = key.words
        self._size = size
        self._lead = lead
        self._total = _NO_END if total is None else total
        self._spare: ReusePool[_Work] = ReusePool(_KEPT)
        self._ends = self._short_ends() if size > SMALL else {}

    def _short_ends(self) -> dict[int, tuple[int, int, Permutation]]:
        """First position, length and order of big blocks cut so short that they are small."""
        last = max(self._total + self._lead - 1, 0) // self._size
        ends = {}
        for block in (0, last):
            low = max(block * self._size - self._lead, 0)
            length = min((block + 1) * self._size - self._lead, self._total) - low
            if 0 < length <= SMALL:
                ends[block] = (low, length, Permutation(length, self._key.nth(block)))
        return ends

    def at(self, positions: Indices, *, absolute: bool = True) -> Indices:
        """What is at these positions, shape (k,): int64, contiguous, within the range.

        Args:
            positions: shape (k,), each from 0 to total - 1.
            absolute: count from 0; if not, from the first position of the block.
        """
        if self._size > SMALL:
            return self._big(positions, int(absolute))
        if not len(positions):
            return positions.copy()
        misses = count_misses(positions, self._lead, self._size)
        blocks = (int(positions.max()) - int(positions.min())) // self._size + 2
        if misses <= blocks:
            return self._small(positions, int(absolute))
        order = np.argsort(positions, kind="stable")
        out = np.empty(len(positions), np.int64)
        out[order] = self._small(positions[order], int(absolute))
        return out

    def _small(self, positions: Indices, absolute: int) -> Indices:
        work = self._spare.take(lambda _: True)
        if work is None:
            length = min(self._size, self._total)
            work = _Work(
                np.full(_TABLES, -1, np.int64), np.zeros((_TABLES, max(length, 1)), np.uint16)
            )
        out = np.empty(len(positions), np.int64)
        permute_small(
            self._words,
            self._lead,
            self._size,
            self._total,
            absolute,
            positions,
            work.owners,
            work.tables,
            out,
        )
        self._spare.give(work)
        return out

    def _big(self, positions: Indices, absolute: int) -> Indices:
        out = np.empty(len(positions), np.int64)
        rest = np.ones(len(positions), bool)
        for low, length, order in self._ends.values():
            inside = (positions >= low) & (positions < low + length)
            if inside.any():
                out[inside] = order.at(positions[inside] - low) + absolute * low
                rest &= ~inside
        whole = bool(rest.all())
        big = positions if whole else positions[rest]
        images = out if whole else np.empty(len(big), np.int64)
        permute_big(
            self._words,
            self._lead,
            self._size,
            self._total,
            absolute,
            big,
            np.zeros(ROUND_WORDS, np.uint64),
            images,
        )
        if not whole:
            out[rest] = images
        return out
