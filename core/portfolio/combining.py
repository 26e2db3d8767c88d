"""Losses of groups: by period and sample, or occurrence by occurrence.

The blocks of all members are numbered one after the other. A :class:`Subject` knows which happen
when (``_kernels/references.py``) and adds up their rows (``_kernels/adding.py``), some pairs of
group and period at a time. Nothing that is not asked for is read: what a filter leaves out has no
reference. Results do not depend on how work is cut, so any number of threads gives the same.

Cells of one group are held at a time, or of as many groups as the caller asks for. So the memory
of a roll-up follows the cells of its largest group, not the rows of its members; a budget too
small for that refuses it before it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Array, Floats, Indices
from ..budget import Scope, current
from ..errors import BudgetExceededError, InputError, LimitError
from ..losses._kernels.cells import WHOLES, Cells
from ..losses.finishing import ParallelMap
from ..losses.reports.tallying import Repeated
from ..slices import grouped, slices
from ..sorting import COUNTS, PROGRESS, order_of
from ._kernels import adding, attributing
from ._kernels.references import (
    count_references,
    find_alone,
    find_changes,
    find_pairs,
    group_blocks,
    refer,
)
from .joining import Joint, Member, join
from .losses import Int32s, LossTable, OccurrenceLosses

MAX_GROUPS = 1_000_000
"""Most groups of a question."""
_ROWS = 1 << 18
"""Rows in the buffer: few enough for caches, and so many that calls of kernels cost little."""
_TASK = 1 << 21
"""Rows of a task of one thread."""
_REFERENCE_BYTES = 16
_PAIR_BYTES = 28
_DISTINCT_BYTES = 96
_TAKEN_BYTES = 24
CELL_BYTES = 20
"""Memory of a cell."""
_ROW_BYTES = 12
_STEP = 1 << 19
"""References that a kernel takes at a time."""


class Pairs(NamedTuple):
    """Groups and periods with losses, ascending."""

    starts: Indices
    """First reference of each, from 0 on, and the one after the last; shape (pairs + 1,)."""
    groups: Int32s
    periods: Int32s
    rows: Indices
    """Rows before each, and of all; shape (pairs + 1,)."""
    occurrences: Int32s
    """Of the references."""
    blocks: Indices
    """Of the references."""
    counts: Int32s
    """Rows of the references."""


class Subject:
    """What some members lose together, by group.

    Args:
        members: loss sets that are added, one at least.
        groups: number of groups.
        seed: of the pairing of members of other catalogues.
        counted: first and last period whose losses count; all without.

    Raises:
        InputError: members do not go together, or a group or period is not there.
        LimitError: there are too many groups.
        WorkStoppedError: the references do not fit, or nobody waits for the result.
    """

    def __init__(
        self,
        members: Sequence[Member],
        groups: int,
        seed: int = 0,
        counted: Sequence[int] | None = None,
    ) -> None:
        if not 1 <= groups <= MAX_GROUPS:
            raise LimitError(
                f"{groups} groups are asked for, but there can be {MAX_GROUPS}",
                limit="groups",
                allowed=MAX_GROUPS,
                hint="Group by fewer dimensions, or filter",
            )
        self.members = tuple(members)
        self.groups = groups
        self.seed = seed
        self.counted = counted
        self.samples = members[0].samples
        self.joint: Joint = join(members, seed, counted)
        self.calendar = self.joint.calendar
        self._periods = _read_only(self.calendar.occurrences.periods)
        self._tables = [_frozen(member.table) for member in members]
        self._bases = np.cumsum([0, *(len(t.summary_ids) for t in self._tables)])
        self._counts = _joined([table.counts for table in self._tables])
        self._refer()

    # -- which blocks happen when -------------------------------------------------

    def _refer(self) -> None:
        """Find the references of all groups."""
        current().hold("references", 4 * len(self._counts))
        firsts = zip(self._tables, self._bases, strict=False)
        starts = np.append(
            np.concatenate([table.event_starts[:-1] + base for table, base in firsts]),
            self._bases[-1],
        )
        groups = self._block_groups()
        events = self.joint.events
        lengths = np.append(np.diff(starts), 0)
        # An occurrence without an event has index -1, and so the last length, which is 0.
        work = np.append(0, np.cumsum(lengths[events].sum(0) + 1))
        counts = np.zeros(self.groups, np.int64)
        self.sizes: Indices = np.zeros(self.groups, np.int64)
        """Rows of each group, more than its cells; shape (groups,)."""
        times = np.bincount(events[events >= 0], minlength=len(starts) - 1)
        of_blocks = (groups, self._counts)
        for a, b in grouped(starts, "references", _STEP):
            count_references(starts[a : b + 1], times[a:b], *of_blocks, counts, self.sizes)
        self._starts: Indices = np.append(0, np.cumsum(counts))
        total, cursors = int(self._starts[-1]), self._starts[:-1].copy()
        current().hold("references", _REFERENCE_BYTES * total)
        occurrences, blocks = np.empty(total, np.int32), np.empty(total, np.int64)
        rows = np.empty(total, np.int32)
        self._references = occurrences, blocks, rows
        """Occurrence and block of each reference, and rows of that."""
        for a, b in grouped(work, "references", _STEP) if total else ():
            refer(events, starts, *of_blocks, a, b, cursors, occurrences, blocks, rows)

    def _block_groups(self) -> Int32s:
        """Group of each block of all members."""
        out = np.empty(len(self._counts), np.int32)
        for member, table, base in zip(self.members, self._tables, self._bases, strict=False):
            if member.groups.max(initial=-1) >= self.groups:
                raise InputError(
                    f"a summary is in group {member.groups.max()}, but there are {self.groups}",
                    hint="Groups count from 0; -1 leaves a summary out",
                )
            known, groups = _read_only(member.summaries), _read_only(member.groups)
            for a, b in grouped(np.arange(len(table.summary_ids) + 1), "references"):
                group_blocks(table.summary_ids[a:b], known, groups, out[base + a : base + b])
        return out

    def pairs(self, first: int, last: int) -> Pairs:
        """Pairs of the groups ``first`` to ``last``, exclusive."""
        begin, end = int(self._starts[first]), int(self._starts[last])
        current().hold("references", _PAIR_BYTES * (end - begin))
        starts, rows = np.empty(end - begin + 1, np.int64), np.empty(end - begin + 1, np.int64)
        groups = np.empty(end - begin, np.int32)
        progress = np.zeros(2, np.int64)
        occurrences, blocks, counts = self._references
        periods = self._periods
        for a in range(begin, end, _STEP):
            current().check("references")
            group = int(np.searchsorted(self._starts, a, side="right")) - 1
            of_step = (self._starts, group, a, min(a + _STEP, end))
            inputs = (occurrences, counts, periods)
            find_pairs(*of_step, *inputs, starts, groups, rows, progress)
        count = int(progress[0])
        starts[count], rows[count] = end, progress[1]
        starts, rows, groups = starts[: count + 1] - begin, rows[: count + 1], groups[:count]
        of_pairs = periods[occurrences[begin:end][starts[:-1]]]
        columns = occurrences[begin:end], blocks[begin:end], counts[begin:end]
        return Pairs(starts, groups, of_pairs, rows, *columns)

    def _distinct(self, pairs: Pairs) -> tuple[Pairs, Indices, int]:
        """Pairs of one group whose losses differ, how often each is there, and how many are alone.

        Where an event is all that happens in a period, it is the same in all such periods.
        """
        nbytes = _DISTINCT_BYTES * len(pairs.groups) + _TAKEN_BYTES * len(pairs.blocks)
        current().hold("references", nbytes)
        keys = len(self._counts) + np.arange(len(pairs.groups))
        new = np.empty(len(keys), np.bool_)
        find_alone(pairs.starts, pairs.occurrences, pairs.blocks, keys)
        keys, order = order_of(keys, "references")
        find_changes(keys, order, pairs.starts, pairs.blocks, new)
        starts = np.append(np.flatnonzero(new), len(new))
        chosen = order[starts[:-1]]
        lengths, rows = np.diff(pairs.starts)[chosen], np.diff(pairs.rows)[chosen]
        ends = lengths.cumsum()
        references = np.repeat(pairs.starts[chosen] - ends + lengths, lengths)
        references += np.arange(len(references))
        distinct = Pairs(
            np.append(0, ends),
            pairs.groups[chosen],
            pairs.periods[chosen],
            np.append(0, rows.cumsum()),
            pairs.occurrences[references],
            pairs.blocks[references],
            pairs.counts[references],
        )
        alone = np.count_nonzero(keys[starts[:-1]] < len(self._counts))
        return distinct, np.diff(starts), int(alone)

    # -- sums ---------------------------------------------------------------------

    def cells(
        self, first: int = 0, last: int | None = None, apply: ParallelMap[Any, Any] = map
    ) -> Cells:
        """Sums and largest losses of groups, by group, period and sample.

        Args:
            first: group.
            last: group after the last; None for all from ``first`` on.
            apply: calls a function for each task, in any number of threads.

        Returns:
            Cells whose ``summaries`` are groups. What they take is held in the current budget.

        Raises:
            InputError: a loss is beyond float64.
            WorkStoppedError: the cells do not fit, or nobody waits for the result.
        """
        pairs = self.pairs(first, self.groups if last is None else last)
        return self._cells(pairs, apply)[0]

    def distinct_cells(
        self, group: int, apply: ParallelMap[Any, Any] = map
    ) -> tuple[Cells, Repeated]:
        """The cells of a group, of periods that differ.

        Args:
            group: number.
            apply: as for :meth:`cells`.

        Returns:
            Cells as :meth:`cells` does, of one period for all with the same losses, and of
            these periods. Of those alone, ``largest`` is not written: it is as ``sums``.

        Raises:
            InputError, WorkStoppedError: as :meth:`cells`.
        """
        pairs, times, alone = self._distinct(self.pairs(group, group + 1))
        cells, wholes = self._cells(pairs, apply, alone)
        return cells, Repeated(times, alone, wholes)

    def _cells(
        self, pairs: Pairs, apply: ParallelMap[Any, Any], alone: int = 0
    ) -> tuple[Cells, Floats]:
        """Add up pairs; ``largest`` is left out of the first ones, which are ``alone``."""
        most = np.minimum(np.diff(pairs.rows), self.samples + 1)
        places = np.append(0, most.cumsum())
        _hold("cells", CELL_BYTES * int(places[-1]))
        samples = np.empty(places[-1], np.int32)
        sums, largest = np.empty(places[-1]), np.empty(places[-1])
        sizes = np.empty(len(most), np.int64)
        current().hold("cells", 8 * WHOLES * len(most))
        wholes = np.empty((len(most), WHOLES))
        ordered = self.joint.in_order

        def add(task: tuple[int, int]) -> slice:
            begin = end = int(places[task[0]])
            for a, b, load, scratch in self._loads(pairs, task):
                peaks = sums if b <= alone else largest
                outputs = (samples[end:], sums[end:], peaks[end:], wholes[a:b])
                count = adding.add_up(load, ordered, scratch, sizes[a:b], *outputs)
                if not _are_finite(wholes[a:b]):
                    check_finite(sums[end : end + count])
                end += count
            return slice(begin, end)

        # With one thread all cells are written to their places at once.
        whole = apply is map and len(most)
        tasks = [(0, len(most))] if whole else grouped(pairs.rows, "rows", _TASK)
        written = list(apply(add, tasks))
        columns = [_moved(column, written) for column in (samples, sums, largest)]
        return Cells(pairs.groups, pairs.periods, np.append(0, sizes.cumsum()), *columns), wholes

    def _count(self, pairs: Pairs) -> tuple[Indices, Indices]:
        """First cell, and first loss of an occurrence, of each pair, and the numbers of all."""
        sizes, lengths = np.empty((2, len(pairs.groups)), np.int64)
        for a, b, load, scratch in self._loads(pairs, (0, len(sizes)), counting=True):
            adding.count_pairs(load, scratch, sizes[a:b], lengths[a:b])
        return np.append(0, np.cumsum(sizes)), np.append(0, np.cumsum(lengths))

    def occurrence_losses(self, group: int = 0) -> OccurrenceLosses:
        """Losses of a group, occurrence by occurrence.

        What they take is held in the current budget.

        Raises:
            InputError: a loss is beyond float64.
            WorkStoppedError: they do not fit, or nobody waits for the result.
        """
        pairs = self.pairs(group, group + 1)
        cells, ends = self._count(pairs)
        _hold("occurrences", 16 * int(cells[-1]) + _ROW_BYTES * int(ends[-1]))
        starts, samples = np.empty(cells[-1] + 1, np.int64), np.empty(cells[-1], np.int32)
        starts[-1] = ends[-1]
        occurrences, losses = np.empty(ends[-1], np.int32), np.empty(ends[-1])
        for a, b, load, scratch in self._loads(pairs, (0, len(pairs.groups))):
            of_cells, rows = slice(cells[a], cells[b]), slice(ends[a], ends[b])
            outputs = (starts[of_cells], samples[of_cells], occurrences[rows], losses[rows])
            adding.list_occurrences(load, scratch, int(ends[a]), *outputs)
            check_finite(losses[rows])
        periods = np.repeat(pairs.periods, np.diff(cells))
        return OccurrenceLosses(starts, periods, samples, occurrences, losses)

    def whole(self) -> Subject:
        """The same with one group, of all that have one."""
        members = [replace(m, groups=np.minimum(m.groups, 0)) for m in self.members]
        return Subject(members, 1, self.seed, self.counted)

    def located(
        self, whole: OccurrenceLosses, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[Int32s, Indices, Indices, Floats]]:
        """Find the rows of groups among those of a whole.

        Args:
            whole: occurrence losses with the same calendar.
            first: group.
            last: group after the last; None for all from ``first`` on.

        Yields:
            Groups of some pairs, the first row of each, and of each row its row of the whole,
            -1 if it has none, and its loss; valid until the next.
        """
        pairs = self.pairs(first, self.groups if last is None else last)
        for a, b, load, _ in self._loads(pairs, (0, len(pairs.groups))):
            rows = pairs.rows[a : b + 1] - pairs.rows[a]
            located = np.empty(int(rows[-1]), np.int64)
            attributing.locate(load, whole, located)
            yield pairs.groups[a:b], rows, located, load.losses

    def _loads(
        self, pairs: Pairs, task: tuple[int, int], *, counting: bool = False
    ) -> Iterator[tuple[int, int, adding.Load, adding.Scratch]]:
        """Bring the rows of pairs into a buffer, some at a time.

        Args:
            pairs: all of them.
            task: first pair, and the one after the last.
            counting: bring samples alone, and none of pairs with one reference: they are known
                to be as many as the rows.

        Yields:
            First pair, the one after the last, what kernels need of them, and scratch.
        """
        first, last = task
        before = pairs.rows[first : last + 1]
        ranges = [(first + a, first + b) for a, b in grouped(before, "rows", _ROWS)]
        most = max((int(pairs.rows[b] - pairs.rows[a]) for a, b in ranges), default=0)
        with Scope("rows", _ROW_BYTES * most + _SAMPLE_BYTES * (self.samples + 2)):
            samples, losses = np.empty(most, np.int32), np.empty(0 if counting else most)
            scratch = make_scratch(self.samples)
            for a, b in ranges:
                span = slice(int(pairs.starts[a]), int(pairs.starts[b]))
                starts, blocks = pairs.starts[a : b + 1] - span.start, pairs.blocks[span]
                of_references = (pairs.occurrences[span], pairs.counts[span].astype(np.int64))
                load = adding.Load(starts, pairs.periods[a:b], *of_references, samples, losses)
                if counting:
                    blocks = blocks.copy()
                    blocks[starts[:-1][np.diff(starts) == 1]] = -1
                self._gather(blocks, load)
                yield a, b, load, scratch

    def _gather(self, blocks: Indices, load: adding.Load) -> None:
        for member, table, base, mapped in zip(
            self.members, self._tables, self._bases, self.joint.mapped, strict=False
        ):
            current().check("rows")
            if not adding.gather(blocks, int(base), table, member.factor, mapped, load):
                raise InputError(
                    f"a loss set has a sample that is not from 0 to {self.samples}",
                    hint="It is damaged, or another len_sample was stored with it: make it anew",
                )


_SAMPLE_BYTES = 64
_TOO_LARGE = "Give factors under which losses stay below 1.8e308"


def make_scratch(samples: int) -> adding.Scratch:
    """Scratch for pairs of up to so many samples."""
    now, high, low, largest = np.zeros((4, samples + 1))
    listed, whole, tally, spare = np.zeros((4, samples + 2), np.int64)
    sorting = (np.zeros(COUNTS, np.int64), np.zeros(PROGRESS, np.int64))
    return adding.Scratch(now, high, low, largest, listed, whole, tally, spare, *sorting)


def _moved(column: Array, written: Sequence[slice]) -> Array:
    """Bring parts of a column together."""
    to = 0
    for part in written:
        for a, b in slices(part.stop - part.start, "cells") if to < part.start else ():
            column[to + a : to + b] = column[part.start + a : part.start + b]
        to += part.stop - part.start
    return column[:to]


def _hold(stage: str, nbytes: int) -> None:
    try:
        current().hold(stage, nbytes)
    except BudgetExceededError as e:
        e.hint = "A group is held as a whole: filter, or group by more dimensions"
        raise


def _are_finite(losses: Floats) -> bool:
    return bool(losses.max(initial=0) < np.inf)


def check_finite(losses: Floats) -> None:
    """Refuse sums of losses that float64 does not hold.

    Raises:
        InputError: there is one.
    """
    if not _are_finite(losses):
        raise InputError("a sum of losses is beyond float64", hint=_TOO_LARGE)


def _frozen(table: LossTable) -> LossTable:
    """The same table as read-only arrays, for which kernels are compiled."""
    return LossTable._make(_read_only(array) for array in table)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _joined(arrays: Sequence[Int32s]) -> Int32s:
    """Arrays one after the other, without a copy if there is one."""
    return arrays[0].view() if len(arrays) == 1 else _read_only(np.concatenate(arrays))
