"""Aggregate named streams into report files, without the service."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.engine.bus_errors import Watch, watch
from core.arrays import Rows
from core.errors import IncompleteError, InputError, OptionError, ReportError
from core.losses.analysis import Analysis
from core.losses.events import StreamEnd, StreamHeader
from core.losses.finishing import LedgerReports, LedgerResources
from core.losses.inputs import SummaryInfo
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.ledger.memory import SharedArena
from core.losses.merge import READ_AHEAD, Order, Partitions
from core.losses.outputs import Sink
from core.losses.parameters import ReportInputs, make_rules
from core.losses.policy import Policy
from core.losses.reports import Report, check_inputs, check_kind, choose_reports
from core.losses.reports.report import RunOptions
from core.losses.sections import Section, SectionedRun, SectionResult
from core.losses.summaries import Reading, SetReports, Summariser, SummarySets

from .analyses import Analyses, OrderedThreads
from .outputs import STDOUT, Outputs, check_free
from .report_files import Exchange, TableFiles, partial_header, report_path
from .sections import (
    SECTION,
    Observer,
    Progress,
    are_worth_cutting,
    cut_or_whole,
    declared,
    section_observer,
    sections_of,
    stream_observer,
)
from .selection import Chosen, RowSelection
from .sources import Source, Sources
from .spilling import SpillFiles

__all__ = ["STDOUT", "Aggregation", "Job", "Observer", "Progress"]
_JobSink = Callable[[int | None, str, Rows], None]
"""Takes (summary set if there are several, report name, rows)."""


def _check_merged(reports: Sequence[Report]) -> None:
    """Refuse reports that need the streams themselves."""
    for report in reports:
        if report.calculate is None:
            raise ReportError(
                f"{report.name.upper()} cannot be made from partial files alone",
                hint="Name the streams too, or ask for reports of whole runs such as aal or ept",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One requested aggregation."""

    streams: Sequence[str]
    reports: Sequence[str]
    out: str
    """Directory, or ``-`` for standard output."""
    format: str = "csv"
    policy: Policy = field(default_factory=Policy)
    order: Order = "received"
    inputs: ReportInputs = field(default_factory=ReportInputs)
    sets: SummarySets | None = None
    """Summary sets of item streams, each with reports of its own; None for summary streams."""
    infos: Mapping[int | None, SummaryInfo] = field(default_factory=dict)
    """What summaries are, by set: columns to join to the rows of reports."""
    selection: RowSelection = field(default_factory=RowSelection)
    """The rows to write."""
    options: RunOptions = field(default_factory=RunOptions)
    memory_budget: int = MEMORY_BUDGET
    """Bytes of memory for the ledger of reports of whole runs."""
    spill_dir: str | None = None
    """Where the ledger keeps what is beyond; by default beside the reports."""
    partials: Sequence[str] = ()
    """Partial files to merge with the streams."""
    partial_out: str | None = None
    """Partial file to write."""
    expect_events: int | None = None
    expect_bytes: int | None = None
    read_ahead: int = READ_AHEAD
    idle_timeout: float | None = None
    threads: int | None = None
    """Threads for files; by default, the cores this process may use."""
    live: bool = False
    """Whether pipes get rows before all streams are known to be whole."""
    force: bool = True
    """Whether to replace files."""

    @property
    def tables(self) -> dict[tuple[int | None, str], str | Path]:
        """Where the table of each summary set and report goes."""
        return {
            (set_id, name): report_path(self.out, set_id, name, self.format)
            for set_id in _set_ids(self)
            for name in self.reports
        }


def _set_ids(job: Job) -> Sequence[int | None]:
    return (None,) if job.sets is None else job.sets.set_ids


def _check_sets(job: Job) -> None:
    """Refuse partial files that are not of one set, and an xref without items."""
    if not job.streams:
        raise OptionError("a summary xref is for streams of items, but no stream is named")
    if len(_set_ids(job)) > 1 and (job.partials or job.partial_out is not None):
        raise OptionError("a partial file is of one summary set", hint="Choose it with --sets")


