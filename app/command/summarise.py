"""The ``summarise`` command: from item streams to streams of summaries."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app.losses import sections
from app.losses.analyses import OrderedThreads
from app.losses.outputs import STDOUT, Outputs, SummaryFiles, check_free
from app.losses.sections import SECTION, Observer
from app.losses.sources import Sources
from core.errors import OptionError
from core.losses.events import StreamEnd
from core.losses.sections import Section
from core.losses.summaries import (
    JoinedSummaries,
    Reading,
    SectionedSummaries,
    SummarisedSection,
    SummarySets,
)

from .loss_inputs import read_sets
from .reading import (
    announce_compiling,
    log_ends,
    named_streams,
    policy_of,
    progress_bar,
    refuse_live,
)


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
    force: bool = True
    """Whether to replace files."""

    @property
    def paths(self) -> dict[int, str]:
        """Where the stream of each summary set goes."""
        return {
            number: STDOUT if self.out == STDOUT else str(Path(self.out, f"S{number}_summary.bin"))
            for number in self.sets.set_ids
        }


_Run = Callable[[SummaryJob, Sources, SummaryFiles, Observer | None], list[StreamEnd]]


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
    check_free(map(Path, set(job.paths.values()) - {STDOUT}), force=job.force)
    declared_ends = {job.reading.expect_events, job.reading.expect_bytes} - {None}
    if len(job.streams) > 1 and declared_ends:
        raise OptionError("expect_events and expect_bytes apply to a single stream only")
    threads = job.threads or len(os.sched_getaffinity(0))
    cut = None
    if not job.live and sections.are_worth_cutting(job.streams, job.reading.policy, threads):
        cut = partial(_attempt, job, partial(_run_sections, threads=threads), observer)
    return sections.cut_or_whole(cut, partial(_attempt, job, _run_streams, observer))


def _attempt(job: SummaryJob, run: _Run, observer: Observer | None) -> list[StreamEnd]:
    with (
        Sources(job.streams, job.idle_timeout) as sources,
        Outputs(live=job.live) as outputs,
        SummaryFiles(outputs, job.paths, indexed=job.out != STDOUT) as files,
    ):
        return run(job, sources, files, observer)


def _run_sections(
    job: SummaryJob,
    sources: Sources,
    files: SummaryFiles,
    observer: Observer | None,
    *,
    threads: int,
) -> list[StreamEnd]:
    calls: OrderedThreads[Section, SummarisedSection] = OrderedThreads(threads)
    reading = job.reading
    summaries = SectionedSummaries(
        job.sets, files.write, reading, files.write_index, count=threads, map=calls
    )
    cuts = sections.sections_of(sources.sources, reading.policy, SECTION)
    ends = summaries.run(cuts, sections.section_observer(sources.sources, sources.total, observer))
    return [sections.declared(end, reading.expect_events, reading.expect_bytes) for end in ends]


def _run_streams(
    job: SummaryJob, sources: Sources, files: SummaryFiles, observer: Observer | None
) -> list[StreamEnd]:
    names = [source.name for source in sources.sources]
    summaries = JoinedSummaries(names, job.sets, files.write, job.reading, files.write_index)
    sources.feed(
        summaries, sections.stream_observer(summaries.summarisers, sources.total, observer)
    )
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
        force=args.force,
    )
    refuse_live(args, job.paths.values())
    announce_compiling()
    start = time.perf_counter()
    with progress_bar(enabled=not args.no_progress) as observer:
        ends = summarise(job, observer)
    log_ends(streams, ends, time.perf_counter() - start, "summaries written")
    return 0
