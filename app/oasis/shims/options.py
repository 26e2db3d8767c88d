"""Command lines of the executables: the options of the peer's tools, and their defaults.

Imports argparse alone, so that ``--help`` and wrong usage are answered at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

_FORMS: Final = ("csv", "bin", "parquet")


def _add_flag(parser: argparse.ArgumentParser, *names: str, text: str) -> None:
    parser.add_argument(*names, action="store_true", help=text)


def _add_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v",
        "--logging-level",
        type=int,
        default=30,
        help="least severe level to log: debug 10, info 20, warning 30, error 40, critical 50",
    )


def _add_form(parser: argparse.ArgumentParser) -> None:
    _add_level(parser)
    _add_flag(parser, "-H", "--noheader", text="write csv without its header line")
    parser.add_argument("-E", "--ext", choices=_FORMS, default="csv", help="format of the tables")


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run_dir", default=".", help="run directory (default .)")


def _add_subfolder(parser: argparse.ArgumentParser) -> None:
    _add_run_dir(parser)
    parser.add_argument("-K", "--subfolder", help="folder of the streams, below RUN_DIR/work")


def _loss_tables(suffix: str, parser: argparse.ArgumentParser) -> None:
    _add_run_dir(parser)
    parser.add_argument(
        "-i", "--files_in", nargs="+", default=["-"], help="streams (default standard input)"
    )
    for name in ("sample", "moment", "quantile"):
        letter = name[0]
        parser.add_argument(f"-{letter}", f"--{letter}{suffix}", help=f"file of the {name} table")
    _add_form(parser)


def _aalpy(parser: argparse.ArgumentParser) -> None:
    _add_subfolder(parser)
    parser.add_argument("-a", "--aal", help="file of the average annual loss table")
    parser.add_argument("-c", "--alct", help="file of the average loss convergence table")
    _add_flag(parser, "-M", "--meanonly", text="means only, in AAL")
    parser.add_argument(
        "-l", "--confidence", type=float, default=0.95, help="confidence level (default 0.95)"
    )
    _add_form(parser)


CURVES: Final[Mapping[str, tuple[str, str]]] = {
    "F": ("agg_full_uncertainty", "full uncertainty, aggregate losses"),
    "W": ("agg_wheatsheaf", "per sample, aggregate losses"),
    "S": ("agg_sample_mean", "sample mean, aggregate losses"),
    "M": ("agg_wheatsheaf_mean", "per-sample mean, aggregate losses"),
    "f": ("occ_full_uncertainty", "full uncertainty, largest losses"),
    "w": ("occ_wheatsheaf", "per sample, largest losses"),
    "s": ("occ_sample_mean", "sample mean, largest losses"),
    "m": ("occ_wheatsheaf_mean", "per-sample mean, largest losses"),
}
"""Letters of the curves of ``lecpy`` to (long option, help)."""


def _lecpy(parser: argparse.ArgumentParser) -> None:
    _add_subfolder(parser)
    parser.add_argument("-O", "--ept", help="file of the exceedance probability table")
    parser.add_argument("-o", "--psept", help="file of the table per sample")
    for letter, (name, description) in CURVES.items():
        _add_flag(parser, f"-{letter}", f"--{name}", text=description)
    _add_flag(parser, "-r", "--use_return_period", text="read curves at return periods")
    _add_form(parser)


def _summarypy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--files-in", nargs="?", help="stream (default standard input)")
    parser.add_argument("-t", "--run-type", choices=("gul", "il", "ri"), help="perspective")
    _add_flag(parser, "-m", "--low-memory", text="write an index beside each stream")
    parser.add_argument(
        "-p", "--static-path", default="input", help="folder of the xref (default input)"
    )
    _add_level(parser)
    _add_flag(parser, "-z", "--output-zeros", text="write losses of zero")
    _add_flag(
        parser,
        "--create-summarypy-files",
        text="prepare the xref in the folder of the xref, and end",
    )
    parser.add_argument(
        "summary_sets_output",
        nargs=argparse.REMAINDER,
        metavar="-SET FILE",
        help="sets and the files of their streams, such as -1 S1.bin -2 S2.bin",
    )


KAT_TABLES: Final = ("selt", "melt", "qelt", "splt", "mplt", "qplt")
"""Tables that ``katpy`` concatenates, one at a time."""


def _katpy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", required=True, help="file of the whole table")
    parser.add_argument(
        "-f", "--file_type", choices=_FORMS, help="format of files whose names do not tell"
    )
    parser.add_argument("-i", "--files_in", nargs="+", help="files to concatenate")
    parser.add_argument("-d", "--dir_in", help="directory of files to concatenate")
    for name in KAT_TABLES:
        letter = name[0].upper() if name.endswith("plt") else name[0]
        _add_flag(parser, f"-{letter}", f"--{name}", text=f"they are {name.upper()}")
    _add_flag(parser, "-u", "--unsorted", text="one file after another")
    _add_level(parser)


def _join_summary_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--summaryinfo", required=True, help="file that describes them")
    parser.add_argument("-d", "--data", required=True, help="table with a column SummaryId")
    parser.add_argument("-o", "--output", required=True, help="file of the joined table")
    _add_level(parser)


PARSERS: Final[Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    "eltpy": ("Compute event loss tables from streams of summaries.", partial(_loss_tables, "elt")),
    "pltpy": (
        "Compute period loss tables from streams of summaries.",
        partial(_loss_tables, "plt"),
    ),
    "aalpy": ("Compute average annual losses from the streams of a run.", _aalpy),
    "lecpy": ("Compute exceedance curves from the streams of a run.", _lecpy),
    "summarypy": ("Add item streams up into streams of summaries.", _summarypy),
    "katpy": ("Concatenate event and period loss tables.", _katpy),
    "join-summary-info": (
        "Append the columns that describe summaries to a table.",
        _join_summary_info,
    ),
}
"""What each executable does, and what adds its options to a parser, by its name."""


def parse(tool: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of an executable; without ``argv`` that of this process.

    Raises:
        SystemExit: with 2, after a line on standard error, the usage is wrong; with 0, help was
            asked for.
    """
    description, add_options = PARSERS[tool]
    parser = argparse.ArgumentParser(tool, description=description)
    add_options(parser)
    return parser.parse_args(argv)
