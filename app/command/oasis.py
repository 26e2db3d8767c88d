"""``aggregate --run-dir`` and ``oasis``: outputs of Oasis runs."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TextIO

import structlog

from app.oasis.aggregation import RunAggregation, RunJob
from app.oasis.chunks import MergeChunksJob, merge_chunks
from app.oasis.confirming import Confirmation
from app.oasis.streams import StreamOption
from core.errors import InputError, OptionError

from .policy import policy_of
from .reading import compile_kernels, log_ends

IDLE_SECONDS = 600.0
"""Without a byte from any stream for so long, nobody writes them."""
_ELSEWHERE = ("reports", "out", "occurrence", "periods", "return_periods", "quantiles")
_ALSO_ELSEWHERE = ("event_rates", "summary_xref", "summary_map", "sets", "summary_info", "plot")
_FORMATS = ("csv", "parquet", "bin")


def aggregate_run(args: argparse.Namespace) -> int:
    """Write the outputs of a run directory; return the exit code."""
    _check(args)
    if args.log_file is not None:
        _log_to(args.log_file)
    compile_kernels()
    start = time.perf_counter()
    if args.merge_chunks is not None:
        merge = MergeChunksJob(
            directory=args.run_dir,
            chunks=args.merge_chunks,
            work=args.work_dir,
            form=args.format,
            join=args.join_summary_info,
            out=args.run_out,
            memory_budget=args.memory_budget,
            policy=policy_of(args),
        )
        paths = merge_chunks(merge)
        seconds = round(time.perf_counter() - start, 3)
        structlog.get_logger().info("outputs written", files=len(paths), seconds=seconds)
        return 0
    confirmation = None
    if args.confirm is not None:
        confirmation = Confirmation(args.confirm, same_events=not args.differing_events)
    job = RunJob(
        directory=args.run_dir,
        streams=[StreamOption.parse(text) for text in args.stream],
        form=args.format,
        join=args.join_summary_info,
        out=args.run_out,
        policy=policy_of(args),
        sort=not args.unsorted,
        chunk=args.chunk,
        work=args.work_dir,
        memory_budget=args.memory_budget,
        spill_dir=None if args.spill_dir is None else Path(args.spill_dir),
        idle_timeout=IDLE_SECONDS if args.idle_timeout is None else args.idle_timeout,
        confirm=None if confirmation is None else confirmation.wait,
    )
    aggregation = RunAggregation(job)
    ends = aggregation.run()
    log_ends(aggregation.names, ends, time.perf_counter() - start, "outputs written")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that the settings of the run decide."""
    if args.streams:
        raise OptionError("a run directory has named streams", hint="Use --stream NAME=FILE")
    defaults = {"reports": ["events"], "out": "-"}
    for name in (*_ELSEWHERE, *_ALSO_ELSEWHERE):
        if getattr(args, name) != defaults.get(name) and getattr(args, name):
            option = name.replace("_", "-")
            raise OptionError(f"--{option} does not apply to --run-dir: the settings decide")
    if args.format not in (None, *_FORMATS):
        raise OptionError(f"outputs of a run are {', '.join(_FORMATS)}, not {args.format}")
    if args.chunk is not None and args.merge_chunks is not None:
        raise OptionError("--chunk and --merge-chunks exclude each other")
    if args.merge_chunks is not None and args.stream:
        raise OptionError("--merge-chunks reads no streams")


def _log_to(name: str) -> None:
    """Log plain lines to a file, or to standard output for ``-``."""
    try:
        file: TextIO = sys.stdout if name == "-" else open(name, "a")  # noqa: SIM115, PTH123 - for the life of the process
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", source=name) from e
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(file),
    )


def oasis(args: argparse.Namespace) -> int:
    """Write what a model needs to use Thalweg; return the exit code."""
    if args.action == "shims":
        return _shims(args.folder)
    from app.oasis.runner import write_runner  # noqa: PLC0415 - of this action alone

    print(write_runner(args.folder, force=args.force))  # noqa: T201 - the command's output
    return 0


def _shims(folder: Path) -> int:
    from app.oasis.shims.installing import write_shims  # noqa: PLC0415 - of this action alone

    compile_kernels()
    for path in write_shims(folder):
        print(path)  # noqa: T201 - the command's output
    print(f'export PATH="{folder.resolve()}:$PATH"')  # noqa: T201 - as above
    return 0
