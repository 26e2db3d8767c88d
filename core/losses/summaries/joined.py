"""Streams of summaries of all partitions of a run, joined to one for each set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Octets, Rows
from ..format import SUMMARY_HEADER_SIZE
from .item_partitions import ItemPartitions, Reading
from .sets import SummarySets
from .summariser import IndexSink, StreamSink


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
