"""The work of one sealing job: from the stored streams of a run to published reports.

Its memory is at the expense of the owner of the run. Sums go to the disk once they have taken what
they may. What cannot go there, the sums of one summary while they are put in order, is granted
beyond that, as far as the share of the owner allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from app.engine.base import Cluster
from app.engine.ledger import Hold, Ledger
from app.engine.request_budget import current_trace
from app.engine.workers import Workers
from app.errors import DataChangedError
from app.http.identity import USER_SCOPES, Identity
from app.losses.request import LossRequest
from app.losses.selection import Chosen
from app.losses.service import LossService
from app.losses.spilling import SpillFiles
from app.losses.sums_room import try_to_hold
from app.state.base import StateStore
from app.state.durable import temporary_error
from app.state.ownership import Namespaces
from app.tracing import NO_TRACING, Tracing
from core.arrays import Rows
from core.errors import CoreError, EventReopenedError, MismatchError
from core.losses.finishing import LedgerResources
from core.losses.ledger.runs import SpillStore
from core.losses.reports import REPORTS

from ..records import SEGMENT, RunRecord
from ..results.computing import Proceed, RowSink, RunReports, RunStreams, SortedRows
from ..results.files import RECORDS, Published, PublishedWriter, ReportFiles, ReportName
from ..results.segments import SEGMENT_BYTES, Segment, SegmentSums, SegmentWork, stream_header
from ..spec import RunOptions, RunSpec
from ..store import Runs
from ..streams import Streams
from .jobs import Job, Variant

SUMS_BYTES = 1 << 30
"""Memory of the sums of a run while it is sealed."""
SUMS_OF_SEGMENT = 64 << 20
"""Memory of the sums of a segment, at most."""
FIRST_BYTES = 8 << 20
"""Memory of sums in the beginning."""


@contextmanager
def sums_of_segment(ledger: Ledger, owner: str, spill: SpillStore) -> Iterator[LedgerResources]:
    """Provide what the sums of one segment may use, until they are published."""
    with ledger.hold(owner, 0, "sealing") as hold:
        memory = SumsMemory(hold, SUMS_OF_SEGMENT)
        yield LedgerResources(min(FIRST_BYTES, SUMS_OF_SEGMENT), more=memory, spill=spill)


class SumsMemory:
    """Grants memory to the sums of a run, at the expense of its owner.

    Args:
        hold: of the owner.
        most: bytes beyond which sums go to the disk, unless they cannot.
    """

    def __init__(self, hold: Hold, most: int) -> None:
        self._hold = hold
        self._most = most
        self._held = 0

    def __call__(self, nbytes: int, *, required: bool) -> bool:
        """See MoreMemory."""
        if not required and self._held + nbytes > self._most:
            return False
        hint = _HINT.format(setting=self._hold.setting)
        if not try_to_hold(partial(self._hold.grow, nbytes), hint, required=required):
            return False
        self._held += nbytes
        return True

    def release(self) -> None:
        """Give all back, for the sums of the next set."""
        self._hold.shrink(self._held)
        self._held = 0


_ROW_BYTES = 64 << 20
"""Memory of a thread that computes rows, at most."""
_LEAST_ROW_BYTES = 2 << 20
"""The same of few rows."""
_ROWS_PER_BYTE = 6
"""Bytes of rows that wait for each byte of the streams, without those of quantiles."""
_SET_BYTES = 1 << 20
"""Memory of the rows of a summary set beyond the first."""
_Key = tuple[int | None, str]
# A curve with every point takes some hundred bytes for each loss of its summary.
_HINT = (
    "Seal the run again with return_periods such as 250,100,50, at which ept and psept take a"
    " fraction of it, or have the operator raise {setting} and seal it again"
)
_disk_error = partial(temporary_error, subject="sums of the run")


@dataclass(slots=True)
class SealingContext:
    """What sealing works with.

    Args:
        streams: those of all runs.
        records: the store of records of published files.
        losses: inputs, and room for sums and rows.
        engine: makes the calls that take long.
        segment: bytes of a segment.
        sums_bytes: memory of the sums of a run.
        tracing: begins the span of each job.
        cluster: does what it can of that; None if there is none.
    """

    streams: Streams
    records: StateStore
    losses: LossService
    engine: Workers
    segment: int = SEGMENT_BYTES
    sums_bytes: int = SUMS_BYTES
    tracing: Tracing = NO_TRACING
    cluster: Cluster | None = None

    @property
    def runs(self) -> Runs:
        """All runs."""
        return self.streams.runs

    def spec(self, run: RunRecord, variant: Variant) -> RunSpec:
        """Return the spec of a run with the options and inputs of a variant.

        Raises:
            pydantic.ValidationError: the options are not those of a run.
        """
        spec = RunSpec.of(run)
        values = spec.options.model_dump(exclude_none=True) | dict(variant.options)
        inputs = dict(spec.inputs)
        for name in variant.options:
            # A list among the options takes the place of a file, and the other way round.
            inputs.pop(name, None)
        for name in variant.inputs:
            values.pop(name, None)
        options = RunOptions.model_validate(values)
        return replace(spec, options=options, inputs=inputs | dict(variant.inputs))

    def request(self, run: RunRecord, variant: Variant, reports: Sequence[str]) -> LossRequest:
        """Return the request of reports of a run, with its inputs read.

        Raises:
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        caller = Identity(run.owner, USER_SCOPES)
        return self.spec(run, variant).request(caller, self.losses, tuple(reports))

    def files(self, run: RunRecord) -> ReportFiles:
        """Return the published reports of a run."""
        width = RunSpec.of(run).options.float_width
        return ReportFiles(self.records, self.streams.blobs, run.owner, run.files, width)

    def segments(self, run: RunRecord) -> Published:
        """Return the published partials of a run."""
        things = Namespaces(self.records, SEGMENT)
        return Published(things, self.streams.blobs, SEGMENT, run.owner, run.id)

    @contextmanager
    def sums(
        self, run: RunRecord, variant: Variant, reports: Sequence[str]
    ) -> Iterator[tuple[LossRequest, SegmentSums]]:
        """Provide what adds segments of a run up, for a while.

        Raises:
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        request = self.request(run, variant, reports)
        with closing(SpillFiles(self.losses.spools.directory, _disk_error)) as spill:
            yield request, self.segment_sums(run, request, spill)

    def segment_sums(self, run: RunRecord, request: LossRequest, spill: SpillStore) -> SegmentSums:
        """Return what adds segments of a run up, with a store for what their sums spill."""
        resources = partial(sums_of_segment, self.losses.ledger, run.owner, spill)
        return SegmentSums(request, self.segments(run), resources)

    def spread(self, job: Job, sums: SegmentSums, segments: Iterable[Segment]) -> Iterable[Segment]:
        """Yield segments of a run, once the cluster, if there is one, has added each of them up.

        Raises:
            EngineUnavailableError, ProcessDiedError: see Cluster.
        """
        if self.cluster is None:
            return segments
        return self.cluster.spread(SegmentWork(sums, address(job), 2 * SUMS_OF_SEGMENT), segments)


def address(job: Job) -> dict[str, Any]:
    """Return, as JSON values, by what a worker of the cluster finds what a job is about."""
    variant = {"options": dict(job.variant.options), "inputs": dict(job.variant.inputs)}
    return {"owner": job.owner, "run": job.run, "reports": list(job.reports), **variant}


def _found(sealing: SealingContext, task: Mapping[str, Any]) -> tuple[RunRecord, Job]:
    run = sealing.runs.get(Identity(task["owner"], USER_SCOPES), task["run"])
    variant = Variant(task["options"], task["inputs"])
    return run, Job(run.owner, run.id, tuple(task["reports"]), variant, seals=False)


def add_up(sealing: SealingContext, task: Mapping[str, Any]) -> None:
    """Add a segment up, as a task: see SegmentWork.

    Raises:
        DataChangedError: the sums would not be those that were asked for.
        CoreError, ServiceError: the segment is faulty, or a store failed.
    """
    run, job = _found(sealing, task)
    stream = sealing.streams.stored(sealing.streams.get(run, task["stream"]))
    with sealing.sums(run, job.variant, job.reports) as (request, sums):
        header = stream_header(stream, request.policy)
        assert header is not None  # noqa: S101 - it has a segment
        segment = Segment(stream, header, task["begin"], task["end"])
        if sums.names(segment) != task["names"]:
            raise DataChangedError("the run is not as it was when its sums were asked for")
        sums.publish(segment)


def seal(sealing: SealingContext, task: Mapping[str, Any]) -> None:
    """Compute and publish the reports of a job, as a task: see SealingWork.

    Raises:
        CoreError, ServiceError: a stream is faulty, or a store failed.
    """
    run, job = _found(sealing, task)
    context = replace(sealing, segment=task["segment"])
    SealingWork(context, run, job, lambda _done, _total: None).run()


class SealingWork:
    """Computes the reports of one job; and as Work, has a worker of the cluster do that.

    Args:
        sealing: what to work with.
        run: the run, which is sealed.
        job: what to compute.
        proceed: told of progress; raises to stop.
    """

    kind: ClassVar[str] = "seal"

    def __init__(self, sealing: SealingContext, run: RunRecord, job: Job, proceed: Proceed) -> None:
        self._sealing = sealing
        self._run = run
        self._job = job
        self._request = sealing.request(run, job.variant, job.reports)
        self._files = sealing.files(run)
        policy = replace(self._request.policy, event_order="any")
        stored = [sealing.streams.stored(stream) for stream in sealing.streams.of(run)]
        self._streams = RunStreams(stored, policy)
        self._proceed = proceed
        self._reports = RunReports(self._request, self._streams, sealing.engine, proceed)
        spools = sealing.losses.spools
        self._reservation = spools.reservations.new(run.owner)
        self._spill = SpillFiles(spools.directory, _disk_error, self._reservation.cover)
        # What a few segments need at a time is bounded by their size.
        self._spill_of_segments = SpillFiles(spools.directory, _disk_error)

    def run(self) -> None:
        """Compute and publish all reports that are not published yet, or damaged.

        Raises:
            CoreError: a stream is faulty, or two do not fit together.
            ServiceError: a store failed, or there is no room.
        """
        ledger, owner = self._sealing.losses.ledger, self._run.owner
        for set_id in self._request.set_ids:
            for report in self._job.reports:
                file = self._files.find(self._name(set_id, report))
                if file is not None:
                    self._files.discard_unless_whole(file)
        try:
            if self._sealing.cluster is not None:
                self._spread(self._sealing.cluster)
            with ledger.hold(owner, self._row_bytes, "sealing"), current_trace().child("rows"):
                self._compute_rows()
            with ledger.hold(owner, 0, "sealing") as hold, current_trace().child("sums"):
                self._compute_sums(SumsMemory(hold, self._sealing.sums_bytes))
        except (EventReopenedError, MismatchError) as e:
            raise self._reports.named(e) from e
        finally:
            self._spill.close()
            self._spill_of_segments.close()
            self._reservation.close()

    def _spread(self, cluster: Cluster) -> None:
        """Have the cluster add all segments up, then a worker publish the reports from them.

        What is missing afterwards is computed here, and a fault is found here: in the same order,
        and with the same words, as without a cluster.
        """
        if self._pending(self._reports.of_sums):
            segments = self._streams.segments(self._sealing.segment)
            with suppress(CoreError):
                for segment in self._sealing.spread(self._job, self._sums(), segments):
                    self._proceed(segment.end, self._streams.nbytes)
        for _ in cluster.spread(self, [self._job]):
            self._proceed(self._streams.nbytes, self._streams.nbytes)

    @property
    def nbytes(self) -> int:
        """See Work."""
        return max(self._row_bytes, self._sealing.sums_bytes)

    def label(self, job: Job) -> str:
        """See Work."""
        return f"the reports of the run {job.run}"

    def task(self, job: Job) -> dict[str, Any]:
        """See Work."""
        return {**address(job), "segment": self._sealing.segment}

    def is_done(self, job: Job) -> bool:
        """See Work."""
        return not self._pending(job.reports)

    def _sums(self) -> SegmentSums:
        return self._sealing.segment_sums(self._run, self._request, self._spill_of_segments)

    @property
    def _row_bytes(self) -> int:
        """Memory of all threads that compute rows."""
        quantiles = self._request.inputs.quantiles
        per_byte = _ROWS_PER_BYTE + (0 if quantiles is None else len(quantiles))
        of_thread = min(_ROW_BYTES, _LEAST_ROW_BYTES + per_byte * self._streams.nbytes)
        return of_thread * self._sealing.engine.width + _SET_BYTES * (
            len(self._request.set_ids) - 1
        )

    def _pending(self, reports: Sequence[str]) -> bool:
        return any(
            self._files.find(self._name(set_id, report)) is None
            for set_id in self._request.set_ids
            for report in reports
        )

    def _name(self, set_id: int | None, report: str) -> str:
        """Return the name of the records of a report."""
        return self._report(set_id, report).file(RECORDS)

    def _report(self, set_id: int | None, report: str) -> ReportName:
        return ReportName(report, set_id, self._job.variant.name)

    def remarks(self) -> dict[str, int | str]:
        """Return what is to be said of the published reports besides their rows."""
        remarks: dict[str, int | str] = {}
        for set_id in self._request.set_ids:
            for report in self._job.reports:
                remarks |= self._files.remarks(self._report(set_id, report))
        return remarks

    def _compute_sums(self, memory: SumsMemory) -> None:
        reports = self._reports
        if not self._pending(reports.of_sums):
            return
        sealing, sums = self._sealing, self._sums()

        def of_run() -> LedgerResources:
            memory.release()
            return LedgerResources(FIRST_BYTES, more=memory, spill=self._spill)

        self._write(
            reports.of_sums, lambda sink: reports.compute_sums(sums, sealing.segment, of_run, sink)
        )

    def _compute_rows(self) -> None:
        reports = self._reports
        if not self._pending(reports.of_rows):
            return
        if self._request.sets is None:
            # One pass names the stream at fault, and takes what several sections do not.
            with suppress(CoreError):
                self._write(reports.of_rows, lambda sink: self._rows(sink, self._row_bytes))
                return
        self._write(reports.of_rows, lambda sink: self._rows(sink, None))

    def _rows(self, sink: RowSink, waiting: int | None) -> None:
        sealing = self._sealing
        if sealing.spec(self._run, self._job.variant).options.order != "event":
            self._reports.compute_rows(sink, waiting=waiting)
            return
        kept: dict[_Key, SortedRows] = {}

        def keep(set_id: int | None, report: str, rows: Rows) -> None:
            key = (set_id, report)
            if key not in kept:
                directory = sealing.losses.spools.directory
                kept[key] = SortedRows(directory, rows.dtype)
            kept[key].add(rows)

        try:
            self._reports.compute_rows(keep, waiting=waiting)
            for (set_id, report), rows in kept.items():
                for piece in rows.sorted():
                    sink(set_id, report, piece)
        finally:
            for rows in kept.values():
                rows.close()

    def _write(self, reports: Sequence[str], compute: Callable[[RowSink], None]) -> None:
        """Publish the rows that a function hands on, of all sets, even if there are none."""
        keys = [(set_id, report) for set_id in self._request.set_ids for report in reports]
        writers: dict[_Key, PublishedWriter] = {
            key: self._files.writer(self._name(*key)) for key in keys
        }
        chosen = Chosen(self._request.selection)

        def sink(set_id: int | None, report: str, rows: Rows) -> None:
            if REPORTS[report].has_summaries:
                rows = chosen(rows)
            writers[set_id, report].write(rows.tobytes())

        try:
            compute(sink)
            remarks: dict[str, int | str] = {**self._reports.remarks, **chosen.missing}
            for key in keys:
                self._files.tell(self._report(*key), remarks)
                self._files.publish(writers.pop(key))
        finally:
            for writer in writers.values():
                writer.discard()
