"""Partitions or sections of the item streams of a run, each with a summariser.

Sections are added up side by side. An event is whole within a section, and so are its summaries.
Each section goes to a summariser that is free at the moment, of which there is one for every
thread; what it writes waits until that of the sections before has been handed on. So the streams
and indices are those of one pass, byte by byte. What is checked across cuts, and why the caller
runs one pass where anything is wrong, :mod:`~core.losses.sections` tells.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...arrays import Octets, Rows
from .._kernels.summary_blocks import Written
from ..events import StreamEnd, StreamHeader
from ..finishing import ParallelMap
from ..format import SUMMARY_HEADER_SIZE
from ..header import CommonHeader
from ..policy import Policy
from ..sections import Section, SectionEnd, SectionLoop, SectionReceiver, Taken
from ..seen import SeenEvents
from .sets import SummarySets
from .summariser import (
    MAX_EVENT_BYTES,
    IndexSink,
    SetStreams,
    StreamSink,
    Summariser,
    clear_written,
    grow_written,
    make_sums,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How item streams are read."""

    policy: Policy = field(default_factory=Policy)
    zeros: bool = False
    """Whether losses of zero are written."""
    expect_events: int | None = None
    """Number of events a single stream is declared to have."""
    expect_bytes: int | None = None
    """Number of bytes a single stream is declared to have."""
    max_event_bytes: int = MAX_EVENT_BYTES
    """Largest memory for the sums of one event of a partition."""


