"""Reports of a run from its stored streams and the sums of their segments.

Rows of events and periods come from another pass over the streams, in the order of partitions;
reports of the whole run from the partials of all segments. Both equal what one process computes
from the same streams in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import structlog

from app.engine.workers import Workers
from app.errors import NotFoundError
from app.losses.analyses import MANY, Analyses, OrderedCalls, taken_inputs
from app.losses.request import LossRequest
from app.state.base import StoreDamagedError
from app.state.blobs import BlobMissingError
from app.state.durable import temporary_error
from core.arrays import Rows
from core.errors import FormatError, StreamError
from core.losses.analysis import Analysis
from core.losses.events import StreamEnd, StreamHeader
from core.losses.finishing import LedgerReports, LedgerResources
from core.losses.format import SOURCE_SUMMARY, Kind
from core.losses.header import CommonHeader
from core.losses.ledger.ledger import Ledger
from core.losses.ledger.partials import import_ledger
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.parameters import make_rules
from core.losses.policy import Policy
from core.losses.sections import Section, SectionedRun, SectionEnd, SectionResult
from core.losses.summaries import Reading, SetReports

from ..store import StoredStream
from .segments import EVENT_BYTES, READ, Segment, SegmentSums, segments_of, stream_header

_AT_ONCE = 1 << 16
"""Rows that are handed on together."""


class SortedRows:
    """Keeps rows in a temporary file, and hands them on by event.

    Rows of an event keep their order. In memory there are only ids and their order, 12 bytes a
    row.

    Args:
        directory: where the file is made; it has no name, so that no crash leaves it.
        dtype: of the rows, with a field ``EventId``.

    Raises:
        StorageFullError: the directory takes no file.
    """

    def __init__(self, directory: Path, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._events = [np.zeros(0, np.int32)]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close()
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e

    def add(self, rows: Rows) -> None:
        """Keep the next rows.

        Raises:
            StorageFullError: the disk is full.
        """
        self._events.append(rows["EventId"].astype(np.int32))
        try:
            self._file.write(rows.tobytes())
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e

    def sorted(self) -> Iterator[Rows]:
        """Yield all rows by event.

        Raises:
            StorageFullError: the disk is full.
        """
        try:
            self._file.flush()
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e
        events = np.concatenate(self._events)
        if not len(events):
            return
        order = np.argsort(events, kind="stable")
        del events
        rows = np.memmap(self._file, self._dtype, "r", shape=(len(order),))
        for begin in range(0, len(order), _AT_ONCE):
            yield np.asarray(rows[order[begin : begin + _AT_ONCE]])

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()


SECTION = 8 << 20
"""Bytes of a stream that one call of the engine reads for rows."""
_DAMAGED = (FormatError, StoreDamagedError, BlobMissingError)
_ATTEMPTS = 3
"""Times that partials are read: one that is damaged is computed again."""
Resources = Callable[[], LedgerResources]
"""Returns what the ledger of a set may use."""
RowSink = Callable[[int | None, str, Rows], None]
"""Takes (summary set if there are sets, report, rows valid during the call)."""
Proceed = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) of a step; raises to stop."""


@dataclass(frozen=True, slots=True)
class RunStreams:
    """The streams of a run, in the order of partitions, all complete.

    Raises:
        MismatchError: they are of different kinds, sample counts or sets.
        CoreError, StoreDamagedError: one has no header, or is damaged.
    """

    streams: Sequence[StoredStream]
    policy: Policy

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(stream.size for stream in self.streams)

    def header(self) -> StreamHeader:
        """Return the header of all.

        Raises:
            NotFoundError: there is none any more, as the run is being deleted.
        """
        common = CommonHeader([stream.name for stream in self.streams])
        for index, stream in enumerate(self.streams):
            common.compare(index, stream_header(stream, self.policy))
        if common.known is None:
            raise NotFoundError("the run has no stream any more")
        return common.known

    def segments(self, size: int) -> Iterator[Segment]:
        """Yield the segments of all."""
        for stream in self.streams:
            yield from segments_of(stream, self.policy, size)


