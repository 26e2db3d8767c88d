"""The ``summarise`` command: from item streams to streams of summaries."""

from __future__ import annotations

import argparse
import time

from app.losses.summarising import SummaryJob, summarise
from core.losses.summaries import Reading

from .loss_inputs import read_sets
from .policy import policy_of
from .progress import progress_bar
from .reading import announce_compiling, log_ends, named_streams


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