class ItemPartitions(ABC):
    """Reads item streams, fed in any interleaving, into streams of summaries of each.

    What partitions share is the check that no event is in two of them, and their header.

    Args:
        names: what errors call each partition.
        sets: the requested sets.
        reading: how the streams are read.
        indexed: whether to take their indices, too.
    """

    def __init__(
        self, names: Sequence[str], sets: SummarySets, reading: Reading, *, indexed: bool = False
    ) -> None:
        self._header = CommonHeader(names)
        self._ends: list[StreamEnd | None] = [None for _ in names]
        seen = SeenEvents()
        # Were it a reference, the cycle would keep megabytes alive until garbage is collected.
        own, cls = weakref.proxy(self), type(self)
        self.summarisers = [
            Summariser(
                sets,
                partial(cls._pass_on, own, part),
                policy=reading.policy,
                zeros=reading.zeros,
                name=name,
                seen=seen,
                index=partial(cls._take_index, own, part) if indexed else None,
                expect_events=reading.expect_events,
                expect_bytes=reading.expect_bytes,
                max_event_bytes=reading.max_event_bytes,
            )
            for part, name in enumerate(names)
        ]

    @property
    def ends(self) -> list[StreamEnd]:
        """How each stream ended, once all were closed."""
        return [end for end in self._ends if end is not None]

    @property
    def closed(self) -> frozenset[int]:
        """The partitions that have ended."""
        return frozenset(i for i, end in enumerate(self._ends) if end is not None)

    def slowest(self) -> int | None:
        """The open partition that stands at the lowest event; None if all are closed."""
        stands = [
            (summariser.open_event, part)
            for part, summariser in enumerate(self.summarisers)
            if self._ends[part] is None
        ]
        return min(stands)[1] if stands else None

    def receive(self, part: int, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Take the next bytes of a partition.

        Raises:
            MismatchError: it is of another kind or sample count than the others.
            CoreError: as :meth:`Summariser.receive`.
        """
        self.summarisers[part].receive(data)

    def close(self, part: int) -> None:
        """A partition has ended.

        Raises:
            CoreError: as :meth:`Summariser.close`.
        """
        self._ends[part] = self.summarisers[part].close()

    def _pass_on(self, part: int, set_id: int, octets: Octets) -> None:
        self._header.compare(part, self.summarisers[part].header)
        self._take(part, set_id, octets)

    @abstractmethod
    def _take(self, part: int, set_id: int, octets: Octets) -> None:
        """Take the next bytes of the stream of a set, headers by themselves."""

    def _take_index(  # noqa: B027 - of no use where there is no index
        self, part: int, set_id: int, rows: Rows
    ) -> None:
        """Take rows of an index, before the blocks that they are about."""


class JoinedSummaries(ItemPartitions):
    """Writes one stream for each set, with the events of all partitions as they come.

    Args:
        names: what errors call each partition.
        sets: the requested sets.
        sink: receives the streams, headers first.
        reading: how the item streams are read.
        index: receives where in the joined stream each block begins.
    """

    def __init__(
        self,
        names: Sequence[str],
        sets: SummarySets,
        sink: StreamSink,
        reading: Reading,
        index: IndexSink | None = None,
    ) -> None:
        super().__init__(names, sets, reading, indexed=index is not None)
        self._joined_sink = sink
        self._joined_index = index
        numbers = {set_id: number for number, set_id in enumerate(sets.set_ids)}
        self._numbers = numbers
        self._sizes = np.zeros((len(names), len(numbers)), np.int64)
        self._written = np.zeros(len(numbers), np.int64)

    def _take(self, part: int, set_id: int, octets: Octets) -> None:
        number = self._numbers[set_id]
        is_header = self._sizes[part, number] < SUMMARY_HEADER_SIZE
        self._sizes[part, number] += len(octets)
        if is_header and self._written[number]:
            return
        self._written[number] += len(octets)
        self._joined_sink(set_id, octets)

    def _take_index(self, part: int, set_id: int, rows: Rows) -> None:
        if self._joined_index is not None:
            number = self._numbers[set_id]
            moved = rows.copy()
            moved["offset"] += self._written[number] - self._sizes[part, number]
            self._joined_index(set_id, moved)


SummarisedSection = Taken[Written]
"""A section, and the blocks that it adds to the stream of each set; they go to
:meth:`SectionSummariser.reuse` once they have been handed on."""


class SectionSummariser(SectionReceiver, Summariser):
    """Writes the summaries of some sections, without headers.

    Those of a section stay together, where they were written: copies for each piece of the
    stream would cost as much as writing them to a file. The memory of a section that has been
    handed on serves for another.
    """

    def __init__(self, sets: SummarySets, reading: Reading, seen: SeenEvents) -> None:
        super().__init__(
            sets,
            lambda _set_id, _octets: None,
            policy=reading.policy,
            zeros=reading.zeros,
            seen=seen,
            max_event_bytes=reading.max_event_bytes,
        )
        self._spare: list[Written] = []

    def summarise(self, section: Section) -> tuple[SectionEnd, Written]:
        """Take a section; return its end, and what it adds.

        Raises:
            CoreError: as :meth:`take`.
        """
        return self.take(section), self._written

    def reuse(self, written: Written) -> None:
        """Take back the memory of a section, which nobody reads any more."""
        clear_written(written)
        self._spare.append(written)

    def _enter(self, section: Section) -> None:
        super()._enter(section)
        try:
            self._written = self._spare.pop()
        except IndexError:
            self._make_written(0)

    def _begin(self, header: StreamHeader) -> None:
        self._check_kind(header)
        self._sums = make_sums(self._sets, header.len_sample)

    def _flush(self) -> None:
        # Nothing before the end of the section.
        pass

    def _make_space(self, needed: int) -> None:
        self._written = grow_written(self._written, needed)

    def _end_section(self) -> None:
        self._close_event()


class SectionedSummaries:
    """Summarises the sections of item streams side by side.

    Args:
        sets: the requested sets.
        sink: receives the streams, headers first.
        reading: how the item streams are read; numbers of events and bytes that they are
            declared to have are the caller's to compare.
        index: receives where in the streams each block begins.
        count: most sections to summarise at a time.
        map: calls a function for each section in that many threads.
    """

    def __init__(  # noqa: PLR0913 - as JoinedSummaries
        self,
        sets: SummarySets,
        sink: StreamSink,
        reading: Reading,
        index: IndexSink,
        *,
        count: int,
        map: ParallelMap[Section, SummarisedSection],  # noqa: A002 - as in SectionedRun
    ) -> None:
        self._streams = SetStreams(sets.set_ids, sink, index)
        self._loop = SectionLoop(lambda _, seen: SectionSummariser(sets, reading, seen), count, map)

    def run(
        self, sections: Iterable[Section], observe: Callable[[SectionEnd], None]
    ) -> list[StreamEnd]:
        """Summarise all sections; return how each stream ended.

        Args:
            sections: of all streams, in order.
            observe: called after the summaries of each section.

        Raises:
            CoreError: something is wrong, not necessarily what is wrong first.
        """
        return self._loop.run(self._summarise, self._hand_on, sections, observe)

    def _summarise(self, index: int, section: Section) -> tuple[SectionEnd, Written]:
        return self._loop.receivers[index].summarise(section)

    def _hand_on(self, index: int, written: Written) -> None:
        summariser = self._loop.receivers[index]
        if not self._streams.begun:
            self._streams.begin(summariser.set_header)
        self._streams.add(written)
        summariser.reuse(written)