class Aggregation:
    """Runs one job.

    Args:
        job: the job.
        observer: called with the progress after each piece of a stream.
        taps: further consumers of rows, by report; called as the rows arise.

    Raises:
        CoreError: the reports, inputs and streams of the job contradict each other.
    """

    def __init__(
        self,
        job: Job,
        observer: Observer | None = None,
        taps: Mapping[str, Callable[[Rows], None]] | None = None,
    ) -> None:
        reports = choose_reports(job.reports)
        if (job.partials or job.partial_out is not None) and job.inputs.occurrence is None:
            raise OptionError(
                "partial files need occurrences",
                hint="Name those of the run with --occurrence: a partial file has sums by period,"
                " and of the occurrences a digest alone",
            )
        check_inputs(reports, job.inputs.to_dict())
        for report in reports:
            job.selection.check(report.name)
        job.selection.check_sets(job.sets)
        self._threads = job.threads or len(os.sched_getaffinity(0))
        if not job.streams:
            _check_merged(reports)
        if job.out == STDOUT and len(job.reports) * len(_set_ids(job)) > 1:
            raise OptionError(
                "standard output takes a single report", hint="Name a directory with --out"
            )
        written = (*job.tables.values(), job.partial_out or STDOUT)
        check_free((Path(path) for path in written if path != STDOUT), force=job.force)
        if job.sets is not None:
            _check_sets(job)
        if job.partials and job.expect_bytes is not None:
            raise OptionError("expect_bytes is of a stream, and partial files are none")
        several = len(job.streams) > 1
        if several and (job.expect_events is not None or job.expect_bytes is not None):
            count = len(job.streams)
            raise OptionError(
                f"expect_events and expect_bytes are of one stream, not of {count}",
                hint="Declare each: --partial-out of each, then --partials of all with their total",
            )
        self._job = job
        self._observer = observer
        self._taps = dict(taps or {})
        self.header: StreamHeader | None = None
        """Header of the streams or partial files, once they have been read."""

    def run(self) -> list[StreamEnd]:
        """Read all streams and write the reports; return how each stream ended.

        Raises:
            CoreError: an input or a stream is faulty; no report file is written then.
        """
        return cut_or_whole(
            partial(self._attempt, self._run_sections) if self._can_be_cut() else None,
            partial(self._attempt, self._run_streams),
        )

    def _can_be_cut(self) -> bool:
        """Whether all cores can share the pass with the results of one.

        Rows that went to a pipe at once cannot be taken back, nor can those that a tap has taken.
        """
        job = self._job
        return (
            not self._taps
            and job.sets is None
            and (job.order == "received" or len(job.streams) == 1)
            and not job.live
            and are_worth_cutting(job.streams, job.policy, self._threads)
        )

    def _attempt(self, run: Callable[[_JobSink, SpillFiles], list[StreamEnd]]) -> list[StreamEnd]:
        job = self._job
        self.chosen = Chosen(job.selection)
        folder = self._spill_dir()
        spill = SpillFiles(folder)
        with closing(spill), Outputs(live=job.live, folder=folder) as outputs:
            self._exchange = Exchange(job.partials, job.partial_out, outputs)
            tables = TableFiles(outputs, job.policy.float_width)
            for (set_id, name), path in job.tables.items():
                tables.open(set_id, name, path, job.format, job.infos.get(set_id))

            def sink(set_id: int | None, name: str, rows: Rows) -> None:
                if name in job.reports:
                    tables.write(set_id, name, self.chosen(rows))
                if name in self._taps:
                    self._taps[name](rows)

            ends = run(sink, spill)
            self._check_merged_events()
            tables.end()
        return ends

    def _check_merged_events(self) -> None:
        """Refuse partial files that do not have the declared events, with those of the streams."""
        declared, merged = self._job.expect_events, self.merged_events
        if self._job.partials and declared not in {None, merged}:
            raise IncompleteError(
                f"the partitions have {merged:,} events, and {declared:,} were declared",
                hint="A partition is missing, or the declared number is wrong",
            )

    def _run_streams(self, sink: _JobSink, spill: SpillFiles) -> list[StreamEnd]:
        job = self._job
        if not job.streams:
            self._merge(partial(sink, None), self._resources(spill, 1))
            return []
        with Sources(job.streams, job.idle_timeout) as sources:
            names = [source.name for source in sources.sources]
            resources = self._resources(spill, len(names) * len(_set_ids(job)))
            order, read_ahead = job.order, job.read_ahead
            if job.sets is not None:
                reading = Reading(
                    job.policy, expect_events=job.expect_events, expect_bytes=job.expect_bytes
                )
                make = self._analyses(resources).of_set
                sets = SetReports(
                    names, job.sets, make, sink, reading, order=order, read_ahead=read_ahead
                )
                self._feed(sources, sets, sets.summarisers)
                return sets.ends
            events = None if job.partials else job.expect_events
            analyses = self._analyses(
                resources, expect_events=events, expect_bytes=job.expect_bytes
            )
            partitions = Partitions(
                names,
                analyses.of_partition,
                partial(sink, None),
                order=order,
                read_ahead=read_ahead,
            )
            self._feed(sources, partitions, partitions.analyses)
        self.header = partitions.analyses[0].header
        return partitions.ends

    def _run_sections(self, sink: _JobSink, spill: SpillFiles) -> list[StreamEnd]:
        job = self._job
        with Sources(job.streams) as sources:
            read = sources.sources
            resources = self._resources(spill, self._threads)
            analyses = self._analyses(replace(resources, streams=self._mapped(read)))
            observe = section_observer(read, sources.total, self._observer)
            threads: OrderedThreads[Section, SectionResult] = OrderedThreads(self._threads)
            run = SectionedRun(analyses.of_section, self._threads, threads, partial(sink, None))
            ends = run.run(sections_of(read, job.policy, SECTION), observe)
        return [declared(end, job.expect_events, job.expect_bytes) for end in ends]

    def _mapped(self, sources: Sequence[Source]) -> MappedStreams | None:
        """The streams, if their losses can stay in the files until they are added up.

        They fill memory of the budget, if not that of the process, so they must fit in it.
        """
        job = self._job
        size = sum(source.size or 0 for source in sources)
        if job.partials or job.partial_out or size > job.memory_budget // 2:
            return None
        try:
            return MappedStreams(sources)
        except (OSError, ValueError):
            # Some file systems cannot map files: losses are copied, then.
            return None

    def _analyses(self, resources: LedgerResources, **expected: int | None) -> Analyses:
        job = self._job
        options = {
            "policy": job.policy,
            **job.inputs.to_dict(),
            "options": job.options,
            "resources": resources,
            **expected,
        }
        return Analyses(self._computed, options)

    @property
    def _computed(self) -> list[str]:
        """Reports to compute: those requested, and those that only taps take."""
        requested = self._job.reports
        return [*requested, *(tap for tap in self._taps if tap not in requested)]

    @property
    def merged_events(self) -> int:
        """Events of the streams and partial files that were merged."""
        return self._exchange.events

    def _spill_dir(self) -> Path:
        job = self._job
        if job.spill_dir is not None:
            return Path(job.spill_dir)
        out = Path(job.out)
        if job.out == STDOUT:
            return Path(tempfile.gettempdir())
        return out.parent if out.suffix == f".{job.format}" and not out.is_dir() else out

    def _resources(self, spill: SpillFiles, ledgers: int) -> LedgerResources:
        on_merged = self._exchange if self._exchange.wanted else None
        budget = self._job.memory_budget // ledgers
        shared = SharedArena(ledgers, budget) if ledgers > 1 else None
        return LedgerResources(
            budget, spill=spill, shared=shared, map=OrderedThreads(), on_merged=on_merged
        )

    def _merge(self, sink: Sink, resources: LedgerResources) -> None:
        """Compute the reports of partial files alone."""
        job = self._job
        header = self.header = partial_header(job.partials[0])
        reports = choose_reports(self._computed)
        check_kind(reports, header, job.partials[0])
        ledger = LedgerReports(reports, job.options, resources)
        ledger.begin(header, make_rules(header, job.policy), job.inputs.to_dict())
        ledger.finish(sink)

    def _feed(
        self,
        sources: Sources,
        partitions: Partitions | SetReports,
        readers: Sequence[Analysis | Summariser],
    ) -> None:
        observe = stream_observer(readers, sources.total, self._observer)
        preferred = partitions.slowest if self._job.order == "event" else None
        sources.feed(partitions, observe, preferred)


