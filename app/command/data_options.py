"""Options of the commands that work on files, without a service.

Names and defaults that would take long to import are imported by the options they are of.
"""

from __future__ import annotations

import argparse
import re
from typing import get_args

import numpy as np
import numpy.typing as npt

from app.losses.outputs import STDOUT
from app.losses.pictures.collecting import MOST_SUMMARIES
from app.losses.pictures.options import FORMS as PICTURE_FORMS
from app.losses.pictures.options import PERSPECTIVES, THEMES, PictureOptions
from app.losses.tables import FORMATS as TABLE_FORMATS
from core.losses.format import MAX_SAMPLES
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import READ_AHEAD
from core.losses.reports import REPORTS
from core.losses.reports.running import RunOptions

from .oasis_options import add_run_directory

_SIZE = re.compile(r"([1-9][0-9]{0,12})(|B|[KMGT]i?B)", re.ASCII | re.IGNORECASE)
_SIZES = {"": 1, "B": 1} | {
    f"{letter}{infix}B": base**power
    for power, letter in enumerate("KMGT", 1)
    for infix, base in (("", 1000), ("I", 1024))
}


def _name_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _add_choice(group: argparse._ActionsContainer, name: str, choices: str, text: str) -> None:
    """Add an option with a few values, of which the first is the default."""
    values = choices.split()
    text = f"{text} (default {values[0]})"
    group.add_argument(name, choices=values, default=values[0], help=text)


def _add_count(
    group: argparse._ActionsContainer, name: str, text: str, default: int | None = None
) -> None:
    """Add an option whose value is a number of things."""
    text = text if default is None else f"{text} (default {default})"
    group.add_argument(name, type=_count, default=default, metavar="N", help=text)


def _add_float_width(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--float-width", type=int, choices=(4, 8), default=4, help="bytes per loss (default 4)"
    )


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accepted values")
    _add_float_width(group)
    for name, choices, text in (
        (
            "--nan",
            "error zero drop",
            "treat NaN and infinite losses as an error, as 0 or as absent",
        ),
        ("--negative", "error keep", "treat negative losses as an error, or keep them"),
        ("--sample-order", "ascending any", "required order of sidx within a block"),
        (
            "--missing-end",
            "error accept",
            "last block without its 0,0 pair: refuse it, or accept the stream as unterminated",
        ),
    ):
        _add_choice(group, name, choices, text)
    _add_count(group, "--max-samples", "largest len_sample accepted", MAX_SAMPLES)


