"""Streams of summaries from sections of item streams, added up side by side.

An event is whole within a section, and so are its summaries. Each section goes to a summariser
that is free at the moment, of which there is one for every thread; what it writes waits until
that of the sections before has been handed on. So the streams and indices are those of one
pass, byte by byte. What is checked across cuts, and why the caller runs one pass where anything
is wrong, :mod:`~core.losses.sections` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ...arrays import Octets, Rows
from ..buffer import as_octets
from ..events import StreamEnd
from ..header import check_same_header, header_bytes
from ..sections import (
    ParallelMap,
    Section,
    SectionEnd,
    SectionEnds,
    SectionReceiver,
    check_apart,
)
from ..seen import SeenEvents
from .item_partitions import Reading
from .sets import SummarySets
from .summariser import IndexSink, StreamSink, Summariser


@dataclass(frozen=True, slots=True)
class SummarisedSection(SectionEnd):
    """What a section adds to the stream and the index of each set, in any order of sets."""

    summariser: int
    """Index of the summariser that it went to."""
    streams: list[tuple[int, Octets]]
    """Set id, and the next bytes."""
    indices: list[tuple[int, Rows]]
    """Set id, and rows with offsets in what the section adds."""


class SectionSummariser(SectionReceiver, Summariser):
    """Writes the summaries of some sections, without headers."""

    def __init__(self, sets: SummarySets, reading: Reading, seen: SeenEvents) -> None:
        self.streams: list[tuple[int, Octets]] = []
        self.indices: list[tuple[int, Rows]] = []
        super().__init__(
            sets,
            lambda set_id, octets: self.streams.append((set_id, octets.copy())),
            policy=reading.policy,
            zeros=reading.zeros,
            seen=seen,
            index=lambda set_id, rows: self.indices.append((set_id, rows)),
            max_event_bytes=reading.max_event_bytes,
        )

    def summarise(self, section: Section, index: int) -> SummarisedSection:
        """Take a section; return what it adds.

        Args:
            section: the section.
            index: of this summariser.

        Raises:
            CoreError: as :meth:`take`.
        """
        self._offsets = [0 for _ in self._sets.set_ids]
        end = self.take(section)
        streams, self.streams = self.streams, []
        indices, self.indices = self.indices, []
        return SummarisedSection(
            end.stream, end.first_event, end.last_event, end.end, index, streams, indices
        )

    def _begin(self) -> None:
        header = self.header
        assert header is not None  # noqa: S101 - called only after the header
        self._check_kind(header)
        self._make_room()

    def _end_section(self) -> None:
        self._close_event()
        self._flush()


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
        map: ParallelMap[SummarisedSection],  # noqa: A002 - as in SectionedRun
    ) -> None:
        self._map = map
        self._sink = sink
        self._index = index
        self._seen = [SeenEvents() for _ in range(count)]
        self._summarisers = [SectionSummariser(sets, reading, seen) for seen in self._seen]
        self._free = list(range(count))
        self._written = dict.fromkeys(sets.set_ids, 0)

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
        ends = SectionEnds(must_ascend=self._summarisers[0].must_ascend)
        for result in self._map(self._summarise, sections):
            if not ends.streams:
                self._write_headers(self._summarisers[result.summariser])
            self._hand_on(result)
            ends.add(result)
            observe(result)
        check_apart(self._seen)
        first, *others = [x.header for x in self._summarisers if x.header is not None]
        for header in others:
            check_same_header(header, "a section", first, "the first")
        return ends.streams

    def _summarise(self, section: Section) -> SummarisedSection:
        # Taking from a list and appending to it are atomic.
        index = self._free.pop()
        result = self._summarisers[index].summarise(section, index)
        self._free.append(index)
        return result

    def _write_headers(self, summariser: SectionSummariser) -> None:
        for set_id in self._written:
            self._write(set_id, as_octets(header_bytes(summariser.set_header(set_id))))

    def _write(self, set_id: int, octets: Octets) -> None:
        self._written[set_id] += len(octets)
        self._sink(set_id, octets)

    def _hand_on(self, result: SummarisedSection) -> None:
        for set_id, rows in result.indices:
            rows["offset"] += np.int64(self._written[set_id])
            self._index(set_id, rows)
        for set_id, octets in result.streams:
            self._write(set_id, octets)
