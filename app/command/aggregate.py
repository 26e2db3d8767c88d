"""The ``aggregate`` command: from loss streams to report files."""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from app.engine.warmup import warm_kernels
from app.losses.aggregation import Aggregation, Job
from app.losses.sources import STDIN, read_file
from core._jit import is_build_published
from core.arrays import Rows
from core.errors import OptionError
from core.losses.events import Completeness, StreamEnd
from core.losses.inputs import (
    EventRates,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)

from .policy import policy_of
from .progress import progress_bar


def _event_rates(args: argparse.Namespace) -> EventRates | None:
    if args.no_of_periods is not None and not args.occurrence:
        raise OptionError("--no-of-periods applies only to --occurrence")
    if args.event_rates:
        return parse_event_rates(read_file(args.event_rates), args.event_rates)
    if args.occurrence:
        data = read_file(args.occurrence)
        return parse_occurrence(data, args.no_of_periods, args.occurrence).event_rates()
    return None


def _quantiles(text: str | None) -> Any:  # noqa: ANN401 - an array or None
    if text is None:
        return None
    if set(text) <= set("0123456789.eE+-, ") and not Path(text).exists():
        return quantiles_from_text(text, "--quantiles")
    return parse_quantiles(read_file(text), text)


def _log_events(rows: Rows) -> None:
    log = structlog.get_logger()
    for row in rows:
        log.debug("event", **{name: row[name].item() for name in rows.dtype.names or ()})


def _streams(args: argparse.Namespace) -> Sequence[str]:
    """Return the streams to read: those named, else standard input if it is redirected."""
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
        quantiles=_quantiles(args.quantiles),
        event_rates=_event_rates(args),
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
        ends = Aggregation(job, observer, taps).run()
    _log_ends(streams, ends, time.perf_counter() - start)
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
