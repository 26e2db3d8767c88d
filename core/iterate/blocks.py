"""Permutations of a range cut into blocks, each block under a key of its own.

All reordering with random access is built from this one operation. An epoch permutation has
one block per epoch, a block shuffle has blocks of a given size, and an overlapping shuffle is
two block shuffles shifted by half a block::

    position      0 1 2 3 4 | 5 6 7 8 9 | 10 11 12
    block             0     |     1     |    2        (the last may be shorter)
    image         3 0 4 1 2 | 9 5 6 8 7 | 11 12 10

The problem: "which item is at position p of epoch e?" must be answered at once, for any p,
without drawing the earlier epochs or storing a permutation of 10**9 items. So the order of a
block is a function of its number, ``Permutation(size, key.nth(block))``, and there are two ways
to evaluate it:

* A *small* block, of up to ``SMALL`` positions, becomes a table: the keyed shuffle runs once,
  and each position is a lookup. Building a table costs as much as ``size`` lookups, so it pays
  only if successive positions fall into the same block. :func:`count_misses` predicts how often
  tables would be rebuilt; if positions jump about, they are sorted first and their images put
  back in order. There are two tables, for even and for odd blocks, so that neighbours (which
  alternate at a block border) do not evict each other.
* A *big* block is evaluated position by position with the cipher of :mod:`core.rng`, which
  needs no table and no memory.

Why not always the cipher? Over few positions, a cipher of a few rounds is visibly not uniform,
while a shuffled table is exact. Big blocks can have small ones among them: the last block, which
the end of the range cuts short, and the first, which ``lead`` cuts short. Their orders are built
separately (``_short_ends``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._jit import inlined, kernel
from ..arrays import Indices, Words
from ..budget import current
from ..rng import SMALL, Key, Permutation
from ..rng.kernels import ROUND_WORDS, U, fill_rounds, mix, network, shuffle
from .columns import ReusePool

Tables = npt.NDArray[np.uint16]

_NO_END = 2**62
_STRETCH = 1 << 17
"""Positions that a kernel permutes at once, in some 10 milliseconds."""
_TABLES = 2
_SETS = 4
"""Sets of tables: this many threads can read one stage without rebuilding each other's."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Tables of two blocks, and the numbers of those blocks (-1: none)."""

    owners: Indices
    tables: Tables


class BlockPermutation:
    """Permutes block j, of ``size`` positions, by ``Permutation(size, key.nth(j))``.

    Args:
        key: of all blocks.
        size: positions of a block, at least 1.
        total: number of positions, None if endless; the last block may be shorter.
        lead: how much shorter the first block is than the others, below ``size``.
    """

    def __init__(self, key: Key, size: int, total: int | None, lead: int = 0) -> None:
        self._key = key
        self._words: Words = key.words
        self._size = size
        self._lead = lead
        self._total = _NO_END if total is None else total
        self._spare: ReusePool[_Work] = ReusePool(_SETS)
        self._ends = self._short_ends() if size > SMALL else {}

    def _short_ends(self) -> dict[int, tuple[int, int, Permutation]]:
        """First position, length and order of the end blocks that are cut to a small size."""
        last = max(self._total + self._lead - 1, 0) // self._size
        ends = {}
        for block in (0, last):
            low = max(block * self._size - self._lead, 0)
            length = min((block + 1) * self._size - self._lead, self._total) - low
            if 0 < length <= SMALL:
                ends[block] = (low, length, Permutation(length, self._key.nth(block)))
        return ends

    def at(self, positions: Indices, *, absolute: bool = True) -> Indices:
        """The images of positions, shape (k,), int64, contiguous.

        Args:
            positions: shape (k,), each from 0 to total - 1.
            absolute: whether images count from 0, or from the first position of the block.
        """
        if len(positions) > _STRETCH:
            out = np.empty_like(positions)
            for first in range(0, len(positions), _STRETCH):
                current().check("permute")
                part = positions[first : first + _STRETCH]
                out[first : first + _STRETCH] = self.at(part, absolute=absolute)
            return out
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
        blocks = (self._words, self._lead, self._size, self._total)
        permute_small(*blocks, absolute, positions, work.owners, work.tables, out)
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
        blocks, rounds = (self._words, self._lead, self._size, self._total), ROUND_WORDS
        permute_big(*blocks, absolute, big, np.zeros(rounds, np.uint64), images)
        if not whole:
            out[rest] = images
        return out


_2, _1 = U(2), U(1)


@inlined
def _ends_of(block: int, lead: int, size: int, total: int) -> tuple[int, int]:
    """First and last position of a block."""
    low = block * size - lead
    high = low + size - 1
    if low < 0:
        low = 0
    if high >= total:
        high = total - 1
    return low, high


@inlined
def _key_of(block: int, first: U, second: U) -> tuple[U, U]:
    """The words of the key of a block: those at 2 j and 2 j + 1."""
    return mix(U(block) * _2, first, second), mix(U(block) * _2 + _1, first, second)


@kernel
def count_misses(positions: Indices, lead: int, size: int) -> int:
    """Count how often a table would be built for these positions, starting with none.

    Args:
        positions: shape (k,), not negative.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
    """
    even, odd = -1, -1
    low, high = 0, -1
    misses = 0
    for i in range(len(positions)):
        p = positions[i] + lead
        if p < low or p > high:
            block = p // size
            low, high = block * size, block * size + size - 1
            if block % 2 == 0:
                misses += even != block
                even = block
            else:
                misses += odd != block
                odd = block
    return misses


@kernel
def permute_small(
    key: Words,
    lead: int,
    size: int,
    total: int,
    absolute: int,
    positions: Indices,
    owners: Indices,
    tables: Tables,
    out: Indices,
) -> None:
    """Permute positions within blocks that are small enough for tables.

    Args:
        key: of all blocks.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
        total: number of positions; the last block may be shorter.
        absolute: 1 for images that count from 0, 0 for images that count from their block.
        positions: shape (k,).
        owners: shape (2,), the block of each table, -1 for none; updated.
        tables: shape (2, size); updated.
        out: shape (k,), receives the images.
    """
    first, second = key[0], key[1]
    low, high = 0, -1
    slot = 0
    for i in range(len(positions)):
        p = positions[i]
        if p < low or p > high:
            block = (p + lead) // size
            low, high = _ends_of(block, lead, size, total)
            slot = block % 2
            if owners[slot] != block:
                one, two = _key_of(block, first, second)
                shuffle(one, two, tables[slot, : high - low + 1])
                owners[slot] = block
        out[i] = tables[slot, p - low] + absolute * low


@kernel
def permute_big(
    key: Words,
    lead: int,
    size: int,
    total: int,
    absolute: int,
    positions: Indices,
    rounds: Words,
    out: Indices,
) -> None:
    """Permute positions within blocks that are too big for tables.

    Args:
        key: of all blocks.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
        total: number of positions.
        absolute: as in :func:`permute_small`.
        positions: shape (k,), all in big blocks.
        rounds: shape (rounds,), scratch.
        out: shape (k,), receives the images.
    """
    first, second = key[0], key[1]
    at = 0
    while at < len(positions):
        block = (positions[at] + lead) // size
        low, high = _ends_of(block, lead, size, total)
        one, two = _key_of(block, first, second)
        fill_rounds(one, two, rounds)
        begin = at
        while at < len(positions) and low <= positions[at] <= high:
            at += 1
        network(U(high - low + 1), rounds, low, positions[begin:at], out[begin:at])
        for i in range(begin, at):
            out[i] += absolute * low
