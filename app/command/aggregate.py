"""The ``aggregate`` command: from loss streams to report files."""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Callable, Sequence

import numpy as np
import structlog

from app.engine.warmup import warm_kernels
from app.losses.aggregation import Aggregation, Job
from app.losses.sources import STDIN
from core._jit import is_build_published
from core.arrays import Rows
from core.losses.events import Completeness, StreamEnd
from core.losses.inputs import Occurrence
from core.losses.reports.running import RunOptions

from .loss_inputs import read_inputs
from .policy import policy_of
from .progress import progress_bar


def _log_events(rows: Rows) -> None:
    log = structlog.get_logger()
    for row in rows:
        log.debug("event", **{name: row[name].item() for name in rows.dtype.names or ()})


def _streams(args: argparse.Namespace) -> Sequence[str]:
    """Return the streams to read: those named, else standard input if it is redirected."""
    if args.partials and not args.streams:
        return []
    if not args.streams and not _is_piped():
        args.usage_error("no stream is named: name files or fifos, or pipe a stream in")
    return args.streams or [STDIN]


def _is_piped() -> bool:
    """Whether standard input is a pipe, file or socket rather than a terminal or /dev/null."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def aggregate(args: argparse.Namespace) -> int:
    """Compute the reports of some streams; return the exit code."""
    streams = _streams(args)
    job = Job(
        streams=streams,
        reports=args.reports,
        out=args.out,
        format=args.format,
        policy=policy_of(args, event_order="ascending" if args.order == "event" else "any"),
        order=args.order,
        inputs=read_inputs(args),
        options=RunOptions(args.confidence, args.curves, args.tvar),
        memory_budget=args.memory_budget,
        spill_dir=args.spill_dir,
        partials=args.partials,
        partial_out=args.partial_out,
        expect_events=args.expect_events,
        expect_bytes=args.expect_bytes,
        read_ahead=args.read_ahead,
        idle_timeout=args.idle_timeout,
    )
    log = structlog.get_logger()
    if not is_build_published():
        log.info("compiling kernels, once per machine", hint="This takes about half a minute")
        warm_kernels()
    taps: dict[str, Callable[[Rows], None]] = {}
    if args.log_level == "debug":
        taps["events"] = _log_events
    start = time.perf_counter()
    with progress_bar(enabled=not args.no_progress) as observer:
        aggregation = Aggregation(job, observer, taps)
        ends = aggregation.run()
    _log_ends(streams, ends, time.perf_counter() - start)
    if job.partials:
        log.info("partial files merged", files=len(job.partials), events=aggregation.merged_events)
    elif job.inputs.occurrence is not None:
        _log_occurrences(ends, job.inputs.occurrence)
    return 0


def _log_ends(names: Sequence[str], ends: Sequence[StreamEnd], seconds: float) -> None:
    log = structlog.get_logger()
    for name, end in zip(names, ends, strict=True):
        log.info(
            "stream read",
            stream=name,
            completeness=end.completeness.value,
            events=end.events,
            blocks=end.blocks,
            bytes=end.bytes,
            ascending=end.ascending,
        )
        if end.completeness is Completeness.UNDECLARED:
            log.debug("a missing end would go unnoticed", hint="Pass --expect-events N")
    total = sum(end.bytes for end in ends)
    log.info("reports written", seconds=round(seconds, 3), mb_per_s=round(total / seconds / 1e6, 1))


def _log_occurrences(ends: Sequence[StreamEnd], occurrence: Occurrence) -> None:
    """Tell which events streams and occurrences do not have in common."""
    log = structlog.get_logger()
    events = sum(end.events for end in ends)
    absent = sum(end.events_without_occurrence or 0 for end in ends)
    if absent:
        log.warning("events have no occurrence, and so no rows by period", events=absent, of=events)
    occurring = len(np.unique(occurrence.event_ids))
    unused = occurring - (events - absent)
    if unused:
        log.info("occurrences are of events that no stream has", events=unused, of=occurring)
