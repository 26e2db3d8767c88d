"""Runs: the sums of a ledger, or of a part of it, sorted by summary and period.

Where those go that do not fit in memory is a Protocol, of which one implementation is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...arrays import Indices, Octets
from ...slices import SLICE, grouped
from ...sorting import starts_of
from .._kernels import layout
from .._kernels.cells import Sums
from .._kernels.groups import write_run
from .._kernels.references import find_summaries
from .._kernels.stretches import Arena
from .memory import make_arena, make_sums


class Spilled(Protocol):
    """Bytes kept elsewhere, appended once and then read."""

    def append(self, data: memoryview) -> None:
        """Store the next bytes.

        Raises:
            CoreError: there is no room for them.
        """

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on; any thread may call it."""

    def close(self) -> None:
        """Give the room back."""


class SpillStore(Protocol):
    """Makes places to keep bytes."""

    def create(self) -> Spilled:
        """Make an empty one.

        Raises:
            CoreError: that is impossible.
        """


class HeldInMemory:
    """Bytes kept in memory after all."""

    def __init__(self) -> None:
        self._parts: list[Octets] = []

    def append(self, data: memoryview) -> None:
        """Keep a copy."""
        self._parts.append(np.frombuffer(data, np.uint8).copy())

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy a part."""
        if len(self._parts) != 1:
            self._parts = [np.concatenate([np.zeros(0, np.uint8), *self._parts])]
        target[:] = self._parts[0][offset : offset + len(target)].data

    def close(self) -> None:
        """Drop them."""
        self._parts.clear()


_PIECE = 1 << 20
"""Words written at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Stretches of one period each, ascending by summary and period."""

    summaries: npt.NDArray[np.int32]
    """Ascending and unique; shape (k,)."""
    starts: Indices
    """First word of each, and the word after the last; shape (k + 1,)."""
    octets: Spilled

    @property
    def words(self) -> int:
        """Length."""
        return int(self.starts[-1] - self.starts[0])

    @property
    def end(self) -> int:
        """Word after the last."""
        return int(self.starts[-1])

    def section(self, first: int, last: int) -> tuple[int, int]:
        """Words of the summaries ``first`` to ``last``, in those ids."""
        begin = np.searchsorted(self.summaries, first, side="left")
        end = np.searchsorted(self.summaries, last, side="right")
        return int(self.starts[begin]), int(self.starts[end])

    def read_into(self, begin: int, target: npt.NDArray[np.int32]) -> None:
        """Read the words from ``begin`` on."""
        if len(target):
            self.octets.read_into(4 * begin, target.view(np.uint8).data)


class RunWriter:
    """Writes one run in pieces.

    Args:
        samples: len_sample.
        float_width: bytes of a loss.
        octets: receives the bytes.
        begin: words that they have before the first.
    """

    def __init__(
        self, samples: int, float_width: int, octets: Spilled | None = None, begin: int = 0
    ) -> None:
        self._samples = samples
        self._width = float_width
        self._octets: Spilled = HeldInMemory() if octets is None else octets
        self._out = make_arena(_PIECE)
        self._summaries: list[npt.NDArray[np.int32]] = []
        self._starts: list[Indices] = []
        self._words = begin

    def write(self, keys: Indices, places: Indices, arena: Arena) -> None:
        """Write sorted references."""
        starts = starts_of(keys)
        sums = make_sums(self._samples, int(np.diff(starts).max(initial=0)))
        for first, last in grouped(starts, "ledger", max(SLICE // (self._samples + 1), 1)):
            part = slice(starts[first], starts[last])
            self._write(keys[part], places[part], arena, sums)

    def _write(self, keys: Indices, places: Indices, arena: Arena, sums: Sums) -> None:
        """Write whole groups."""
        progress = np.zeros(3, np.int64)
        status = layout.ARENA_FULL
        while status == layout.ARENA_FULL:
            status = write_run(
                keys, places, arena, self._samples, self._width, sums, self._out, progress
            )
            if progress[1] == 0 and status == layout.ARENA_FULL:
                self._out = make_arena(int(progress[2]))
            self.append(self._out.words[: progress[1]])
            progress[1] = 0

    def append(self, words: npt.NDArray[np.int32]) -> int | None:
        """Write stretches that are sorted already; a summary may go on from the call before.

        Returns:
            None, or the word of the first that is not sorted.
        """
        sizes = (len(words), self._samples, self._width)
        nothing = np.zeros(0, np.int32), np.zeros(0, np.int64)
        count = find_summaries(words, *sizes, *nothing)
        if count < 0:
            return -1 - count
        summaries, starts = np.empty(count, np.int32), np.empty(count, np.int64)
        find_summaries(words, *sizes, summaries, starts)
        starts += self._words
        if count and self._summaries and self._summaries[-1][-1] == summaries[0]:
            summaries, starts = summaries[1:], starts[1:]
        if len(summaries):
            self._summaries.append(summaries)
            self._starts.append(starts)
        if len(words):
            self._octets.append(words.view(np.uint8).data)
        self._words += len(words)
        return None

    def finish(self) -> Run:
        """The run."""
        end = np.array([self._words])
        return Run(
            np.concatenate([np.zeros(0, np.int32), *self._summaries]),
            np.concatenate([*self._starts, end]),
            self._octets,
        )
