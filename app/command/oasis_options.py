"""Options of ``aggregate`` that are about run directories, and of ``oasis``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def add_options(group: argparse._ActionsContainer, options: Mapping[str, Sequence[Any]]) -> None:
    """Add a table of options.

    Args:
        group: of a parser, or the parser itself.
        options: by names and what stands for a value, such as ``-o --out DIR``: the help, and what
            parses a value, or the values in a text, of which the first is the default; a dict has
            what else argparse takes. Without any of these it is a switch.
    """
    for words, (text, *facts) in options.items():
        names = [word for word in words.split() if word.startswith("-")]
        keywords: dict[str, Any] = dict(zip(["metavar"], words.split()[len(names) :], strict=False))
        for fact in facts:
            if isinstance(fact, str):
                first, *_ = values = fact.split()
                keywords |= {
                    "choices": values,
                    "default": first,
                    "help": f"{text} (default {first})",
                }
            else:
                keywords |= fact if isinstance(fact, dict) else {"type": fact}
        group.add_argument(*names, **{"help": text, **(keywords or {"action": "store_true"})})


_RUN_DIRECTORY = {
    "--run-dir DIR": ("directory of a run", Path),
    "--stream NAME=FILE": (
        (
            "a stream of items, such as gul=FILE or ri_IP1=FILE, or of summaries, gul_S1=FILE; - is"
            " standard input; repeat it for each partition (default: DIR/fifo/gul_P1, _P2, ...)"
        ),
        {"action": "append", "default": []},
    ),
    "--run-out DIR": ("folder of the outputs (default DIR/output)", Path),
    "--join-summary-info": ("join the summary info to all outputs",),
    "--unsorted": ("write rows as they arise, not by event",),
    "--chunk K/N": ("leave mergeable files of process K of N instead of outputs", _chunk),
    "--merge-chunks N": ("write the outputs of N chunks", int),
    "--service-plan": ("print how a service computes the outputs, as JSON, and compute nothing",),
    "--tables DIR": (
        "write the outputs from tables that a service has computed by this plan",
        Path,
    ),
    "--work-dir DIR": (
        "folder of the files of chunks (default DIR/K.work, and DIR/work to merge them)",
        Path,
    ),
    "--confirm FIFO": (
        "complete the outputs only after 'complete' has been written to this fifo",
        Path,
    ),
    "--differing-events": (
        "with --confirm, accept perspectives that differ in their number of events",
    ),
    "--log-file FILE": ("log to a file instead of standard error; - for stdout",),
}


def add_run_directory(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``aggregate`` for run directories of Oasis."""
    group = parser.add_argument_group(
        "run directories of Oasis",
        "Reports, sets, inputs and formats are those of the run's settings; of the other options"
        " those about accepted values, --format, --memory-budget, --spill-dir and --idle-timeout"
        " apply.",
    )
    add_options(group, _RUN_DIRECTORY)


def add_oasis(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``oasis``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "write a model runner that aggregates losses with Thalweg"
    runner = actions.add_parser("runner", help=text)
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
    text = "run directory, folder of tables, or table"
    compare.add_argument("a", type=Path, metavar="A", help=text)
    compare.add_argument("b", type=Path, metavar="B", help="the same of the other run")
    text = "relative tolerance of numbers, beside one unit of the last digit of csv (default 1e-05)"
    compare.add_argument("--tolerance", type=float, default=1e-5, metavar="T", help=text)
    text = "rows to show of each table (default 5)"
    compare.add_argument("--rows", type=int, default=5, metavar="N", help=text)