def add_aggregate(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``aggregate``."""
    parser.set_defaults(usage_error=parser.error)
    parser.add_argument(
        "streams",
        nargs="*",
        metavar="FILE",
        help="files or fifos; - or nothing for a stream piped to stdin",
    )
    parser.add_argument(
        "--reports",
        "--report",
        type=_name_list,
        default=["events"],
        metavar="LIST",
        help=f"comma-separated: {','.join(REPORTS)} (default events)",
    )
    parser.add_argument(
        "--out",
        default=STDOUT,
        metavar="DIR|FILE",
        help="directory for one file per report, or the file of a single one; - for a single one on"
        " stdout (default -)",
    )
    _add_live(parser, "rows")
    parser.add_argument(
        "--format", choices=TABLE_FORMATS, help="default: the ending of --out, or csv"
    )
    inputs = parser.add_argument_group(
        "auxiliary files (csv, packed or parquet, detected by content)"
    )
    inputs.add_argument(
        "--quantiles",
        metavar="FILE",
        help="quantiles of QELT and QPLT: a file, or a list such as 0.5,0.9",
    )
    inputs.add_argument(
        "--event-rates", metavar="FILE", help="event rates of MELT, instead of the occurrences'"
    )
    inputs.add_argument(
        "--occurrence",
        metavar="FILE",
        help="when events happen: for SPLT, MPLT, QPLT, AAL, ALCT, EPT, PSEPT and the event rates"
        " of MELT",
    )
    _add_count(inputs, "--no-of-periods", "number of periods, for an occurrence csv or parquet")
    inputs.add_argument(
        "--periods",
        metavar="FILE",
        help="weights of the periods (default: equal ones)",
    )
    inputs.add_argument(
        "--return-periods",
        metavar="FILE",
        help="return periods of EPT and PSEPT: a file, or a list such as 200,100,50"
        " (default: every point of a curve)",
    )
    inputs.add_argument(
        "--summary-info",
        nargs="+",
        metavar="[SET=]FILE",
        help="what summaries are: columns to join to the rows of reports",
    )
    _add_sets(parser)
    _add_whole_runs(parser)
    add_run_directory(parser)
    _add_pictures(parser)
    _add_policy(parser)
    _add_completeness(parser)
    several = parser.add_argument_group("several streams")
    text = "write rows as they arise, or merged by event id"
    _add_choice(several, "--order", "received event", text)
    several.add_argument(
        "--read-ahead",
        type=_count,
        default=READ_AHEAD,
        metavar="BYTES",
        help=f"rows to buffer while the slowest stream lags (default {READ_AHEAD})",
    )
    several.add_argument(
        "--idle-timeout", type=float, metavar="S", help="fail after S seconds without a byte"
    )
    _add_threads(parser)
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")


def _add_live(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help=f"write {what} to standard output, fifos and devices as they arise, not when all are"
        " known to be good",
    )


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=_count,
        metavar="N",
        help="threads that share the pass over files (default: one for each core)",
    )


def _add_sets(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    group = parser.add_argument_group("summaries of item streams (gul, il, ri, rl)")
    group.add_argument(
        "--summary-xref",
        required=required,
        metavar="FILE",
        help="the summary of each item or output, in any number of sets",
    )
    group.add_argument(
        "--summary-map",
        metavar="FILE",
        help="the location and building of each, to count affected risks by",
    )
    group.add_argument(
        "--sets", type=_set_ids, metavar="LIST", help="summary sets, such as 1,2 (default: all)"
    )


def _set_ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _add_whole_runs(parser: argparse.ArgumentParser) -> None:
    defaults = RunOptions()
    group = parser.add_argument_group("reports of whole runs (aal, aal_mean, alct, ept, psept)")
    group.add_argument(
        "--confidence",
        type=float,
        default=defaults.confidence,
        metavar="P",
        help=f"confidence level of ALCT (default {defaults.confidence})",
    )
    group.add_argument(
        "--curves",
        default=defaults.curves,
        metavar="LETTERS",
        help="curves of EPT: F full uncertainty, S sample mean, M per-sample mean; and of PSEPT: W;"
        f" capital for AEP, small for OEP (default {defaults.curves})",
    )
    group.add_argument(
        "--tvar",
        choices=("count", "weight"),
        default=defaults.tvar,
        help="TVaR as mean of losses by number or by period weight (default count)",
    )
    group.add_argument(
        "--memory-budget",
        type=_bytes,
        default=MEMORY_BUDGET,
        metavar="SIZE",
        help="memory for sums by summary, period and sample, such as 4GB (default 1GiB)",
    )
    group.add_argument(
        "--spill-dir",
        metavar="DIR",
        help="directory for what exceeds it (default: that of --out, else for temporary files)",
    )
    group.add_argument(
        "--partial-out", metavar="FILE", help="write these sums, to be merged with other partitions"
    )
    group.add_argument(
        "--partials",
        nargs="+",
        default=[],
        metavar="FILE",
        help="merge files of --partial-out, in any order, with the streams or alone",
    )


def _add_pictures(parser: argparse.ArgumentParser) -> None:
    defaults = PictureOptions()
    group = parser.add_argument_group("pictures of ept and aal (with the extra plot)")
    group.add_argument(
        "--plot",
        metavar="DIR|FILE",
        help="directory for their pictures; FILE.svg or FILE.png for a single one",
    )
    group.add_argument(
        "--plot-format",
        choices=PICTURE_FORMS,
        default=defaults.form,
        help=f"format of pictures in a directory (default {defaults.form})",
    )
    group.add_argument(
        "--theme",
        choices=THEMES,
        default=defaults.theme,
        help=f"colours (default {defaults.theme})",
    )
    group.add_argument(
        "--plot-summaries",
        type=_summary_ids,
        metavar="LIST",
        help=f"summaries to draw, such as 1,5,10-12 (default all, up to {MOST_SUMMARIES})",
    )
    group.add_argument("--plot-tvar", action="store_true", help="draw TVaR beside the EP curves")
    group.add_argument(
        "--perspective", choices=tuple(PERSPECTIVES), help="perspective of the run, for titles"
    )
    group.add_argument("--currency", metavar="CODE", help="currency of the losses, for axes")


def _summary_ids(text: str) -> npt.NDArray[np.int32]:
    from app.errors import InvalidOptionError  # noqa: PLC0415 - as the module says
    from app.losses.request import parse_ids  # noqa: PLC0415 - as above

    try:
        return parse_ids(text)
    except InvalidOptionError as e:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a list such as 1,5,10-20") from e


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 2GiB")
    return int(match[1]) * int(_SIZES[match[2].upper()])


def add_merge(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``merge``."""
    from app.losses.merging import By  # noqa: PLC0415 - as the module says

    parser.add_argument(
        "tables",
        nargs="+",
        metavar="FILE",
        help="tables of one report, .csv, .bin or .parquet, each ascending by event",
    )
    parser.add_argument(
        "--out", default=STDOUT, metavar="FILE", help="merged table (default: standard output)"
    )
    _add_live(parser, "rows")
    parser.add_argument(
        "--by",
        choices=get_args(By),
        default="event",
        help="order of rows; those of an event stay as they are, or are sorted by period"
        " (default event)",
    )
    parser.add_argument("--report", choices=REPORTS, help="which report packed records are of")
    _add_float_width(parser)


def add_summarise(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``summarise``."""
    parser.set_defaults(usage_error=parser.error)
    parser.add_argument(
        "streams",
        nargs="*",
        metavar="FILE",
        help="files or fifos of items; - or nothing for a stream piped to stdin",
    )
    parser.add_argument(
        "--out",
        default=STDOUT,
        metavar="DIR",
        help="directory for S1_summary.bin and S1_summary.idx of set 1, and so on; - for the"
        " stream of a single set on stdout (default -)",
    )
    _add_live(parser, "blocks")
    _add_sets(parser, required=True)
    parser.add_argument(
        "--zeros",
        action="store_true",
        help="also write samples without a loss, and summaries without exposure and mean",
    )
    _add_policy(parser)
    _add_completeness(parser)
    parser.add_argument(
        "--idle-timeout", type=float, metavar="S", help="fail after S seconds without a byte"
    )
    _add_threads(parser)
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")


def _add_completeness(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("completeness (a stream has no end marker)")
    _add_count(group, "--expect-events", "fail unless the stream has N events")
    _add_count(group, "--expect-bytes", "fail unless the stream has N bytes")


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``inspect``."""
    from core.tiles.formats import FORMATS as DATASET_FORMATS  # noqa: PLC0415 - as the module says

    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a stream (- for stdin) or the files of a dataset"
    )
    dataset = parser.add_argument_group("datasets that do not describe themselves")
    dataset.add_argument(
        "--format",
        choices=sorted([*DATASET_FORMATS, "hdf5", "zarr"]),
        help="format of the files (default: detected by content)",
    )
    dataset.add_argument(
        "--array", metavar="PATH", help="path of the array in an HDF5 file or zarr store"
    )
    dataset.add_argument("--dtype", help="numpy type of headerless files, such as '<u2'")
    dataset.add_argument("--sig-shape", type=_shape, metavar="R,C", help="shape of a frame")
    dataset.add_argument("--nav-shape", type=_shape, metavar="Y,X", help="shape of the scan")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_policy(parser)


def add_sample(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sample``."""
    from core.losses.samples import SampleSpec  # noqa: PLC0415 - as the module says

    spec = SampleSpec()
    parser.add_argument("--out", required=True, metavar="DIR", help="directory to write to")
    parser.add_argument(
        "--kind", choices=("summary", "gul"), default="summary", help="default summary"
    )
    for name in ("events", "summaries", "samples", "seed"):
        default = getattr(spec, name)
        parser.add_argument(
            f"--{name}", type=_count, default=default, metavar="N", help=f"default {default}"
        )
    parser.add_argument(
        "--partitions",
        type=_count,
        default=1,
        metavar="N",
        help="streams that share the events, such as summary_P1.bin (default 1)",
    )
    parser.add_argument(
        "--periods",
        type=_count,
        default=0,
        metavar="N",
        help="periods in which events occur, 1000 to 1000000 (default ten for each event)",
    )
    parser.add_argument(
        "--density",
        type=float,
        default=spec.density,
        help=f"mean share of samples with a loss (default {spec.density})",
    )
    _add_float_width(parser)
