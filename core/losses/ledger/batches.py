"""Reading a ledger: the cells of a few whole summaries at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ...budget import current
from ...errors import OptionError
from ...slices import SLICE, grouped, slices
from ...sorting import sort_pairs, starts_of
from .._kernels.cells import Cells
from .._kernels.groups import sum_cells
from .._kernels.references import count_cells, refer_to_run
from .._kernels.stretches import HEAD, Arena
from .ledger import Ledger
from .memory import make_arena, make_cells, make_sums

T = TypeVar("T")
CELL_BYTES = 32
"""Memory for each cell of a batch: sum, largest loss, sample, and its share of the groups."""
Weigh = Callable[[Indices, Indices], Indices]
"""Bytes that reports need for summaries of so many cells and references, cells included."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Losses of whole summaries as the ledger has them, by summary and period."""

    arena: Arena
    keys: Indices
    """Summary and period of each stretch, ascending."""
    places: Indices
    """Word of each stretch in ``arena``."""
    starts: Indices
    """First stretch of each group, and the number of stretches."""
    samples: int
    """len_sample."""
    width: int
    """Bytes of a loss."""

    def add_up(self) -> Cells:
        """Sums and largest losses of all groups."""
        words = self.arena.words
        count = len(self.places)
        cells = sum(count_cells(self.places[a:b], words) for a, b in slices(count, "ledger"))
        table = make_cells(len(self.starts) - 1, cells)
        sums = make_sums(self.samples, int(np.diff(self.starts).max(initial=0)))
        k = 0
        for first, last in self.ranges("ledger"):
            begin, end = self.starts[first], self.starts[last]
            groups, stretches = slice(first, last), slice(begin, end)
            part = Cells(
                table.summaries[groups],
                table.periods[groups],
                table.starts[first : last + 1],
                table.samples[k:],
                table.sums[k:],
                table.largest[k:],
            )
            keys, places = self.keys[stretches], self.places[stretches]
            count = sum_cells(keys, places, self.arena, self.samples, self.width, sums, part)
            part.starts[:] += k
            k += count
        return table

    def ranges(self, stage: str) -> Iterator[tuple[int, int]]:
        """Ranges of groups that take some ten milliseconds to add up; see ``grouped``."""
        return grouped(self.starts, stage, max(SLICE // (self.samples + 1), 1))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Whole summaries."""

    summaries: npt.NDArray[np.int32]
    """Ascending; shape (k,)."""
    groups: Indices
    """First group of each summary, and the number of groups; shape (k + 1,)."""
    periods: npt.NDArray[np.int32]
    """Period of each group."""
    stretches: Stretches
    shared: dict[str, Any] = field(default_factory=dict)
    """Results of :meth:`once`, by name."""

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """A result that several reports need, computed for the first that asks."""
        if name not in self.shared:
            self.shared[name] = compute()
        result: T = self.shared[name]
        return result

    @property
    def cells(self) -> Cells:
        """Sums and largest losses by group and sample."""
        return self.once("cells", self.stretches.add_up)


@dataclass(frozen=True, slots=True)
class Part:
    """A range of summaries to be read together."""

    first: int
    last: int
    cells: int
    """At the most."""
    bytes: int
    """Memory that reading it and its reports take."""


class LedgerReader:
    """Reads a ledger to which nothing is added any more.

    Args:
        ledger: the ledger.
        weigh_reports: memory that the reports need.
        expect_summaries: number of summaries at most, as declared.
        advice: how hints begin; see ``require_room``.
    """

    def __init__(
        self,
        ledger: Ledger,
        weigh_reports: Weigh,
        expect_summaries: int | None = None,
        advice: str = "Raise",
    ) -> None:
        self._advice = advice
        self._ledger = ledger
        self._weigh = weigh_reports
        self._expect_summaries = expect_summaries
        if ledger.runs or not (ledger.fits_references() or not ledger.spills):
            ledger.clear()
        self._keys, self._places = ledger.references()
        ledger.keep(self._keys.nbytes + self._places.nbytes, "references to the sums")

    def parts(self, limit: int, at_once: int = 1) -> list[Part]:
        """Ranges of summaries that take about ``limit`` bytes each, less if memory is short.

        Args:
            limit: bytes.
            at_once: parts that are read at once, where none is larger.

        Raises:
            LimitError: a summary alone takes more than the budget.
            CoreError: it takes more than the ledger is granted.
            OptionError: there are more summaries than declared.
        """
        scratch = _SAMPLE_BYTES * (self._ledger.header.len_sample + 1)
        summaries, cells, sizes, lengths = self._weighed()
        if self._expect_summaries is not None and len(summaries) > self._expect_summaries:
            raise OptionError(
                f"the stream has {len(summaries)} summaries, but expect_summaries is"
                f" {self._expect_summaries}",
                hint="Correct expect_summaries, or leave it out",
            )
        most = scratch + int(sizes.max(initial=0))
        if self._ledger.spills and not self._ledger.has_room(most):
            # Losses make room for the reports about them: they are read from the disk.
            self._ledger.drop(self._keys.nbytes + self._places.nbytes)
            self._keys = self._places = np.zeros(0, np.int64)
            self._ledger.clear()
            summaries, cells, sizes, lengths = self._weighed()
        wanted = at_once * min(limit + scratch, int(sizes.sum()) + scratch)
        if at_once > 1 and not self._ledger.has_room(wanted):
            limit = max(self._ledger.free // at_once - scratch, 1)
        if len(sizes):
            worst = int(sizes.argmax())
            most = scratch + max(int(sizes[worst]), min(limit, int(sizes.sum())))
            subject = f"the reports of summary {summaries[worst]}"
            self._ledger.require_room(most, subject, self._advice)
        parts = []
        begin = 0
        ends = np.cumsum(lengths)
        while begin < len(summaries):
            before = ends[begin] - lengths[begin]
            end = max(int(np.searchsorted(ends, before + limit, side="right")), begin + 1)
            total = int(sizes[begin:end].sum())
            of_part = int(cells[begin:end].sum())
            part = Part(int(summaries[begin]), int(summaries[end - 1]), of_part, scratch + total)
            parts.append(part)
            begin = end
        return parts

    def _weighed(self) -> tuple[npt.NDArray[np.int32], Indices, Indices, Indices]:
        """Summaries, at least as many cells as each has, bytes that it takes, and its length.

        Parts are cut by length. Where reports take little memory, it is that of the cells still:
        parts fit into caches, and there are enough of them for all threads.
        """
        summaries, cells, words, references = self._sizes_by_summary()
        sizes = self._weigh(cells, references) + 4 * words + _REFERENCE_BYTES * references
        return summaries, cells, sizes, np.maximum(sizes, CELL_BYTES * cells + 8 * words)

    def _sizes_by_summary(self) -> tuple[npt.NDArray[np.int32], Indices, Indices, Indices]:
        """Summaries, cells and references of each at the most, and words of it to be read."""
        if not self._ledger.runs:
            summaries, cells, references = self._cells_in_arena()
            # A listed cell takes two words; the others fewer.
            words = np.zeros_like(cells) if self._ledger.originals is None else 2 * cells
            return summaries, cells, words, references
        ids = [run.summaries for run in self._ledger.runs]
        summaries, places = np.unique(np.concatenate(ids), return_inverse=True)
        words = np.zeros(len(summaries), np.int64)
        sizes = [np.diff(run.starts) for run in self._ledger.runs]
        np.add.at(words, places.ravel(), np.concatenate(sizes))
        # A cell takes a word or more, and there are no more than in every busy period.
        calendar, samples = self._ledger.calendar, self._ledger.header.len_sample
        cells = np.minimum(words, calendar.busy_periods * (samples + 1))
        return summaries, cells, words, words // _LEAST_WORDS

    def _cells_in_arena(self) -> tuple[npt.NDArray[np.int32], Indices, Indices]:
        ids = self._keys >> 32
        starts = starts_of(ids)
        cells = np.zeros(len(starts) - 1, np.int64)
        words = self._ledger.memory.words
        for begin, end in slices(len(ids), "ledger"):
            first, last = np.searchsorted(starts, [begin, end - 1], side="right")
            for summary in range(first - 1, last):
                of_slice = self._places[max(starts[summary], begin) : min(starts[summary + 1], end)]
                cells[summary] += count_cells(of_slice, words)
        return ids[starts[:-1]].astype(np.int32), cells, np.diff(starts)

    def read(self, part: Part) -> Batch:
        """Gather a range of summaries; several threads may read at once."""
        arena, keys, places = self.load(part)
        header = self._ledger.header
        budget = current()
        budget.check("ledger")
        starts = starts_of(keys)
        of_groups = keys[starts[:-1]]
        budget.check("ledger")
        ids = of_groups >> 32
        groups = starts_of(ids)
        return Batch(
            summaries=ids[groups[:-1]].astype(np.int32),
            groups=groups,
            periods=(of_groups & _PERIOD).astype(np.int32),
            stretches=Stretches(arena, keys, places, starts, header.len_sample, header.float_width),
        )

    def load(self, part: Part) -> tuple[Arena, Indices, Indices]:
        """Stretches of a range, and sorted references to them."""
        if self._ledger.runs:
            return self._gather(part)
        low, high = np.searchsorted(self._keys, [part.first << 32, (part.last + 1) << 32])
        keys, places = self._keys[low:high], self._places[low:high]
        if self._ledger.originals is None:
            return self._ledger.memory, keys, places
        arena, places = self._ledger.originals.read(self._ledger.memory, places)
        return arena, keys, places

    def release(self, batch: Batch) -> None:
        """Take the memory of a batch back, which must not be used any more."""
        if self._ledger.originals is not None:
            self._ledger.originals.reuse(batch.stretches.arena)

    def _gather(self, part: Part) -> tuple[Arena, Indices, Indices]:
        """Bring the sections of all runs together."""
        header = self._ledger.header
        sections = [run.section(part.first, part.last) for run in self._ledger.runs]
        arena = make_arena(sum(end - begin for begin, end in sections))
        sizes = (header.len_sample, header.float_width)
        nothing = np.zeros(0, np.int64)
        at = 0
        for run, (begin, end) in zip(self._ledger.runs, sections, strict=True):
            for a, b in slices(end - begin, "ledger"):
                run.read_into(begin + a, arena.words[at + a : at + b])
            at += end - begin
        count = refer_to_run(arena.words, 0, at, *sizes, nothing, nothing)
        keys, places = np.empty(count, np.int64), np.empty(count, np.int64)
        if count:
            current().check("ledger")
            refer_to_run(arena.words, 0, at, *sizes, keys, places)
            sort_pairs(keys, places, "ledger")
        return arena, keys, places


_PERIOD = 0x7FFFFFFF
"""Bits of a key."""
_LEAST_WORDS = HEAD + 4
"""Words of the shortest stretch with a cell."""
_REFERENCE_BYTES = 72
"""Memory for each reference of a batch, while it is sorted and grouped."""
_SAMPLE_BYTES = 64
"""Scratch for each sample."""


def sums_of(ledger: Ledger) -> Iterator[tuple[int, int, int, float, float]]:
    """Every cell as (summary, period, sample, sum, largest loss); sample 0 is the mean."""
    reader = LedgerReader(ledger, lambda cells, _references: CELL_BYTES * cells)
    for part in reader.parts(1 << 24):
        c = reader.read(part).cells
        for group in range(len(c.summaries)):
            for k in range(c.starts[group], c.starts[group + 1]):
                yield (
                    int(c.summaries[group]),
                    int(c.periods[group]),
                    int(c.samples[k]),
                    float(c.sums[k]),
                    float(c.largest[k]),
                )
