"""A stream in sections, analysed side by side with the results of one pass.

A stream has no index, and where a block begins is known only from the one before it. But a run
of zeros gives the end of a block away (:func:`find_boundary`), so that a stream can be cut
between two events without reading it::

    file      |header|  event 1  |  event 2  | event 3 |  event 4  |   event 5   |
    sections          [------- 0 -----------)[-------- 1 ---------)[----- 2 -----)
    analyses                A                        B                   A

Each section goes to an :class:`Analysis` that is free at the moment; there is one for every
thread. Rows wait until those of the sections before have been handed on, so they come in the
order of one pass. Sums of whole runs do not depend on order: each analysis has a ledger of its
own, and they are merged at the end.

A cut is a guess until the section before it has ended exactly there, between two blocks. What
one pass would notice across a cut is checked afterwards: events that come again, by comparing
the analyses' sets of events, and whether event ids ascend. If anything is wrong, in a section
or between two, the whole run fails with what was noticed first. That need not be the fault that
comes first in the stream, so the caller runs one pass instead, which reports it as ever.

The caller has threads and files; this module has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Generic, TypeVar

import numpy as np

from ..arrays import Octets, Rows
from ..errors import LimitError, StreamError
from ._kernels.indexing import find_event
from .analysis import Analysis
from .events import Position, StreamEnd, StreamHeader
from .finishing import ParallelMap, Sink
from .header import check_same_header
from .receiver import StreamReceiver
from .seen import SeenEvents

K = TypeVar("K")
W = TypeVar("W", bound="SectionReceiver")

MAX_ROW_BYTES = 256 << 20
"""Most bytes of rows of one section that may wait."""

_ROW_BLOCK = 1 << 18
"""Bytes of memory for rows that are allocated at a time."""
_ALIGNMENT = 64

_COUNTERS = ("events", "blocks", "pairs", "unplaced", "unexposed")


@dataclass(frozen=True, slots=True)
class Section:
    """Whole events of a stream, one after another."""

    stream: int
    """Index of the stream; sections are in order of streams."""
    header: StreamHeader
    begin: int
    """Byte offset of its first block."""
    pieces: Callable[[], Iterable[Any]]
    """Reads its bytes, in pieces that are valid until the next."""


@dataclass(frozen=True, slots=True)
class SectionEnd:
    """How a section ended, as a part of its stream."""

    stream: int
    first_event: int
    """Id of its first event, 0 if it has none."""
    last_event: int
    end: StreamEnd
    """Counted from the beginning of the section."""


class WaitingRows:
    """Copies of a section's rows, in memory that serves one section after another.

    The pages of new memory would cost more than the copies.

    Args:
        allow: called with the bytes of memory that are about to be allocated; raises to refuse.
    """

    def __init__(self, allow: Callable[[int], None] = lambda _nbytes: None) -> None:
        self._allow = allow
        self.listed: list[tuple[str, Rows]] = []
        """The name of a report, and rows of it."""
        self.nbytes = 0
        """Bytes of all."""
        self.room = 0
        """Bytes of the memory."""
        self._blocks: list[Octets] = []
        self._block = 0
        self._filled = 0

    def add(self, report: str, rows: Rows) -> None:
        """Copy some rows."""
        copy = self._room(rows.nbytes).view(rows.dtype)
        copy[:] = rows
        self.listed.append((report, copy))
        self.nbytes += rows.nbytes

    def clear(self) -> None:
        """Forget the rows, which nobody reads any more."""
        self.listed.clear()
        self.nbytes = self._block = self._filled = 0

    def _room(self, size: int) -> Octets:
        while self._block < len(self._blocks):
            block = self._blocks[self._block]
            begin = self._filled
            if begin + size <= len(block):
                self._filled = -(-(begin + size) // _ALIGNMENT) * _ALIGNMENT
                return block[begin : begin + size]
            self._block += 1
            self._filled = 0
        nbytes = max(size, _ROW_BLOCK)
        self._allow(nbytes)
        self.room += nbytes
        self._blocks.append(np.empty(nbytes, np.uint8))
        return self._room(size)


Taken = tuple[SectionEnd, int, K]
"""The end of a section that a receiver has taken, the index of the receiver, and what came of it,
which waits for that of the sections before."""
SectionResult = Taken[WaitingRows]
"""A section that was analysed, and its rows."""


def find_boundary(octets: Octets, float_width: int) -> int | None:
    """Byte of a block that begins an event, in bytes from anywhere in a stream.

    Args:
        octets: 4-aligned in the stream and in memory.
        float_width: bytes of a loss.

    Returns:
        Index of its first byte; None if there is none that can be told.
    """
    words = octets[: len(octets) & ~3].view(np.int32)[:]
    words.flags.writeable = False
    at = int(find_event(words, 1 + float_width // 4))
    return None if at < 0 else 4 * at


class SectionReceiver(StreamReceiver):
    """Takes some sections of streams that have the same header."""

    def take(self, section: Section) -> SectionEnd:
        """Take a section, all events of which are complete.

        Raises:
            CoreError: as :meth:`receive` and :meth:`close`.
        """
        self._enter(section)
        state = self._scanner.state
        before = [int(state[name][0]) for name in _COUNTERS]
        first = 0
        for piece in section.pieces():
            first = first or int.from_bytes(memoryview(piece).cast("B")[:4], "little")
            self.receive(piece)
        end = self._scanner.finish(self._intake.rest)
        self._end_section()
        counts = zip(_COUNTERS, before, strict=True)
        events, blocks, pairs, unplaced, bare = (int(state[name][0]) - was for name, was in counts)
        end = replace(end, events=events, blocks=blocks, pairs=pairs, reopened_check="whole")
        end = replace(end, blocks_without_exposure=bare)
        if self._counts_unplaced:
            end = replace(end, events_without_occurrence=unplaced)
        return SectionEnd(section.stream, first, int(state["last_event"][0]), end)

    def _enter(self, section: Section) -> None:
        scanner = self._scanner
        if scanner.header is None:
            scanner.resume(Position(section.header))
            self._begin(section.header)
        else:
            check_same_header(section.header, "a section", scanner.header, "the first")
        scanner.offset = section.begin
        scanner.rules["stream"] = section.stream
        scanner.state["last_event"] = scanner.state["closed_event"] = 0
        scanner.state["ascending"] = 1

    def _end_section(self) -> None:
        """Complete the last event of a section."""
        raise NotImplementedError

    @property
    def must_ascend(self) -> bool:
        """Whether event ids must ascend."""
        return self._scanner.policy.event_order == "ascending"

    @property
    def _counts_unplaced(self) -> bool:
        """Whether events without occurrence are counted."""
        return False


class SectionAnalysis(SectionReceiver, Analysis):
    """One pass over some sections of streams that have the same header."""

    def _end_section(self) -> None:
        self.close_event()
        self._outputs.ledger.take(self._scanner.state)

    @property
    def _counts_unplaced(self) -> bool:
        return self._inputs.occurrence is not None


class SectionLoop(Generic[W, K]):
    """Gives each section to a receiver that is free, and hands results on in order.

    Args:
        make: builds a receiver from its index and the events that it meets.
        count: number of receivers.
        map: calls a function for each section in that many threads.
    """

    def __init__(
        self,
        make: Callable[[int, SeenEvents], W],
        count: int,
        map: ParallelMap[Section, Taken[K]],  # noqa: A002 - as in LedgerResources
    ) -> None:
        self._seen = [SeenEvents() for _ in range(count)]
        self.receivers = [make(index, events) for index, events in enumerate(self._seen)]
        """One for each thread."""
        self._map = map
        self._free = list(range(count))

    @property
    def used(self) -> list[W]:
        """The receivers that have taken a section."""
        return [receiver for receiver in self.receivers if receiver.header is not None]

    def run(
        self,
        take: Callable[[int, Section], tuple[SectionEnd, K]],
        hand_on: Callable[[int, K], None],
        sections: Iterable[Section],
        observe: Callable[[SectionEnd], None],
    ) -> list[StreamEnd]:
        """Take all sections; return how each stream ended.

        Args:
            take: has the receiver of an index take a section; returns its end, and what came of it.
            hand_on: takes that and the index of the receiver, in the order of the sections.
            sections: of all streams, in order.
            observe: called with the end of each section after it has been handed on.

        Raises:
            CoreError: something is wrong, not necessarily what is wrong first.
        """

        def take_next(section: Section) -> Taken[K]:
            # Taking from a list and appending to it are atomic.
            index = self._free.pop()
            end, kept = take(index, section)
            self._free.append(index)
            return end, index, kept

        streams: list[StreamEnd] = []
        before: SectionEnd | None = None
        for end, receiver, kept in self._map(take_next, sections):
            hand_on(receiver, kept)
            if before is None or before.stream != end.stream:
                streams.append(end.end)
            else:
                streams[-1] = _joined(streams[-1], before, end)
            if self.receivers[0].must_ascend and not streams[-1].ascending:
                raise StreamError("an event id is below the one before")
            before = end
            observe(end)
        self._check_together()
        return streams

    def _check_together(self) -> None:
        """Check that no event was met by two receivers, and that all have met one header."""
        for events, other in combinations(self._seen, 2):
            if events.overlaps(other):
                raise StreamError("an event begins again")
        headers = (receiver.header for receiver in self.receivers)
        first, *others = [header for header in headers if header is not None]
        for header in others:
            check_same_header(header, "a section", first, "the first")


Make = Callable[[Sink, SeenEvents], SectionAnalysis]
"""Builds the analysis of a thread."""


class SectionedRun:
    """Analyses the sections of streams side by side.

    Args:
        make: builds an analysis.
        count: most sections to analyse at a time.
        map: calls a function for each section in that many threads.
        sink: receives the rows of all, in the order of the streams.
        most: bytes of memory for the rows of all sections that wait; None for no bound but that
            of each section.
    """

    def __init__(
        self,
        make: Make,
        count: int,
        map: ParallelMap[Section, SectionResult],  # noqa: A002 - as in LedgerResources
        sink: Sink,
        most: int | None = None,
    ) -> None:
        self._sink = sink
        self._most = most
        self._rows = [WaitingRows(self._allow) for _ in range(count)]
        self._all_rows = [*self._rows]
        self._spare: list[WaitingRows] = []
        self._loop = SectionLoop(
            lambda index, seen: make(partial(self._collect, index), seen), count, map
        )
        self._analyses = self._loop.receivers
        for analysis in self._analyses:
            # Rows that follow from one, such as those of its periods, need not wait too.
            analysis.leave_unexpanded()

    def _collect(self, index: int, report: str, more: Rows) -> None:
        rows = self._rows[index]
        if rows.nbytes + more.nbytes > MAX_ROW_BYTES:
            raise LimitError(
                f"a section has more than {MAX_ROW_BYTES} bytes of rows",
                limit="section",
                allowed=MAX_ROW_BYTES,
            )
        rows.add(report, more)

    def _allow(self, nbytes: int) -> None:
        """Check that the rows of all sections may have more memory."""
        if self._most is None:
            return
        if sum(rows.room for rows in self._all_rows) + nbytes > self._most:
            raise LimitError(
                f"the rows of sections need more than {self._most} bytes",
                limit="sections",
                allowed=self._most,
            )

    def run(
        self, sections: Iterable[Section], observe: Callable[[SectionEnd], None]
    ) -> list[StreamEnd]:
        """Analyse all sections and hand on their rows; return how each stream ended.

        Args:
            sections: of all streams, in order.
            observe: called after the rows of each section.

        Raises:
            CoreError: something is wrong, not necessarily what is wrong first.
        """
        ends = self._loop.run(self._analyse, self._hand_on, sections, observe)
        first, *others = self._loop.used
        first.finish_run(self._sink, others)
        return ends

    def _hand_on(self, index: int, waiting: WaitingRows) -> None:
        for report, rows in waiting.listed:
            for piece in self._analyses[index].expand(report, rows):
                self._sink(report, piece)
        waiting.clear()
        self._spare.append(waiting)

    def _analyse(self, index: int, section: Section) -> tuple[SectionEnd, WaitingRows]:
        end = self._analyses[index].take(section)
        rows = self._rows[index]
        try:
            self._rows[index] = self._spare.pop()
        except IndexError:
            self._rows[index] = WaitingRows(self._allow)
            self._all_rows.append(self._rows[index])
        return end, rows


def _joined(end: StreamEnd, before: SectionEnd, result: SectionEnd) -> StreamEnd:
    """The end of the sections of a stream up to one, and of the next."""
    more = result.end
    unplaced = end.events_without_occurrence
    if unplaced is not None and more.events_without_occurrence is not None:
        unplaced += more.events_without_occurrence
    return replace(
        more,
        events=end.events + more.events,
        blocks=end.blocks + more.blocks,
        pairs=end.pairs + more.pairs,
        ascending=end.ascending and more.ascending and before.last_event < result.first_event,
        events_without_occurrence=unplaced,
        blocks_without_exposure=end.blocks_without_exposure + more.blocks_without_exposure,
    )
