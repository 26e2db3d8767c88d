"""The ``aggregate`` command: from loss streams to report files."""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import structlog

from app.losses.aggregation import Aggregation, Job
from app.losses.analyses import MANY
from app.losses.outputs import STDOUT, check_free
from app.losses.pictures.options import PictureOptions
from app.losses.selection import parse_selection
from app.losses.tables import FORMATS
from core.arrays import Rows
from core.errors import CoreError, OptionError
from core.losses.events import StreamEnd
from core.losses.format import SUMMARY_HEADER_SIZE
from core.losses.header import parse_header
from core.losses.inputs import Occurrence
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.reports import REPORTS, check_options, choose_reports
from core.losses.reports.report import RunOptions
from core.losses.summaries import SummarySets

from .loss_inputs import read_infos, read_inputs, read_sets
from .oasis_options import RUN_OPTIONS
from .reading import (
    announce_compiling,
    are_piped,
    log_ends,
    named_streams,
    policy_of,
    progress_bar,
    refuse_live,
)

if TYPE_CHECKING:
    from app.losses.pictures.drawing import PictureFiles


_USED = 0.1
"""Share of the periods of which the last with an event has more, if their number is right."""


def _log_events(rows: Rows) -> None:
    log = structlog.get_logger()
    for row in rows:
        log.debug("event", **{name: row[name].item() for name in rows.dtype.names or ()})


def _streams(args: argparse.Namespace) -> Sequence[str]:
    """Return the streams to read; none if there are partial files alone.

    Raises:
        OptionError: one is a report.
    """
    reports = [name for name in args.streams if name in REPORTS and not Path(name).exists()]
    if reports:
        names = ",".join([*(args.reports if args.given & {"report", "reports"} else ()), *reports])
        hint = f"Separate reports by commas: --reports {names}"
        raise OptionError(f"{reports[0]} is a report, and no file has this name", hint=hint)
    return [] if args.partials and not args.streams else named_streams(args)


def _format_of(args: argparse.Namespace, tables: int) -> str:
    """Return the format of so many tables, which the ending of a single file says, too.

    Raises:
        OptionError: there is no such format, or a file is to take several tables.
    """
    ending = Path(args.out).suffix.removeprefix(".")
    if args.out == STDOUT or not ending.isalpha() or Path(args.out).is_dir():
        return args.format or "csv"
    if args.format not in {None, ending} or ending not in FORMATS:
        formats = args.format or ", ".join(FORMATS)
        raise OptionError(
            f"--out {args.out} does not end in {formats}", hint="Name a directory, or such a file"
        )
    if tables > 1:
        hint = "Name a directory"
        if args.summary_xref:
            hint += "; if the stream is of summaries already, leave --summary-xref out"
        raise OptionError(f"--out {args.out} takes one of {tables} tables", hint=hint)
    return ending


def job_of(args: argparse.Namespace, sets: SummarySets | None) -> Job:
    """Return the job that options say; their sets have been read.

    Raises:
        CoreError: they are wrong, or a file is.
    """
    tables = len(args.reports) * (1 if sets is None else len(sets.set_ids))
    return Job(
        streams=_streams(args),
        reports=args.reports,
        out=args.out,
        format=_format_of(args, tables),
        policy=policy_of(args, event_order="ascending" if args.order == "event" else "any"),
        inputs=read_inputs(args),
        sets=sets,
        infos=read_infos(args, sets),
        selection=parse_selection(args.summary_ids, args.event_ids),
        options=RunOptions(args.confidence, args.curves, args.tvar),
        order=args.order,
        memory_budget=args.memory_budget,
        spill_dir=args.spill_dir,
        partials=args.partials,
        partial_out=args.partial_out,
        expect_events=args.expect_events,
        expect_bytes=args.expect_bytes,
        read_ahead=args.read_ahead,
        idle_timeout=args.idle_timeout,
        threads=args.threads,
        live=args.live,
        force=args.force,
    )


_NEEDS = {
    "no_of_periods": "occurrence",
    "summary_map": "summary_xref",
    "sets": "summary_xref",
    "engine_dir": "engine",
    **dict.fromkeys(
        ("plot_format", "plot_summaries", "plot_tvar", "theme", "perspective", "currency"), "plot"
    ),
    **dict.fromkeys(RUN_OPTIONS, "run_dir"),
}
"""Options that have an effect only with another one."""


def aggregate(args: argparse.Namespace) -> int:
    """Compute the reports of some streams; return the exit code."""
    for name in sorted(args.given & _NEEDS.keys()):
        if _NEEDS[name] not in args.given:
            option, need = (f"--{one.replace('_', '-')}" for one in (name, _NEEDS[name]))
            raise OptionError(f"{option} applies only with {need}", hint="Add it, or leave it out")
    if "read_ahead" in args.given and args.order != "event":
        raise OptionError("--read-ahead applies only with --order event", hint="Leave it out")
    if args.engine is None:
        return _aggregate(args)
    from .spread import partials  # noqa: PLC0415 - the parts of a service

    with partials(args) as found:
        added = {"streams": [], "partials": [*args.partials, *found]}
        return _aggregate(argparse.Namespace(**vars(args) | added))