class MappedStreams:
    """Regular files, mapped into memory: the pages that the system keeps of them, not copied.

    The maps are watched: a file that is cut while it is read is an error.

    Args:
        sources: open files of a known size.

    Raises:
        OSError: a file cannot be mapped.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._watches: list[Watch | None] = []
        self._words: list[npt.NDArray[np.int32]] = []
        for source in sources:
            size = source.size or 0
            octets = mmap.mmap(source.fd, size, prot=mmap.PROT_READ) if size else b""
            words = np.frombuffer(octets, np.int32, size // 4)
            self._words.append(words)
            self._watches.append(watch(words.ctypes.data, size) if size else None)

    def __del__(self) -> None:
        # The watches end before the addresses can belong to other maps.
        self._watches.clear()

    def words(self, stream: int) -> npt.NDArray[np.int32]:
        """All words of a stream, by its index.

        Raises:
            InputError: the file is shorter or longer than it was when it was opened.
        """
        source = self._sources[stream]
        if os.fstat(source.fd).st_size != source.size:
            raise InputError("it changed while it was read", source=source.name)
        return self._words[stream]

    def check(self, stream: int) -> None:
        """Check that what was read since ``words`` was there.

        Raises:
            InputError: the file was cut meanwhile, or its disk failed.
        """
        found = self._watches[stream]
        if found is not None and (missing := found.missing()) is not None:
            text = f"its bytes from {missing // mmap.PAGESIZE * mmap.PAGESIZE} on were missing"
            raise InputError(f"{text}: it was cut, or the disk failed", source=self.name(stream))

    def name(self, stream: int) -> str:
        """What errors call a stream."""
        return self._sources[stream].name