class RunReports:
    """Computes reports of a run.

    Args:
        request: the requested analysis; run reports and row reports may be mixed.
        streams: of the run.
        engine: makes the calls that take long.
        proceed: told of progress, from the calling thread.
    """

    def __init__(
        self, request: LossRequest, streams: RunStreams, engine: Workers, proceed: Proceed
    ) -> None:
        self._request = request
        self._streams = streams
        self._engine = engine
        self._proceed = proceed
        self._unexposed = 0
        """Blocks whose losses MELT or QELT lack."""
        self._compared: list[tuple[int, int]] = []
        """Events of each summary set, or of all streams, and how many of them never occur."""

    @property
    def of_rows(self) -> tuple[str, ...]:
        """Requested reports of events and periods."""
        return tuple(r.name for r in self._request.tables if r.scope != "run")

    @property
    def of_sums(self) -> tuple[str, ...]:
        """Requested reports of whole runs."""
        return tuple(r.name for r in self._request.tables if r.scope == "run")

    @property
    def remarks(self) -> dict[str, int]:
        """What rows do not say of the streams, once reports were computed."""
        occurrence = self._request.inputs.occurrence
        numbers = {"blocks_without_exposure": self._unexposed}
        if occurrence is not None and self._compared:
            occurring = len(occurrence.events())
            unused = occurring - max(events - absent for events, absent in self._compared)
            numbers["events_without_occurrence"] = max(absent for _, absent in self._compared)
            numbers["events_only_in_occurrence"] = unused if unused >= MANY * occurring else 0
        return {name: number for name, number in numbers.items() if number > 0}

    def named(self, error: StreamError) -> StreamError:
        """The fault of an event that may be in two streams, with the names of both."""
        event = error.event or 0
        holders = (stream.name for stream in self._streams.streams if self._has(stream, event))
        names = list(islice(holders, 2))
        if not names[1:]:
            return error
        return type(error)(
            f"event {event} is in {' and '.join(names)}, so its losses would count twice",
            event=event,
            hint="Delete the stream that is wrong, upload the right one, then seal again",
        )

    def _has(self, stream: StoredStream, event: int) -> bool:
        found: list[bool] = []
        check = Analysis(
            ["events"],
            lambda _name, rows: found.append(event in rows["EventId"]),
            policy=self._streams.policy,
        )
        with suppress(StreamError):
            for start in range(0, stream.size, READ):
                self._proceed(start, stream.size)
                check.receive(stream.read(start, min(start + READ, stream.size)))
        return any(found) or check.open_event == event

    # -- reports of whole runs ---------------------------------------------------

    def compute_sums(
        self, sums: SegmentSums, size: int, resources: Resources, sink: RowSink
    ) -> None:
        """Compute the reports of whole runs.

        Args:
            sums: adds segments up that are not yet.
            size: bytes of a segment.
            resources: what the ledger of the run may use.
            sink: receives the rows.

        Raises:
            CoreError: a stream is faulty, or an event is in two of them.
            ServiceError: a store failed.
        """
        header = self._streams.header()
        segments = list(self._streams.segments(size))
        for _ in range(_ATTEMPTS):
            self._publish(segments, sums)
            if all(
                self._merge(header, set_id, segments, sums, resources, sink)
                for set_id in self._request.set_ids
            ):
                return
        raise StoreDamagedError("partial sums of the run cannot be read", retry_after=30)

    def _publish(self, segments: Sequence[Segment], sums: SegmentSums) -> None:
        done = 0
        calls: OrderedCalls[Segment, None] = OrderedCalls(self._engine)
        for segment, _ in zip(segments, calls(sums.publish, segments), strict=True):
            done += segment.end - segment.begin
            self._proceed(done, self._streams.nbytes)

    def _merge(  # noqa: PLR0913, PLR0917 - of one set
        self,
        header: StreamHeader,
        set_id: int | None,
        segments: Sequence[Segment],
        sums: SegmentSums,
        resources: Resources,
        sink: RowSink,
    ) -> bool:
        """Compute the reports of a set; return False if a partial was damaged, and is gone."""
        if set_id is not None:
            header = replace(
                header, kind=Kind.SUMMARY, aggregation=1, source=SOURCE_SUMMARY, summary_set=set_id
            )
        request = self._request
        damaged: list[Segment] = []

        def merge(ledger: Ledger) -> None:
            for segment in segments:
                self._proceed(self._streams.nbytes, self._streams.nbytes)
                try:
                    import_ledger(ledger, sums.pieces(segment, set_id), segment.stream.name)
                except _DAMAGED:
                    damaged.append(segment)
                    raise
            events = ledger.events()
            absent = ~np.isin(events, ledger.calendar.events, assume_unique=True)
            self._compared.append((len(events), int(absent.sum())))

        engine = self._engine
        tools = replace(
            resources(), map=OrderedCalls(engine), at_once=engine.width, on_merged=merge
        )
        tables = [report for report in request.tables if report.scope == "run"]
        reports = LedgerReports(tables, request.options, tools)
        reports.begin(header, make_rules(header, request.policy), request.inputs.to_dict())
        try:
            reports.finish(partial(sink, set_id))
        except _DAMAGED as e:
            if not damaged:
                raise
            structlog.get_logger().warning("partial sums are damaged", reason=str(e))
            sums.delete(damaged[0])
            # What damaged one has perhaps damaged others.
            for segment in segments:
                sums.delete_unless_whole(segment)
            return False
        return True

    # -- rows of events and periods ----------------------------------------------

    def compute_rows(self, sink: RowSink, *, waiting: int | None) -> None:
        """Compute the reports of events and periods, in the order of the streams.

        Args:
            sink: receives the rows.
            waiting: bytes of rows that may wait for those before, while the engine reads sections
                of the streams at once; None for one pass. Of sections, a fault is not necessarily
                the first, nor does it name its stream; and they may need more than one pass does.

        Raises:
            CoreError: a stream is faulty, or an event is in two of them.
            ServiceError: a store failed.
        """
        analyses, sets = self._analyses(), self._request.sets
        names = [stream.name for stream in self._streams.streams]
        if sets is not None:
            reading = Reading(self._streams.policy, max_event_bytes=EVENT_BYTES)
            ends = self._pass_over(SetReports(names, sets, analyses.of_set, sink, reading))
        elif waiting is not None:
            ends = self._read_sections(analyses, partial(sink, None), waiting)
        else:
            ends = self._pass_over(Partitions(names, analyses.of_partition, partial(sink, None)))
        self._unexposed += sum(end.blocks_without_exposure for end in ends)
        absent = [end.events_without_occurrence for end in ends]
        if None not in absent:
            self._compared.append((sum(end.events for end in ends), sum(n or 0 for n in absent)))

    def _read_sections(self, analyses: Analyses, sink: Sink, waiting: int) -> list[StreamEnd]:
        self._streams.header()
        done = 0

        def observe(_end: SectionEnd) -> None:
            nonlocal done
            done += SECTION
            self._proceed(min(done, self._streams.nbytes), self._streams.nbytes)

        calls: OrderedCalls[Section, SectionResult] = OrderedCalls(self._engine)
        run = SectionedRun(analyses.of_section, self._engine.width, calls, sink, waiting)
        return run.run(self._sections(), observe)

    def _sections(self) -> Iterator[Section]:
        policy = self._streams.policy
        for index, stream in enumerate(self._streams.streams):
            parts = 0
            for part in segments_of(stream, policy, SECTION):
                yield Section(index, part.header, part.begin, part.pieces)
                parts += 1
            header = stream_header(stream, policy)
            if not parts and header is not None:
                # A stream without events is a section without events.
                yield Section(index, header, stream.size, tuple)

    def _pass_over(self, reports: Partitions | SetReports) -> Sequence[StreamEnd]:
        done = 0
        for index, stream in enumerate(self._streams.streams):
            for start in range(0, stream.size, READ):
                reports.receive(index, stream.read(start, min(start + READ, stream.size)))
                done += READ
                self._proceed(min(done, self._streams.nbytes), self._streams.nbytes)
            reports.close(index)
        return reports.ends

    def _analyses(self) -> Analyses:
        request = self._request
        names = taken_inputs(report for report in request.tables if report.scope != "run")
        inputs = request.inputs.to_dict()
        options = {
            **{name: value for name, value in inputs.items() if name in names},
            "policy": self._streams.policy,
            "options": request.options,
        }
        return Analyses(self.of_rows, options)