def _aggregate(args: argparse.Namespace) -> int:
    sets = read_sets(args)
    pictures = _pictures(args, sets)
    job = job_of(args, sets)
    taps = {} if pictures is None else dict(pictures.taps)
    reports = choose_reports([*dict.fromkeys((*job.reports, *taps))])
    check_options(reports, job.options, args.given)
    refuse_live(args, [*job.tables.values(), *filter(None, [job.partial_out])])
    if not (job.partials or job.partial_out or any(report.calculate for report in reports)):
        _refuse_memory(args, job)
    streams = job.streams
    announce_compiling()
    if args.log_level == "debug":
        taps["events"] = _log_events
    start = time.perf_counter()
    with progress_bar(enabled=not args.no_progress) as observer:
        aggregation = Aggregation(job, observer, taps)
        _log_bound(job)
        ends = aggregation.run()
    log_ends(streams, ends, time.perf_counter() - start, "reports written")
    log = structlog.get_logger()
    if job.selection and not aggregation.chosen.count:
        log.warning("no row is of the chosen summaries and events: the tables are empty")
    for name, ids in aggregation.chosen.missing.items():
        option = name.removeprefix("missing_").replace("_", "-")
        log.warning("no row has these of an option", option=f"--{option}", ids=ids)
    longest = job.inputs.longest_return_period
    if longest is not None:
        log.warning(
            "the periods are too few for longer return periods, except by full uncertainty",
            years=longest,
        )
    if bare := sum(end.blocks_without_exposure for end in ends):
        text = "blocks with losses have exposure 0, so they have no rows in MELT and QELT"
        log.warning(text, blocks=bare, of=sum(end.blocks for end in ends))
    if job.partials:
        log.info("partial files merged", files=len(job.partials), events=aggregation.merged_events)
    if job.inputs.occurrence is not None:
        _log_occurrences(ends, job.inputs.occurrence, aggregation.merged_events)
    if pictures is not None:
        header = aggregation.header
        of_streams = None if header is None else header.summary_set
        _write_pictures(pictures, of_streams if sets is None else sets.set_ids[0])
    return 0


def _refuse_memory(args: argparse.Namespace, job: Job) -> None:
    """Refuse options of sums, where there are none; a pipe that waits spills, too.

    Raises:
        OptionError: one is given.
    """
    waits = not job.live and are_piped(job.tables.values())
    for name in sorted(args.given & {"memory_budget", *(() if waits else ("spill_dir",))}):
        raise OptionError(
            f"--{name.replace('_', '-')} is of reports of whole runs, and none is wanted",
            hint="Leave it out, or add a report such as aal",
        )


def _pictures(args: argparse.Namespace, sets: SummarySets | None) -> PictureFiles | None:
    if args.plot is None:
        return None
    from app.losses.pictures.drawing import PictureFiles  # noqa: PLC0415 - most jobs draw nothing

    if sets is not None and len(sets.set_ids) > 1:
        raise OptionError("pictures are of one summary set", hint="Choose it with --sets")
    options = PictureOptions(
        form=args.plot_format,
        theme=args.theme,
        chosen_by="plot_summaries",
        summary_ids=parse_selection(args.plot_summaries or args.summary_ids, None).summary_ids,
        tail_means=args.plot_tvar,
        confidence=args.confidence,
        perspective=args.perspective,
        currency=args.currency,
    )
    pictures = PictureFiles(args.plot, args.reports, options)
    forms = {path.suffix.lower() for path in pictures.paths.values()}
    if "plot_format" in args.given and forms != {f".{args.plot_format}"}:
        raise OptionError(
            f"--plot {args.plot} is not {args.plot_format}", hint="Leave --plot-format out"
        )
    check_free(pictures.paths.values(), force=args.force)
    return pictures


def _write_pictures(pictures: PictureFiles, summary_set: int | None) -> None:
    log = structlog.get_logger()
    try:
        paths = pictures.write(summary_set)
    except CoreError:
        log.warning("the tables are complete, but the pictures are not drawn")
        raise
    for path in paths:
        log.info("picture drawn", file=str(path))


def _log_bound(job: Job) -> None:
    """State how large the sums of whole runs can become, if the first stream is a file."""
    occurrence = job.inputs.occurrence
    needs_sums = any(REPORTS[name].calculate is not None for name in job.reports)
    if occurrence is None or not needs_sums or not (job.streams and Path(job.streams[0]).is_file()):
        return
    header = None
    # What is wrong with the stream, the pass says.
    with contextlib.suppress(CoreError, OSError), Path(job.streams[0]).open("rb") as file:
        header = parse_header(file.read(SUMMARY_HEADER_SIZE), job.policy, job.streams[0])
    if header is None:
        return
    summaries = None if job.sets is None else job.sets.summaries
    calendar = make_calendar(occurrence)
    bound = ledger_bound(calendar, header.len_sample, header.float_width, summaries or 1)
    structlog.get_logger().info(
        "memory bound of the run" if summaries else "memory bound per summary",
        bytes=bound.state_bytes,
        memory=bound.least_budget,
        **({"summaries": summaries} if summaries else {}),
    )


def _log_occurrences(ends: Sequence[StreamEnd], occurrence: Occurrence, merged: int) -> None:
    """Tell which events streams, or all that was merged, and occurrences do not have in common."""
    log = structlog.get_logger()
    events = merged or sum(end.events for end in ends)
    absent = sum(end.events_without_occurrence or 0 for end in ends)
    if absent:
        log.warning("events never occur, so they have no rows by period", events=absent, of=events)
    last = int(occurrence.period_numbers.max(initial=1))
    if last < _USED * occurrence.periods:
        text = "no event occurs in the last nine tenths of the periods: is their number right?"
        log.warning(text, periods=occurrence.periods, last_used=last)
    occurring = len(np.unique(occurrence.event_ids))
    # With summary sets, events without a summary count as occurring.
    unused = max(occurring - (events - absent), 0)
    if unused:
        text, level = "events of the occurrence file are not in the streams", logging.INFO
        if unused >= MANY * occurring:
            text, level = f"{text}: is a partition missing?", logging.WARNING
        log.log(level, text, events=unused, of=occurring)
