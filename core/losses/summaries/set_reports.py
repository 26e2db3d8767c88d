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

from ...arrays import Octets, Rows
from ..analysis import Analysis
from ..events import Position, StreamEnd
from ..format import SUMMARY_HEADER_SIZE
from ..merge import READ_AHEAD, Order, Partitions
from ..outputs import Sink
from ..policy import Policy
from ..seen import SeenEvents
from .item_partitions import ItemPartitions, Reading
from .sets import SummarySets

SetSink = Callable[[int, str, Rows], None]
"""Takes (set id, report name, rows of it); the rows are valid only during the call."""
MakeAnalysis = Callable[[int, str, Sink, SeenEvents, Policy], Analysis]
"""Builds the analysis of a set in a partition: from set id, name, sink, shared check, policy."""


def set_policy(policy: Policy) -> Policy:
    """The policy for streams of summaries that were written from a stream read with this one.

    They have ordered samples, ends of blocks, and losses that are finite.
    """
    return replace(policy, nan="error", sample_order="ascending", missing_end="error")


class SetReports(ItemPartitions):
    """Reports of summary sets from partitions of item streams, fed in any interleaving.

    Used as :class:`Partitions`.

    Args:
        names: what errors call each partition.
        sets: the requested sets.
        make: builds the analyses; see :data:`MakeAnalysis`.
        sink: receives the rows of all sets; see :data:`SetSink`.
        reading: how the item streams are read.
        order: ``received`` hands rows on as they arise, ``event`` by event id.
        read_ahead: bytes of rows that may wait in event order, of each set.
    """

    def __init__(  # noqa: PLR0913 - what it is put together from
        self,
        names: Sequence[str],
        sets: SummarySets,
        make: MakeAnalysis,
        sink: SetSink,
        reading: Reading | None = None,
        *,
        order: Order = "received",
        read_ahead: int = READ_AHEAD,
    ) -> None:
        reading = reading or Reading()
        if order == "event":
            policy = replace(reading.policy, event_order="ascending")
            reading = replace(reading, policy=policy)
        within = set_policy(reading.policy)

        def make_partitions(set_id: int) -> Partitions:
            def analyse(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
                return make(set_id, name, sink, seen, within)

            rows_sink = partial(sink, set_id)
            return Partitions(names, analyse, rows_sink, order=order, read_ahead=read_ahead)

        super().__init__(names, sets, reading)
        self.partitions = {set_id: make_partitions(set_id) for set_id in sets.set_ids}
        """The reports of each set, by its id."""

    @property
    def ends(self) -> list[StreamEnd]:
        """How each item stream ended, once all were closed.

        ``events_without_occurrence`` is that of the set that has most of them, and
        ``blocks_without_exposure`` of all.
        """
        of_sets = zip(*(partitions.ends for partitions in self.partitions.values()), strict=True)
        counts = [
            (
                max(end.events_without_occurrence or 0 for end in ends) or None,
                sum(end.blocks_without_exposure for end in ends),
            )
            for ends in of_sets
        ]
        return [
            replace(end, events_without_occurrence=absent, blocks_without_exposure=bare)
            for end, (absent, bare) in zip(super().ends, counts, strict=True)
        ]

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows of all sets that wait for the slowest partition."""
        return sum(partitions.waiting_bytes for partitions in self.partitions.values())

    def resume(self, part: int, position: Position) -> None:
        """Continue a partition where an earlier pass was suspended; before any byte is received.

        Args:
            part: the partition; its next byte received is that at ``position.offset``.
            position: that of :meth:`suspend`.

        Raises:
            StateError: it does not fit the policy, or a report is of the whole run.
        """
        summariser = self.summarisers[part]
        summariser.resume(position)
        if position.header is None:
            return
        for set_id, partitions in self.partitions.items():
            header = summariser.set_header(set_id)
            start = replace(position, header=header, offset=SUMMARY_HEADER_SIZE)
            partitions.analyses[part].resume(start)

    def suspend(self, part: int) -> Position:
        """Stop reading a partition; the rows of its complete events go to the sink.

        Returns:
            Where its open event begins, of which the sink has no row; see :meth:`resume`.
        """
        if self.summarisers[part].header is not None:
            for partitions in self.partitions.values():
                partitions.analyses[part].close(ends_run=False)
        return self.summarisers[part].position

    def close(self, part: int) -> None:
        """A partition has ended; after the last, reports of whole runs go to the sink.

        Raises:
            CoreError: as :meth:`Summariser.close` and :meth:`Analysis.close`.
        """
        super().close(part)
        for partitions in self.partitions.values():
            partitions.close(part)

    def _take(self, part: int, set_id: int, octets: Octets) -> None:
        self.partitions[set_id].receive(part, octets)
