"""Partitions of the item streams of a run, each with a summariser."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...arrays import Octets, Rows
from ..events import StreamEnd, StreamHeader
from ..format import SUMMARY_HEADER_SIZE
from ..header import check_same_header
from ..policy import Policy
from ..seen import SeenEvents
from .sets import SummarySets
from .summariser import MAX_EVENT_BYTES, IndexSink, StreamSink, Summariser


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
        self,
        names: Sequence[str],
        sets: SummarySets,
        reading: Reading,
        *,
        indexed: bool = False,
    ) -> None:
        self._names = list(names)
        self._first: tuple[str, StreamHeader] | None = None
        self._compared = [False for _ in names]
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
        if not self._compared[part]:
            name, header = self._names[part], self.summarisers[part].header
            assert header is not None  # noqa: S101 - it is passed on
            self._first = self._first or (name, header)
            first_name, first = self._first
            check_same_header(header, name, first, first_name)
            self._compared[part] = True
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
        self._taken = np.zeros((len(names), len(numbers)), np.int64)
        self._written = np.zeros(len(numbers), np.int64)

    def _take(self, part: int, set_id: int, octets: Octets) -> None:
        number = self._numbers[set_id]
        is_header = self._taken[part, number] < SUMMARY_HEADER_SIZE
        self._taken[part, number] += len(octets)
        if is_header and self._written[number]:
            return
        self._written[number] += len(octets)
        self._joined_sink(set_id, octets)

    def _take_index(self, part: int, set_id: int, rows: Rows) -> None:
        if self._joined_index is not None:
            number = self._numbers[set_id]
            moved = rows.copy()
            moved["offset"] += self._written[number] - self._taken[part, number]
            self._joined_index(set_id, moved)
