"""The ledger: the sum and the largest loss of every summary, period and sample.

All reports of whole runs (AAL, ALCT, EPT, PSEPT) are functions of it, and it can be merged:
sums add, largest losses are compared, in any order. It is what partitions of a run, files of
partial results and threads hand to each other.

The obvious layout, an array of periods by samples for every summary, is mostly empty: events
touch few summaries, and half of the samples have no loss. It is also slow, because each block
is added to memory that no cache holds. So the ledger is a log that is added up late::

    pass        stretches as they come (a copy of the block)   [e7 s1][e7 s2][e9 s1] ...
                        |  memory full: expand events to periods, sort, add up
                        v
    runs        stretches sorted by summary and period         [s1 p3][s1 p5][s2 p3] ...
                        |  end: a few summaries at a time, from memory or from all runs
                        v
    cells       sums, largest losses by period and sample      -> reports

* Appending costs a copy of the losses, whatever the order of events and periods.
* A stretch is a list of samples and losses where few samples have one, and an array with a
  bitmap where many have: memory follows the losses that there are. Most periods have one
  event of a summary, whose loss is sum and largest loss at once and is stored once, in the
  stream's own width.
* A run is written once, in order, and read once, a section for each summary: disks like both.
  Above the memory budget runs go to a :class:`SpillStore`; what must fit in memory is one
  summary at a time, which :func:`ledger_bound` states beforehand.
* Sums are exact (``_kernels/exact``): what is printed is the exact sum, correctly rounded, and
  so does not depend on the order of events, on partitions, on runs or on threads. Where the
  pair of floats of a sum could lose a bit, a run keeps the stretches apart instead of adding
  them, so that no rounding ever precedes the last.

Events that never occur are dropped when stretches are sorted, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...arrays import Indices
from ...budget import current
from ...errors import LimitError, MismatchError
from ...slices import SLICE, touched
from ...sorting import sort_pairs
from ...units import in_units
from .._kernels.layout import Record
from .._kernels.references import find_events, refer_to_blocks
from .._kernels.stretches import Arena
from ..events import StreamHeader
from .calendar import Calendar
from .memory import SharedArena, make_arena
from .originals import Originals
from .runs import Run, RunWriter, Spilled, SpillStore

MEMORY_BUDGET = 1 << 30
"""Default bound on the bytes of a ledger in memory."""

_FIRST_WORDS = 1 << 20
_REFERENCE_BYTES = 32
"""Key and place, twice while they are sorted."""
_LEAST_ROOM = 1 << 16
"""Bytes of references that are made whatever the budget."""


class MoreMemory(Protocol):
    """Grants memory while a ledger is filled and read."""

    def __call__(self, nbytes: int, *, required: bool) -> bool:
        """Tell whether further bytes may be used.

        Raises:
            CoreError: they are required, and not granted.
        """


@dataclass(eq=False)
class Ledger:
    """Sums and largest losses of a run, or of one partition of it."""

    header: StreamHeader
    """Of the summary stream."""
    calendar: Calendar
    """Periods of the events."""
    _: KW_ONLY
    budget: int = MEMORY_BUDGET
    """Bytes of memory; a half for stretches, the rest to sort them and for reports."""
    spill: SpillStore | None = None
    """Keeps what is beyond the budget; without it, that is a :class:`LimitError`."""
    more: MoreMemory | None = None
    """Asked for more memory before anything is spilled; None if there is no more."""
    shared: SharedArena | None = None
    """Holds the stretches of this ledger and of others that it will absorb."""
    originals: Originals | None = None
    """Reads blocks again, to which the ledger only refers."""
    arena: Arena = field(init=False)
    """Where the pass appends stretches."""
    used: int = field(default=0, init=False)
    """Words of stretches in the arena."""
    runs: list[Run] = field(default_factory=list, init=False)
    partitions: list[str] = field(default_factory=list, init=False)
    """Digests of the partial files that it was merged from."""
    _begin: int | None = field(default=None, init=False)
    """First word of the arena in the shared one; None if it is apart."""
    _absorbed: list[tuple[int, int]] = field(default_factory=list, init=False)
    """Further words of the shared arena: where they begin and end."""
    _events: list[npt.NDArray[np.int32]] = field(default_factory=list, init=False)
    _kept: int = field(default=0, init=False)
    """Bytes of references and of what is known of runs, which stay in memory."""

    def __post_init__(self) -> None:
        self.arena = make_arena(min(_FIRST_WORDS, self.budget // 8))

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.header.len_sample, self.header.float_width

    @property
    def memory(self) -> Arena:
        """Where all stretches are that are not in runs; the places of references count from it."""
        if self.shared is None or self._begin is None:
            return self.arena
        return self.shared.whole

    def make_room(self, state: Record) -> None:
        """Enlarge the arena, or empty it into a run, for a block of ``needed`` words.

        Raises:
            LimitError: the budget is used up, and nothing can be spilled.
        """
        s = state[0]
        needed = int(s["needed"])
        self.used = int(s["ledger_words"])
        capacity = self._capacity()
        while self.used + needed > max(capacity, len(self.arena.words)):
            if not self._extend(self.budget):
                if self.spill is None:
                    raise self._beyond(
                        f"the ledger needs more memory than its budget of {in_units(self.budget)}",
                        "Raise memory_budget, or let it spill to a disk",
                    )
                self.write_run()
                s["ledger_words"] = 0
                break
            capacity = self._capacity()
        if self.used + needed > len(self.arena.words):
            self._enlarge(max(capacity, self.used + needed))

    def _extend(self, nbytes: int, *, required: bool = False) -> bool:
        if self.more is None or not self.more(nbytes, required=required):
            return False
        self.budget += nbytes
        return True

    @property
    def free(self) -> int:
        """Bytes of the budget that nothing takes."""
        words = len(self.arena.words) + sum(end - begin for begin, end in self._absorbed)
        return self.budget - 4 * words - self._kept

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes may be taken besides, if need be of a larger budget."""
        return nbytes <= self.free or self._extend(nbytes - self.free)

    def require_room(self, nbytes: int, subject: str, advice: str = "Raise") -> None:
        """Have room for what has to be in memory.

        Args:
            nbytes: bytes besides what is taken.
            subject: needs them, for the message.
            advice: how the hint begins, if not only a larger budget helps.

        Raises:
            LimitError: the budget is too small.
            CoreError: it is as large as it may be.
        """
        missing = nbytes - self.free
        if missing > 0 and not self._extend(missing, required=True):
            held = self.budget - self.free
            beside = f" beside {in_units(held)} of what was read" if held else ""
            raise self._beyond(
                f"{subject} need {in_units(nbytes)} of memory{beside}, and the budget is"
                f" {in_units(self.budget)}",
                f"{advice} memory_budget to {(self.budget + missing >> 20) + 1} MiB or more",
            )

    def _beyond(self, message: str, hint: str | None = None) -> LimitError:
        return LimitError(message, hint=hint, limit="memory", allowed=self.budget)

    def keep(self, nbytes: int, subject: str, advice: str = "Raise") -> None:
        """Count bytes that stay in memory until the ledger is closed; see ``require_room``."""
        self.require_room(nbytes, subject, advice)
        self._kept += nbytes

    def drop(self, nbytes: int) -> None:
        """Count bytes no longer that were kept."""
        self._kept -= nbytes

    def _capacity(self) -> int:
        """Words that fit, given the references that stretches have had so far."""
        per_word = 4 + _REFERENCE_BYTES * self._count_references() / max(self._words, 1)
        return int(self.budget / 2 / per_word)

    def _enlarge(self, words: int) -> None:
        shared = self.shared
        if shared is not None and self._begin is None and words <= shared.slot_words:
            self._begin = shared.take_slot()
        if shared is not None and self._begin is not None and words <= shared.slot_words:
            arena = shared.section(self._begin, words)
        else:
            self._begin = None
            arena = make_arena(words)
        arena.words[: self.used] = self.arena.words[: self.used]
        self.arena = arena

    def take(self, state: Record) -> None:
        """Take note of the blocks that the pass has appended so far."""
        self.used = int(state["ledger_words"][0])

    @property
    def _words(self) -> int:
        """Words of stretches that are not in runs."""
        return self.used + sum(end - begin for begin, end in self._absorbed)

    def _sections(self) -> list[tuple[int, npt.NDArray[np.int32]]]:
        """Words that hold stretches, and where they begin in ``memory``."""
        places = [(begin, self.memory.words[begin:end]) for begin, end in self._absorbed]
        return [(self._begin or 0, self.arena.words[: self.used]), *places]

    def _refer(
        self, words: npt.NDArray[np.int32], stop: int, keys: Indices, places: Indices
    ) -> tuple[int, int]:
        _, ids, starts, numbers = self.calendar
        at = count = 0
        budget = current()
        while at < stop:
            budget.check("ledger")
            size = min(stop - at, SLICE)
            to = (keys[count:], places[count:])
            found, length = refer_to_blocks(
                words[at:], size, *self._sizes, ids, starts, numbers, *to
            )
            to[1][:found] += at
            count += found
            at += length
        return count, at

    def _count_references(self) -> int:
        nothing = np.zeros(0, np.int64)
        sections = self._sections()
        return sum(self._refer(words, len(words), nothing, nothing)[0] for _, words in sections)

    def events(self) -> npt.NDArray[np.int32]:
        """Ids of all events, ascending, those that never occur included."""
        return np.unique(np.concatenate([np.zeros(0, np.int32), *self._events, self._in_arena()]))

    def _in_arena(self) -> npt.NDArray[np.int32]:
        found = [np.zeros(0, np.int32)]
        for _, words in self._sections():
            count = find_events(words, len(words), *self._sizes, found[0])
            events = np.empty(count, np.int32)
            if count:
                find_events(words, len(words), *self._sizes, events)
            found.append(events)
        return np.unique(np.concatenate(found))

    def references(self) -> tuple[Indices, Indices]:
        """Keys of the stretches that are not in runs, sorted, and their places in ``memory``.

        Raises:
            LimitError: they do not fit into the budget.
            CoreError: they do not fit into what it may become.
        """
        count = self._count_references()
        self.require_room(_REFERENCE_BYTES * count, "references to the sums")
        keys, places = touched(count, "ledger"), touched(count, "ledger")
        first = 0
        for begin, words in self._sections():
            first = self._refer_to(begin, words, first, keys, places)
        sort_pairs(keys, places, "ledger")
        return keys, places

    @property
    def spills(self) -> bool:
        """Whether stretches in memory can be moved to the disk."""
        return self.spill is not None and self.originals is None and self._words > 0

    def fits_references(self) -> bool:
        """Whether references to all stretches fit into memory."""
        return self.has_room(_REFERENCE_BYTES * self._count_references())

    def _refer_to(
        self, begin: int, words: npt.NDArray[np.int32], first: int, keys: Indices, places: Indices
    ) -> int:
        """Make references to words that begin at ``begin``; return the number after the last."""
        if first == len(keys):
            return first
        count, _ = self._refer(words, len(words), keys[first:], places[first:])
        places[first : first + count] += begin
        return first + count

    # -- runs --------------------------------------------------------------------

    def write_run(self) -> None:
        """Move the arena's stretches to runs: spilled if they can be, else in memory.

        Raises:
            LimitError: they are references to blocks, which runs have none of.
        """
        if not self._words:
            return
        if self.originals is not None:
            raise self._beyond("a ledger of references has no runs")
        self._events.append(self._in_arena())
        self.keep(self._events[-1].nbytes, "events of the stream")
        octets: Spilled | None = None if self.spill is None else self.spill.create()
        samples, width = self._sizes
        end = 0
        for begin, words, count in self._pieces():
            # Each part is a run of its own, in the same place on the disk.
            writer = RunWriter(samples, width, octets, end if octets is not None else 0)
            keys, places = touched(count, "ledger"), touched(count, "ledger")
            self._refer_to(begin, words, 0, keys, places)
            sort_pairs(keys, places, "ledger")
            writer.write(keys, places, self.memory)
            run = writer.finish()
            end = run.end
            self.add_run(run)
        self.used = 0
        self._absorbed = []

    def _pieces(self) -> Iterator[tuple[int, npt.NDArray[np.int32], int]]:
        """Yield where stretches begin, their words and references, as many as fit into memory.

        A block of few bytes has a reference for each occurrence of its event.
        """
        nothing = np.zeros(0, np.int64)
        for begin, words in self._sections():
            at = 0
            while at < len(words):
                current().check("ledger")
                stop = len(words) - at
                room = max(self.free, _LEAST_ROOM)
                while True:
                    count, length = self._refer(words[at:], stop, nothing, nothing)
                    if count * _REFERENCE_BYTES <= room or stop == 1:
                        break
                    stop = max(min(stop * room // (count * _REFERENCE_BYTES), stop // 2), 1)
                if count * _REFERENCE_BYTES > room:
                    self.require_room(_REFERENCE_BYTES * count, "references to a block")
                yield begin + at, words[at : at + length], count
                at += length

    def clear(self) -> None:
        """Move all stretches to runs, and give the memory of the arena back."""
        self.write_run()
        self.arena = make_arena(0)
        self._begin = None

    def add_run(self, run: Run, events: npt.NDArray[np.int32] | None = None) -> None:
        """Add sums of the same run, and the ids of their events.

        Raises:
            LimitError: what has to be known of it does not fit into the budget.
            CoreError: it does not fit into what the budget may become.
        """
        nbytes = run.summaries.nbytes + run.starts.nbytes
        if events is not None:
            nbytes += events.nbytes
            self._events.append(events)
        if len(run.summaries):
            self.keep(nbytes, "the summaries of the run")
            self.runs.append(run)

    def absorb(self, others: Sequence[Ledger]) -> None:
        """Take over the sums of other partitions, which must not be used any more.

        Raises:
            MismatchError: they are of another sample count, summary set or calendar.
        """
        for other in others:
            if other.header != self.header or other.calendar.digest() != self.calendar.digest():
                raise MismatchError(
                    f"it is of a {other.header.describe()}, and the first of a"
                    f" {self.header.describe()}, or of other occurrences"
                )
        self.budget = sum(ledger.budget for ledger in (self, *others))
        words = sum(ledger.used for ledger in (self, *others))
        if words <= len(self.arena.words) or words <= self._capacity():
            self._take_stretches(others, words)
        for other in others:
            other.write_run()
            self.runs += other.runs
            self._events += other._events  # noqa: SLF001 - of the same class
            self.partitions += other.partitions
            self._kept += other._kept  # noqa: SLF001 - as above
            other.close(keep_runs=True)

    def _take_stretches(self, others: Sequence[Ledger], words: int) -> None:
        """Leave stretches where they are in the shared arena, and copy those that are apart."""
        in_slots = [other for other in others if other._begin is not None]  # noqa: SLF001
        if in_slots and self._begin is None:
            self._enlarge(self.used)
        for other in others:
            if self._begin is not None and other._begin is not None:  # noqa: SLF001
                self._absorbed.append((other._begin, other._begin + other.used))  # noqa: SLF001
                other.used = 0
        total = self.used + sum(other.used for other in others)
        if total > len(self.arena.words):
            if self._absorbed and self.shared is not None and total > self.shared.slot_words:
                # Those that are apart become runs: this ledger must not leave its slot.
                return
            self._enlarge(words if not self._absorbed else total)
        for other in others:
            end = self.used + other.used
            self.arena.words[self.used : end] = other.arena.words[: other.used]
            self.used = end
            other.used = 0

    def close(self, *, keep_runs: bool = False) -> None:
        """Give memory and spilled runs back."""
        self.arena = make_arena(0)
        self.used = 0
        self._begin = None
        self._absorbed = []
        if not keep_runs:
            for run in self.runs:
                run.octets.close()
        self.runs = []
        self._events = []
        self._kept = 0
