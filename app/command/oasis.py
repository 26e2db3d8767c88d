"""``aggregate --run-dir`` and ``oasis``: outputs of Oasis runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TextIO

import structlog

from app.losses.analyses import OrderedThreads
from app.losses.spilling import SpillFiles
from app.oasis.aggregation import RunAggregation, RunJob
from app.oasis.chunks import merge_chunks
from app.oasis.confirming import Confirmation
from app.oasis.directory import RunDirectory
from app.oasis.files import failing_as
from app.oasis.outputs import FLOAT_VARIABLE, FLOAT_WIDTHS, in_words_of_runs
from app.oasis.service_plan import service_plan, write_fetched
from app.oasis.streams import StreamOption
from core.errors import CoreError, OptionError
from core.losses.finishing import LedgerResources

from .oasis_options import RUN_OPTIONS
from .reading import announce_compiling, log_ends, policy_of

EXIT_TIES = 3
"""Two runs are equal but for ties."""
IDLE_SECONDS = 600.0
"""Without a byte from any stream for so long, nobody writes them."""
_APPLY = {
    *(*RUN_OPTIONS, "run_dir", "format", "memory_budget", "spill_dir", "idle_timeout"),
    *("float_width", "nan", "negative", "sample_order", "missing_end", "max_samples"),
    *("no_progress", "log_level"),
}
_FORMATS = ("csv", "parquet", "bin")


def aggregate_run(args: argparse.Namespace) -> int:
    """Write the outputs of a run directory; return the exit code."""
    _check(args)
    if args.log_file is not None:
        _log_to(args.log_file)
    if args.service_plan:
        print(json.dumps(service_plan(_directory(args), policy_of(args))))  # noqa: T201 - the command's output
        return 0
    announce_compiling()
    start = time.perf_counter()
    if args.merge_chunks is not None or args.tables is not None:
        paths = _write_tables(args)
        seconds = round(time.perf_counter() - start, 3)
        structlog.get_logger().info("outputs written", files=len(paths), seconds=seconds)
        return 0
    confirmation = None
    if args.confirm is not None:
        confirmation = Confirmation(args.confirm, same_events=not args.differing_events)
    job = RunJob(
        directory=_directory(args),
        out=_out(args),
        streams=[StreamOption.parse(text) for text in args.stream],
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
    try:
        ends = aggregation.run()
    except CoreError as e:
        e.hint = None if e.hint is None else in_words_of_runs(e.hint)
        raise
    log_ends(aggregation.names, ends, time.perf_counter() - start, "outputs written")
    return 0


def _directory(args: argparse.Namespace) -> RunDirectory:
    return RunDirectory(args.run_dir, args.format, join=args.join_summary_info)


def _out(args: argparse.Namespace) -> Path:
    return Path(args.run_out or args.run_dir / "output")


def _write_tables(args: argparse.Namespace) -> list[Path]:
    directory, out = _directory(args), _out(args)
    if args.tables is not None:
        return write_fetched(directory, out, args.tables)
    work = args.work_dir or args.run_dir / "work"
    with closing(SpillFiles(Path(args.spill_dir or out))) as spill:
        use = LedgerResources(args.memory_budget, spill=spill, map=OrderedThreads())
        return merge_chunks(directory, out, work, args.merge_chunks, use, policy_of(args))


def _check(args: argparse.Namespace) -> None:
    """Refuse options that the settings of the run decide."""
    if args.streams:
        raise OptionError("a run directory has named streams", hint="Use --stream NAME=FILE")
    for name in sorted(args.given - _APPLY):
        option = name.replace("_", "-")
        raise OptionError(f"--{option} does not apply to --run-dir: the settings decide")
    if args.float_width > FLOAT_WIDTHS.get(os.environ.get(FLOAT_VARIABLE, "f4"), args.float_width):
        hint = f"Set {FLOAT_VARIABLE}=f{args.float_width}, as all tools of the run read it"
        raise OptionError("--float-width does not apply to --run-dir", hint=hint)
    if args.format not in (None, *_FORMATS):
        raise OptionError(f"outputs of a run are {', '.join(_FORMATS)}, not {args.format}")
    if args.chunk is not None and args.merge_chunks is not None:
        raise OptionError("--chunk and --merge-chunks exclude each other")
    modes = {
        "--merge-chunks": args.merge_chunks is not None,
        "--service-plan": args.service_plan,
        "--tables": args.tables is not None,
    }
    chosen = [name for name, value in modes.items() if value]
    if len(chosen) > 1:
        raise OptionError(f"{' and '.join(chosen)} exclude each other")
    if chosen and args.stream:
        raise OptionError(f"{chosen[0]} reads no streams")
    of_service = args.service_plan or args.tables is not None
    if of_service and args.given & {"spill_dir", "memory_budget"}:
        raise OptionError(
            "--memory-budget and --spill-dir are not options of runs of a service",
            hint="Sums are in the service's memory, which its operator bounds",
        )


def _log_to(name: str) -> None:
    """Log plain lines to a file, or to standard output for ``-``."""
    with failing_as("cannot be written", name):
        file: TextIO = sys.stdout if name == "-" else open(name, "a")  # noqa: SIM115, PTH123 - for the life of the process
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(file),
    )


def oasis(args: argparse.Namespace) -> int:
    """Write what a model needs to use Thalweg, or compare runs; return the exit code."""
    if args.action == "shims":
        return _shims(args.folder)
    if args.action == "compare":
        return _compare(args)
    from app.oasis.runner import write_runner  # noqa: PLC0415 - of this action alone

    print(write_runner(args.folder, force=args.force))  # noqa: T201 - the command's output
    return 0


def _shims(folder: Path) -> int:
    from app.engine.warmup import warm_kernels  # noqa: PLC0415 - of this action alone
    from app.oasis.shims.installing import write_shims  # noqa: PLC0415 - as above

    announce_compiling()
    warm_kernels()
    for path in write_shims(folder):
        print(path)  # noqa: T201 - the command's output
    print(f'export PATH="{folder.resolve()}:$PATH"')  # noqa: T201 - as above
    return 0


def _compare(args: argparse.Namespace) -> int:
    """Print how each table of two runs compares, and return the worst as exit code."""
    from app.oasis.comparing import Verdict, compare_runs  # noqa: PLC0415 - of this action alone

    words = {
        Verdict.EQUAL: "equal",
        Verdict.CLOSE: f"equal within {args.tolerance:g}",
        Verdict.TIES: "equal but for ties",
        Verdict.DIFFERENT: "DIFFERENT",
    }
    worst = Verdict.EQUAL
    for table in compare_runs(args.a, args.b, tolerance=args.tolerance, limit=args.rows):
        worst = max(worst, table.verdict)
        detail = f": {table.detail}" if table.detail else ""
        print(f"{table.name}  {words[table.verdict]}{detail}")  # noqa: T201 - the command's output
        for row in table.rows:
            print(f"    {row}")  # noqa: T201 - as above
    return {Verdict.DIFFERENT: 1, Verdict.TIES: EXIT_TIES}.get(worst, 0)
