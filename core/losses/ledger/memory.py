"""Memory of ledgers: arenas of stretches, and scratch to add them up."""

from __future__ import annotations

import numpy as np

from ...arrays import Indices
from .._kernels.cells import Cells, Sums
from .._kernels.exact import LIMBS
from .._kernels.groups import TILE
from .._kernels.stretches import Arena

_SPARE = 64
"""Cells written beyond the last."""


def make_arena(words: int) -> Arena:
    """Reserve memory for stretches; it is taken from the system only when written.

    Args:
        words: of 32 bits, at least.
    """
    longs = np.empty((words + 1) // 2, np.int64)
    return arena_of(longs)


def arena_of(longs: Indices) -> Arena:
    """Memory as an arena."""
    return Arena(longs.view(np.int32), longs, longs.view(np.float64), longs.view(np.float32))


class SharedArena:
    """One arena for the ledgers of a run, a slot for each.

    Partitions that fill slots are put together where they are: a copy would touch as much fresh
    memory again, which costs more than to fill it. Any thread may take a slot.

    Args:
        ledgers: how many there will be.
        budget: bytes of memory of each.
    """

    def __init__(self, ledgers: int, budget: int) -> None:
        # The most that a ledger fills, half of its budget; even, as stretches are.
        self.slot_words = budget // 8 & ~1
        free = range(0, ledgers * self.slot_words, max(self.slot_words, 1))
        try:
            self.whole: Arena = make_arena(ledgers * self.slot_words)
        except MemoryError:
            # Each ledger asks for as much as it needs, then.
            self.whole, free = make_arena(0), range(0)
        self._free = list(free)

    def take_slot(self) -> int | None:
        """First word of a slot that is not taken yet; None if there is none."""
        try:
            # Taking from a list is atomic.
            return self._free.pop()
        except IndexError:
            return None

    def section(self, begin: int, words: int) -> Arena:
        """Words of it, as an arena."""
        return arena_of(self.whole.longs[begin >> 1 : (begin + words) >> 1])


def make_sums(samples: int, largest_group: int) -> Sums:
    """Scratch for groups of up to ``largest_group`` stretches."""
    value = np.zeros(1)
    return Sums(
        high=np.zeros(samples + 1),
        low=np.zeros(samples + 1),
        largest=np.zeros(samples + 1),
        losses=np.zeros(samples + 1),
        marks=np.zeros((samples + 64) >> 6, np.int64),
        limbs=np.zeros(TILE * LIMBS, np.int64),
        cursors=np.zeros(max(largest_group, 1), np.int64),
        bits=value.view(np.int64),
        value=value,
    )


def make_cells(groups: int, cells: int) -> Cells:
    """Room for this many groups and cells."""
    return Cells(
        summaries=np.empty(groups, np.int32),
        periods=np.empty(groups, np.int32),
        starts=np.zeros(groups + 1, np.int64),
        samples=np.empty(cells + _SPARE, np.int32),
        sums=np.empty(cells + _SPARE),
        largest=np.empty(cells + _SPARE),
    )
