"""The ``summarise`` command: from item streams to streams of summaries."""

from __future__ import annotations

import argparse
import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from app.losses.outputs import STDOUT, Output, Outputs
from app.losses.parallel import OrderedThreads
from app.losses.pipes import PipeOutput
from app.losses.sections import (
    SECTION,
    WORTH_CUTTING,
    Observer,
    Progress,
    declared,
    file_size,
    section_observer,
    sections_of,
)
from app.losses.sources import Sources
from core.arrays import Octets, Rows
from core.errors import CoreError, InputError, OptionError
from core.losses.events import StreamEnd
from core.losses.format import ID_MAX
from core.losses.sections import Section
from core.losses.summaries import (
    JoinedSummaries,
    Reading,
    SectionedSummaries,
    SummarisedSection,
    SummarySets,
)

from .loss_inputs import read_sets
from .policy import policy_of
from .progress import progress_bar
from .reading import announce_compiling, log_ends, named_streams


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """One requested summarising."""

    streams: Sequence[str]
    sets: SummarySets
    out: str
    """Directory, or ``-`` for the stream of a single set on standard output."""
    reading: Reading = field(default_factory=Reading)
    idle_timeout: float | None = None
    threads: int | None = None
    """Threads for files; by default, the cores this process may use."""
    live: bool = False
    """Whether pipes get blocks before all streams are known to be whole."""


class _SummaryFiles:
    """A stream and an index for each set."""

    def __init__(self, job: SummaryJob, outputs: Outputs) -> None:
        self._streams: dict[int, Output] = {}
        self._indices: dict[int, Output] = {}
        for set_id in job.sets.set_ids:
            if job.out == STDOUT:
                self._streams[set_id] = outputs.open(STDOUT)
                continue
            path = Path(job.out, f"S{set_id}_summary.bin")
            self._streams[set_id] = outputs.open(path)
            self._indices[set_id] = outputs.open(path.with_suffix(".idx"))

    def write(self, set_id: int, octets: Octets) -> None:
        self._streams[set_id].write(octets.data)

    def write_index(self, set_id: int, rows: Rows) -> None:
        if set_id in self._indices:
            self._indices[set_id].write(rows.tobytes())

    def spoil(self) -> None:
        """End what readers have already got inside a block.

        A stream has no end marker: whole blocks alone would look like all of it.
        """
        for output in self._streams.values():
            if isinstance(output, PipeOutput):
                with suppress(OSError, InputError):
                    output.write(struct.pack("<i", ID_MAX))


_Run = Callable[[SummaryJob, Sources, _SummaryFiles, Observer | None], list[StreamEnd]]


def summarise(job: SummaryJob, observer: Observer | None = None) -> list[StreamEnd]:
    """Write ``S1_summary.bin`` and ``.idx`` for each set; return how each item stream ended.

    Where the output is a pipe that gets blocks at once, and a stream is faulty, it ends inside a
    block.

    Args:
        job: what to read and write.
        observer: called with the progress after each piece of a stream.

    Raises:
        OptionError: standard output is to take several streams.
        CoreError: a stream is faulty, or does not fit the xref; no file is written then.
    """
    if job.out == STDOUT and len(job.sets.set_ids) > 1:
        hint = "Choose one with --sets, or name a directory with --out"
        raise OptionError("standard output takes the stream of a single set", hint=hint)
    declared_ends = {job.reading.expect_events, job.reading.expect_bytes} - {None}
    if len(job.streams) > 1 and declared_ends:
        raise OptionError("expect_events and expect_bytes apply to a single stream only")
    threads = job.threads or len(os.sched_getaffinity(0))
    if threads > 1 and _can_be_cut(job):
        try:
            return _attempt(job, partial(_run_sections, threads=threads), observer)
        except InputError:
            # An output, not a stream: another pass would end there too.
            raise
        except (CoreError, OSError) as e:
            # As for reports: one pass finds the fault that comes first, or none.
            structlog.get_logger().debug("one pass follows that of all cores", reason=str(e))
    return _attempt(job, _run_streams, observer)


def _can_be_cut(job: SummaryJob) -> bool:
    """Whether all cores can share the pass, and start again if a cut is wrong."""
    return (
        not job.live
        and job.reading.policy.missing_end == "error"
        and sum(file_size(name) for name in job.streams) >= WORTH_CUTTING
    )


def _attempt(job: SummaryJob, run: _Run, observer: Observer | None) -> list[StreamEnd]:
    with Sources(job.streams, job.idle_timeout) as sources, Outputs(live=job.live) as outputs:
        files = _SummaryFiles(job, outputs)
        try:
            return run(job, sources, files, observer)
        except BaseException:
            files.spoil()
            raise


def _run_sections(
    job: SummaryJob,
    sources: Sources,
    files: _SummaryFiles,
    observer: Observer | None,
    *,
    threads: int,
) -> list[StreamEnd]:
    calls: OrderedThreads[Section, SummarisedSection] = OrderedThreads(threads)
    reading = job.reading
    summaries = SectionedSummaries(
        job.sets, files.write, reading, files.write_index, count=threads, map=calls
    )
    sections = sections_of(sources.sources, reading.policy, SECTION)
    ends = summaries.run(sections, section_observer(sources.sources, sources.total, observer))
    return [declared(end, reading.expect_events, reading.expect_bytes) for end in ends]


def _run_streams(
    job: SummaryJob, sources: Sources, files: _SummaryFiles, observer: Observer | None
) -> list[StreamEnd]:
    names = [source.name for source in sources.sources]
    summaries = JoinedSummaries(names, job.sets, files.write, job.reading, files.write_index)
    progress = Progress(sources.total)
    while (piece := sources.read()) is not None:
        part, data = piece
        if len(data):
            summaries.receive(part, data)
        else:
            summaries.close(part)
        if observer is not None:
            progress.bytes += len(data)
            progress.events = sum(summariser.events for summariser in summaries.summarisers)
            observer(progress)
    return summaries.ends


def summarise_command(args: argparse.Namespace) -> int:
    """Write the summaries of some item streams; return the exit code."""
    streams = named_streams(args)
    sets = read_sets(args)
    assert sets is not None  # noqa: S101 - the option of the xref is required
    reading = Reading(
        policy_of(args),
        zeros=args.zeros,
        expect_events=args.expect_events,
        expect_bytes=args.expect_bytes,
    )
    job = SummaryJob(
        streams=streams,
        sets=sets,
        out=args.out,
        reading=reading,
        idle_timeout=args.idle_timeout,
        threads=args.threads,
        live=args.live,
    )
    announce_compiling()
    start = time.perf_counter()
    with progress_bar(enabled=not args.no_progress) as observer:
        ends = summarise(job, observer)
    log_ends(streams, ends, time.perf_counter() - start, "summaries written")
    return 0
