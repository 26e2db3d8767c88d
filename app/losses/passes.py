"""One pass over a posted stream: over summaries as they come, or over items added up into sets.

A posting feeds bytes and takes positions, whichever pass it has::

    summaries, or items for ``events``   bytes --> Analysis ------------------> rows
    items and a summary xref             bytes --> Summariser --> Analysis 1 -> rows of set 1
                                                              --> Analysis 2 -> rows of set 2

Positions are those of the posted stream, not of the streams of summaries inside. A summariser
writes an event once the next one begins, so all rows of the events before its position have gone
to the sink; of the open event there is none. So a position alone resumes the pass, however many
sets there are, and a token needs no more room for them.

The report ``events`` is the exception: the row of an event comes with the next event that has a
summary, or when the pass is suspended. Positions in between are then not *settled*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.errors import InvalidOptionError
from core.arrays import Rows
from core.errors import UnsupportedStreamError
from core.losses.analysis import Analysis
from core.losses.events import Position, StreamEnd
from core.losses.finishing import LedgerResources
from core.losses.receiver import StreamReceiver
from core.losses.summaries import Reading, SetReports, SummarySets

from .analyses import Analyses
from .request import LossRequest

EVENT_BYTES = 256 << 20
"""Largest memory for the sums of one event of an item stream."""
_NAME = "the body"

RowSink = Callable[[int | None, str, Rows], None]
"""Takes (id of the summary set if there are sets, report, rows valid during the call)."""
TakePosition = Callable[[Position, bool], None]
"""Takes (position of the open event, whether the sink has all rows before it)."""


class _SummaryPass(Analysis):
    """Reports of a stream as it is posted, or of a part of one from a position.

    Args:
        request: the requested analysis.
        sink: receives the rows.
        take_position: called once a piece, for the last event begun in it.
        resources: what reports of whole runs may use.
    """

    def __init__(
        self,
        request: LossRequest,
        sink: RowSink,
        take_position: TakePosition,
        resources: LedgerResources | None,
    ) -> None:
        self._occurrence = request.inputs.occurrence
        super().__init__(
            request.reports,
            lambda report, rows: sink(None, report, rows),
            **request.analysis(resources),
            expect_events=request.expect_events,
            expect_bytes=request.expect_bytes,
            at_event=lambda position: take_position(position, True),
        )

    @property
    def stream(self) -> StreamReceiver:
        """What takes the bytes: the analysis itself, or of items what adds them up."""
        return self

    def suspend(self) -> None:
        """Stop at the last position, with all rows before it in the sink.

        The rows of the open event, which came before its end, are left to the posting.
        """

    @property
    def unplaced_events(self) -> int:
        """Complete events that never occur, of a pass with occurrences that has ended.

        With sets, those of the set that has most of them.
        """
        if self.header is None or self._occurrence is None:
            return 0
        is_open = self.open_event > 0 and self.open_event not in self._occurrence.event_ids
        return self.unplaced - int(is_open)

    @property
    def placed_events(self) -> int:
        """Events that occur, of a pass with occurrences that has ended.

        With sets, those that have a summary in the set with most of them.
        """
        return self.events - self.unplaced


class _SetPass:
    """Reports of summary sets of an item stream; else as :class:`_SummaryPass`.

    Args:
        request: the requested analysis.
        sets: the sets.
        sink: receives the rows.
        take_position: called once a piece, if an event began in it.
        resources: what reports of whole runs may use, for each set.
    """

    def __init__(
        self,
        request: LossRequest,
        sets: SummarySets,
        sink: RowSink,
        take_position: TakePosition,
        resources: LedgerResources | None,
    ) -> None:
        reading = Reading(
            request.policy,
            expect_events=request.expect_events,
            expect_bytes=request.expect_bytes,
            max_event_bytes=EVENT_BYTES,
        )
        analyses = Analyses(request.reports, request.analysis(resources))
        self._reports = SetReports([_NAME], sets, analyses.of_set, sink, reading)
        (self.stream,) = self._reports.summarisers
        self._has_occurrence = request.inputs.occurrence is not None
        self._take_position = take_position
        self._settles = "events" not in request.reports
        self._begun = 0

    @property
    def nbytes(self) -> int:
        return self.stream.nbytes + sum(analysis.nbytes for analysis in self._analyses)

    def resume(self, position: Position) -> None:
        self._reports.resume(0, position)
        self._begun = position.offset

    def receive(self, piece: memoryview) -> None:
        try:
            self._reports.receive(0, piece)
        except UnsupportedStreamError as e:
            if self.stream.header is None:
                raise
            # The stream is one that others take: it does not go with this xref.
            raise InvalidOptionError(
                e.message, hint=e.hint, option="summary_xref", offset=e.offset
            ) from e
        position = self.stream.position
        if position.header is not None and position.offset > self._begun:
            self._begun = position.offset
            self._take_position(position, self._settles)

    def release(self) -> None:
        for analysis in self._analyses:
            analysis.release()

    def close(self) -> StreamEnd:
        self._reports.close(0)
        (end,) = self._reports.ends
        if not self._has_occurrence:
            return end
        return replace(end, events_without_occurrence=self.unplaced_events)

    def suspend(self) -> None:
        position = self._reports.suspend(0)
        if not self._settles and position.header is not None:
            self._take_position(position, True)

    @property
    def unplaced_events(self) -> int:
        return max((analysis.unplaced for analysis in self._analyses), default=0)

    @property
    def unexposed(self) -> int:
        return sum(analysis.unexposed for analysis in self._analyses)

    @property
    def placed_events(self) -> int:
        return max((a.events - a.unplaced for a in self._analyses), default=0)

    @property
    def _analyses(self) -> list[Analysis]:
        analyses = (p.analyses[0] for p in self._reports.partitions.values())
        return [analysis for analysis in analyses if analysis.header is not None]


Pass = _SummaryPass | _SetPass
"""Reads one stream, or a part of it, from a position."""


def make_pass(
    request: LossRequest,
    sink: RowSink,
    take_position: TakePosition,
    resources: LedgerResources | None,
) -> Pass:
    """Return the pass of a request.

    Args:
        request: the requested analysis.
        sink: receives the rows.
        take_position: called once a piece, for the last event begun in it.
        resources: what reports of whole runs may use, for each set.
    """
    if request.sets is None:
        return _SummaryPass(request, sink, take_position, resources)
    return _SetPass(request, request.sets, sink, take_position, resources)
