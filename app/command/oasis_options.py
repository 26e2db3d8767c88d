"""Options of ``aggregate`` that are about run directories, and of ``oasis``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

RUN_OPTIONS = (
    *("stream", "run_out", "join_summary_info", "unsorted", "chunk", "merge_chunks", "tables"),
    *("service_plan", "work_dir", "confirm", "differing_events", "log_file"),
)
"""Options of run directories alone."""
_CHUNK = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", re.ASCII)


def _chunk(text: str) -> tuple[int, int]:
    match = _CHUNK.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a chunk such as 2/4")
    return int(match[1]), int(match[2])


def add_run_directory(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``aggregate`` for run directories of Oasis."""
    group = parser.add_argument_group(
        "run directories of Oasis",
        "Reports, sets, inputs and formats are those of the run's settings; of the other options"
        " those about accepted values, --format, --memory-budget, --spill-dir and --idle-timeout"
        " apply.",
    )
    group.add_argument("--run-dir", type=Path, metavar="DIR", help="directory of a run")
    group.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a stream of items, such as gul=FILE or ri_IP1=FILE, or of summaries, gul_S1=FILE; -"
        " is standard input; repeat it for each partition (default: DIR/fifo/gul_P1, _P2, ...)",
    )
    group.add_argument(
        "--run-out", type=Path, metavar="DIR", help="folder of the outputs (default DIR/output)"
    )
    group.add_argument(
        "--join-summary-info", action="store_true", help="join the summary info to all outputs"
    )
    group.add_argument(
        "--unsorted", action="store_true", help="write rows as they arise, not by event"
    )
    group.add_argument(
        "--chunk",
        type=_chunk,
        metavar="K/N",
        help="leave mergeable files of process K of N instead of outputs",
    )
    group.add_argument(
        "--merge-chunks", type=int, metavar="N", help="write the outputs of N chunks"
    )
    group.add_argument(
        "--service-plan",
        action="store_true",
        help="print how a service computes the outputs, as JSON, and compute nothing",
    )
    group.add_argument(
        "--tables",
        type=Path,
        metavar="DIR",
        help="write the outputs from tables that a service has computed by this plan",
    )
    group.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder of the files of chunks (default DIR/K.work, and DIR/work to merge them)",
    )
    group.add_argument(
        "--confirm",
        type=Path,
        metavar="FIFO",
        help="complete the outputs only after 'complete' has been written to this fifo",
    )
    group.add_argument(
        "--differing-events",
        action="store_true",
        help="with --confirm, accept perspectives that differ in their number of events",
    )
    group.add_argument(
        "--log-file", metavar="FILE", help="log to a file instead of standard error; - for stdout"
    )


def add_oasis(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``oasis``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    runner = actions.add_parser(
        "runner", help="write a model runner that aggregates losses with Thalweg"
    )
    runner.add_argument("folder", type=Path, metavar="DIR", help="model package directory")
    runner.add_argument("--force", action="store_true", help="replace a runner of somebody else")
    shims = actions.add_parser("shims", help="write executables with the names of Oasis' tools")
    shims.add_argument("folder", type=Path, metavar="DIR", help="directory to put first on PATH")
    compare = actions.add_parser(
        "compare",
        help="compare the outputs of two runs",
        description="Compare the outputs of two runs, table by table: equal, equal within the"
        " tolerance, equal but for ties, or different, with the first rows that differ. Exit codes:"
        " 0 equal or within the tolerance, 3 equal but for ties, 1 different.",
    )
    compare.add_argument(
        "a", type=Path, metavar="A", help="run directory, folder of tables, or table"
    )
    compare.add_argument("b", type=Path, metavar="B", help="the same of the other run")
    compare.add_argument(
        "--tolerance",
        type=float,
        default=1e-5,
        metavar="T",
        help="relative tolerance of numbers, beside one unit of the last digit of csv"
        " (default %(default)s)",
    )
    compare.add_argument(
        "--rows", type=int, default=5, metavar="N", help="rows to show of each table (default 5)"
    )
