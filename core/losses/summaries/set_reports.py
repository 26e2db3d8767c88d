"""Reports of every summary set, in one pass over the item streams of a run.

Each partition has a :class:`Summariser`. The streams it writes stay in memory: those of one
set, from all partitions, go through a :class:`Partitions` of that set, which knows nothing of
items and merges rows and ledgers as if it had read the peer's summary files::

    partition 1 --> Summariser --+--> Partitions of set 1 --> sink(1, report, rows)
                                 |
    partition 2 --> Summariser --+--> Partitions of set 2 --> sink(2, report, rows)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...arrays import Octets, Rows
from ..analysis import Analysis
from ..events import StreamEnd, StreamHeader
from ..header import check_same_header
from ..merge import READ_AHEAD, Order, Partitions
from ..outputs import Sink
from ..policy import Policy
from ..seen import SeenEvents
from .sets import SummarySets
from .summariser import MAX_EVENT_BYTES, Summariser

SetSink = Callable[[int, str, Rows], None]
"""Takes (set id, report name, rows of it); the rows are valid only during the call."""
MakeAnalysis = Callable[[int, str, Sink, SeenEvents, Policy], Analysis]
"""Builds the analysis of a set in a partition: from set id, name, sink, shared check, policy."""


def set_policy(policy: Policy) -> Policy:
    """The policy for streams of summaries that were written from a stream read with this one.

    They have ordered samples, ends of blocks, and losses that are finite.
    """
    return replace(policy, nan="error", sample_order="ascending", missing_end="error")


class SetReports:
    """Reports of summary sets from partitions of item streams, fed in any interleaving.

    Used as :class:`Partitions`, with a set for each row.

    Args:
        names: what errors call each partition.
        sets: the requested sets.
        make: builds the analyses; see :data:`MakeAnalysis`.
        sink: receives the rows of all sets; see :data:`SetSink`.
        policy: what to accept of the item streams.
        order: ``received`` hands rows on as they arise, ``event`` by event id.
        read_ahead: bytes of rows that may wait in event order, of each set.
        expect_events: number of events a single stream is declared to have.
        expect_bytes: number of bytes a single stream is declared to have.
        max_event_bytes: largest memory for the sums of one event of a partition.
    """

    def __init__(  # noqa: PLR0913 - all optional, each documented
        self,
        names: Sequence[str],
        sets: SummarySets,
        make: MakeAnalysis,
        sink: SetSink,
        *,
        policy: Policy | None = None,
        order: Order = "received",
        read_ahead: int = READ_AHEAD,
        expect_events: int | None = None,
        expect_bytes: int | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        policy = policy or Policy()
        if order == "event":
            policy = replace(policy, event_order="ascending")
        within = set_policy(policy)

        def make_partitions(set_id: int) -> Partitions:
            def analyse(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
                return make(set_id, name, sink, seen, within)

            rows_sink = partial(sink, set_id)
            return Partitions(names, analyse, rows_sink, order=order, read_ahead=read_ahead)

        self.partitions = {set_id: make_partitions(set_id) for set_id in sets.set_ids}
        """The reports of each set, by its id."""
        seen = SeenEvents()
        self.summarisers = [
            Summariser(
                sets,
                partial(self._pass_on, index),
                policy=policy,
                name=name,
                seen=seen,
                expect_events=expect_events,
                expect_bytes=expect_bytes,
                max_event_bytes=max_event_bytes,
            )
            for index, name in enumerate(names)
        ]
        """What reads each partition."""
        self._names = list(names)
        self._compared = [False for _ in names]
        self._first: tuple[str, StreamHeader] | None = None
        self._ends: list[StreamEnd | None] = [None for _ in names]

    @property
    def ends(self) -> list[StreamEnd]:
        """How each item stream ended, once all were closed."""
        return [end for end in self._ends if end is not None]

    @property
    def set_ends(self) -> dict[int, list[StreamEnd]]:
        """How the streams of each set ended, by set id: one for each partition."""
        return {set_id: partitions.ends for set_id, partitions in self.partitions.items()}

    @property
    def closed(self) -> frozenset[int]:
        """The partitions that have ended."""
        return frozenset(i for i, end in enumerate(self._ends) if end is not None)

    def slowest(self) -> int | None:
        """The open partition that stands at the lowest event; None if all are closed."""
        stands = [
            (summariser.open_event, index)
            for index, summariser in enumerate(self.summarisers)
            if self._ends[index] is None
        ]
        return min(stands)[1] if stands else None

    def receive(self, index: int, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Take the next bytes of a partition.

        Raises:
            MismatchError: it is of another kind or sample count than the others.
            StarvedError: too many rows wait for the slowest partition, which this is not.
            CoreError: as :meth:`Summariser.receive` and :meth:`Analysis.receive`.
        """
        self.summarisers[index].receive(data)

    def close(self, index: int) -> None:
        """A partition has ended; after the last, reports of whole runs go to the sink.

        Raises:
            CoreError: as :meth:`Summariser.close` and :meth:`Analysis.close`.
        """
        self._ends[index] = self.summarisers[index].close()
        for partitions in self.partitions.values():
            partitions.close(index)

    def _compare(self, name: str, header: StreamHeader | None) -> None:
        assert header is not None  # noqa: S101 - it has been passed on
        if self._first is None:
            self._first = (name, header)
        first_name, first = self._first
        check_same_header(header, name, first, first_name)

    def _pass_on(self, index: int, set_id: int, octets: Octets) -> None:
        if not self._compared[index]:
            self._compare(self._names[index], self.summarisers[index].header)
            self._compared[index] = True
        self.partitions[set_id].receive(index, octets)
