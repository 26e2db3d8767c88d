"""Options of the commands that work on files, without a service.

Names and defaults that would take long to import are imported by the options they are of.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, get_args

from app.losses.outputs import STDOUT
from app.losses.pictures.options import FORMS as PICTURE_FORMS
from app.losses.pictures.options import MOST_SUMMARIES, PERSPECTIVES, THEMES, PictureOptions
from app.losses.tables import FORMATS as TABLE_FORMATS
from core.losses.format import MAX_SAMPLES
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import READ_AHEAD
from core.losses.reports import REPORTS
from core.losses.reports.report import RunOptions

from .oasis_options import add_options, add_run_directory

_SIZE = re.compile(r"([1-9][0-9]{0,12})(|B|[KMGT]i?B)", re.ASCII | re.IGNORECASE)
_SIZES = {"": 1, "B": 1} | {
    f"{letter}{infix}B": base**power
    for power, letter in enumerate("KMGT", 1)
    for infix, base in (("", 1000), ("I", 1024))
}
_MOST_SECONDS = 2_000_000
"""Three weeks: the system counts the milliseconds of a wait in 31 bits."""


def _name_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text.strip() else []


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _some(text: str) -> int:
    if not (number := _count(text)):
        raise argparse.ArgumentTypeError("it is 0: give a number of at least 1")
    return number


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(_count, text.replace("x", ",").split(",")))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _MOST_SECONDS:
        most = f"a number above 0, at most {_MOST_SECONDS}"
        raise argparse.ArgumentTypeError(f"it is {text!r}: give seconds, {most}")
    return seconds


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 2GiB")
    return int(match[1]) * int(_SIZES[match[2].upper()])


def _add_value(
    group: argparse._ActionsContainer,
    name: str,
    text: str,
    default: object = None,
    **more: Any,  # noqa: ANN401 - of argparse
) -> None:
    """Add an option with a value, whose default the help tells, if it has one."""
    text = text if default is None else f"{text} (default {default})"
    group.add_argument(name, default=default, help=text, **more)


def _add_count(
    group: argparse._ActionsContainer, name: str, text: str, default: int | None = None
) -> None:
    """Add an option whose value is a number of things."""
    _add_value(group, name, text, default, type=_count, metavar="N")


def _add_files(group: argparse._ActionsContainer, **texts: str) -> None:
    """Add options that name a file each, with these texts."""
    for name, text in texts.items():
        _add_value(group, f"--{name.replace('_', '-')}", text, metavar="FILE")


def _add_float_width(group: argparse._ActionsContainer) -> None:
    _add_value(group, "--float-width", "bytes per loss", 4, type=int, choices=(4, 8))


def _add_streams(parser: argparse.ArgumentParser, subject: str) -> None:
    parser.set_defaults(usage_error=parser.error)
    text = f"{subject}; - or nothing for a stream piped to stdin"
    parser.add_argument("streams", nargs="*", metavar="FILE", help=text)


_POLICY = {
    "--nan": ("treat NaN and infinite losses as an error, as 0 or as absent", "error zero drop"),
    "--negative": ("treat negative losses as an error, or keep them", "error keep"),
    "--sample-order": ("required order of sidx within a block", "ascending any"),
    "--missing-end": (
        "last block without its 0,0 pair: refuse it, or accept the stream as unterminated",
        "error accept",
    ),
}


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accepted values")
    _add_float_width(group)
    add_options(group, _POLICY)
    _add_count(group, "--max-samples", "largest len_sample accepted", MAX_SAMPLES)


def add_aggregate(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``aggregate``."""
    _add_streams(parser, "files or fifos")
    text = f"comma-separated: {','.join(REPORTS)} (default events)"
    keywords: dict[str, Any] = {"type": _name_list, "default": ["events"], "metavar": "LIST"}
    parser.add_argument("--reports", "--report", help=text, **keywords)
    text = (
        "directory for one file per report, or the file of a single one; - for a single one on"
        " stdout (default -)"
    )
    parser.add_argument("-o", "--out", default=STDOUT, metavar="DIR|FILE", help=text)
    _add_force(parser)
    _add_live(parser, "rows")
    text = "default: the ending of --out, or csv"
    parser.add_argument("--format", choices=TABLE_FORMATS, help=text)
    inputs = parser.add_argument_group(
        "auxiliary files (csv, packed or parquet, detected by content)"
    )
    text = "quantiles of QELT and QPLT: a file, or a list such as 0.5,0.9"
    _add_value(inputs, "--quantiles", text, metavar="LIST|FILE")
    _add_files(
        inputs,
        event_rates="event rates of MELT, instead of the occurrences'",
        occurrence="when events happen: for SPLT, MPLT, QPLT, AAL, ALCT, EPT, PSEPT and the event"
        " rates of MELT",
    )
    _add_count(inputs, "--no-of-periods", "number of periods, for an occurrence csv or parquet")
    _add_files(inputs, periods="weights of the periods (default: equal ones)")
    text = (
        "return periods of EPT and PSEPT: a file, or a list such as 200,100,50 (default: every"
        " point of a curve)"
    )
    _add_value(inputs, "--return-periods", text, metavar="LIST|FILE")
    rows = parser.add_argument_group("rows")
    for name, noun in (("--summary-ids", "summaries"), ("--event-ids", "events")):
        text = f"only those of these {noun}, such as 1,5,10-20"
        _add_value(rows, name, text, type=_ids, metavar="LIST")
    text = "what summaries are: columns to join to the rows of reports"
    inputs.add_argument("--summary-info", nargs="+", metavar="[SET=]FILE", help=text)
    _add_sets(parser)
    _add_whole_runs(parser)
    add_run_directory(parser)
    _add_pictures(parser)
    _add_policy(parser)
    _add_completeness(parser)
    several = parser.add_argument_group("several streams")
    text = "write rows as they arise, or merged by event id"
    add_options(several, {"--order": (text, "received event")})
    text = "rows to buffer while the slowest stream lags"
    _add_value(several, "--read-ahead", text, READ_AHEAD, type=_count, metavar="BYTES")
    _add_pass(parser, several)
    _add_engine(parser)


_ENGINE = {
    "--engine URL": (
        "where files are added up: dask:tcp://host:port or dask:tls://host:port of a scheduler",
        str,
    ),
    "--engine-dir DIR": (
        "directory for the sums that workers leave; they see it, and all files, at the same paths",
        str,
    ),
}


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workers of a cluster, for reports of whole runs")
    add_options(group, _ENGINE)


def _add_live(parser: argparse.ArgumentParser, subject: str) -> None:
    text = (
        f"write {subject} to standard output, fifos and devices as they arise, not when all are"
        " known to be good"
    )
    parser.add_argument("--live", action="store_true", help=text)


def _add_pass(parser: argparse.ArgumentParser, group: argparse._ActionsContainer) -> None:
    text = "fail after S seconds without a byte"
    _add_value(group, "--idle-timeout", text, type=_seconds, metavar="S")
    text = "threads that share the pass over files (default: one for each core)"
    _add_value(parser, "--threads", text, type=_some, metavar="N")
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")


def _add_sets(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    group = parser.add_argument_group("summaries of item streams (gul, il, ri, rl)")
    text = "the summary of each item or output, in any number of sets"
    _add_value(group, "--summary-xref", text, required=required, metavar="FILE")
    _add_files(group, summary_map="the location and building of each, to count affected risks by")
    text = "summary sets, such as 1,2 (default: all)"
    _add_value(group, "--sets", text, type=_set_ids, metavar="LIST")


def _set_ids(text: str) -> list[int]:
    return list(map(_count, text.split(",")))


_SUMS = {
    "--tvar": ("TVaR as mean of losses by number or by period weight", "count weight"),
    "--memory-budget SIZE": (
        "memory for sums by summary, period and sample, such as 4GB (default 1GiB)",
        {"type": _bytes, "default": MEMORY_BUDGET},
    ),
    "--spill-dir DIR": (
        "directory for what exceeds it (default: that of --out, else for temporary files)",
    ),
    "--partial-out FILE": ("write these sums, to be merged with other partitions",),
    "--partials FILE": (
        "merge files of --partial-out, in any order, with the streams or alone",
        {"nargs": "+", "default": []},
    ),
}


def _add_whole_runs(parser: argparse.ArgumentParser) -> None:
    defaults = RunOptions()
    group = parser.add_argument_group("reports of whole runs (aal, aal_mean, alct, ept, psept)")
    text = "confidence level of ALCT"
    _add_value(group, "--confidence", text, defaults.confidence, type=float, metavar="P")
    text = (
        "curves of EPT: F full uncertainty, S sample mean, M per-sample mean; and of PSEPT: W;"
        " capital for AEP, small for OEP"
    )
    _add_value(group, "--curves", text, defaults.curves, metavar="LETTERS")
    add_options(group, _SUMS)


def _add_pictures(parser: argparse.ArgumentParser) -> None:
    defaults = PictureOptions()
    group = parser.add_argument_group("pictures of ept and aal (with the extra plot)")
    text = "directory for their pictures; FILE.svg or FILE.png for a single one"
    group.add_argument("--plot", metavar="DIR|FILE", help=text)
    text = "format of pictures in a directory"
    _add_value(group, "--plot-format", text, defaults.form, choices=PICTURE_FORMS)
    _add_value(group, "--theme", "colours", defaults.theme, choices=THEMES)
    text = "summaries to draw, such as 1,5,10-12 (default: those of --summary-ids, or all, up to"
    text += f" {MOST_SUMMARIES})"
    group.add_argument("--plot-summaries", type=_ids, metavar="LIST", help=text)
    group.add_argument("--plot-tvar", action="store_true", help="draw TVaR beside the EP curves")
    text = "perspective of the run, for titles"
    group.add_argument("--perspective", choices=tuple(PERSPECTIVES), help=text)
    group.add_argument("--currency", metavar="CODE", help="currency of the losses, for axes")


def _ids(text: str) -> str:
    from app.errors import InvalidOptionError  # noqa: PLC0415 - as the module says
    from app.losses.selection import parse_ids  # noqa: PLC0415 - as above

    try:
        parse_ids(text)
    except InvalidOptionError as e:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a list such as 1,5,10-20") from e
    return text


def add_merge(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``merge``."""
    from app.losses.merging import By  # noqa: PLC0415 - as the module says

    text = "tables of one report, .csv, .bin or .parquet, each ascending by event"
    parser.add_argument("tables", nargs="+", metavar="FILE", help=text)
    text = "merged table (default: standard output)"
    parser.add_argument("-o", "--out", default=STDOUT, metavar="FILE", help=text)
    _add_force(parser)
    _add_live(parser, "rows")
    text = "order of rows; those of an event stay as they are, or are sorted by period"
    _add_value(parser, "--by", text, "event", choices=get_args(By))
    parser.add_argument("--report", choices=REPORTS, help="which report packed records are of")
    _add_float_width(parser)


def add_split(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``split``."""
    parser.add_argument("stream", metavar="FILE", help="the stream")
    text = "number of files, which the events share in their order"
    parser.add_argument("--partitions", type=_count, required=True, metavar="N", help=text)
    text = "directory for FILE_P1.bin and so on"
    parser.add_argument("-o", "--out", default=".", metavar="DIR", help=f"{text} (default .)")
    _add_force(parser)
    _add_policy(parser)


def add_summarise(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``summarise``."""
    _add_streams(parser, "files or fifos of items")
    text = (
        "directory for S1_summary.bin and S1_summary.idx of set 1, and so on; - for the stream of a"
        " single set on stdout (default -)"
    )
    parser.add_argument("-o", "--out", default=STDOUT, metavar="DIR", help=text)
    _add_force(parser)
    _add_live(parser, "blocks")
    _add_sets(parser, required=True)
    text = "also write samples without a loss, and summaries without exposure and losses"
    parser.add_argument("--zeros", action="store_true", help=text)
    _add_policy(parser)
    _add_completeness(parser)
    _add_pass(parser, parser)


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def _add_completeness(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("completeness (a stream has no end marker)")
    _add_count(group, "--expect-events", "fail unless the stream has N events")
    _add_count(group, "--expect-bytes", "fail unless the stream has N bytes")


_DATASET = {
    "--array PATH": ("path of the array in an HDF5 file or zarr store",),
    "--dtype": ("numpy type of headerless files, such as '<u2'", str),
    "--sig-shape R,C": ("shape of a frame", _shape),
    "--nav-shape Y,X": ("shape of the scan", _shape),
}


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``inspect``."""
    from core.tiles.formats import FORMATS as DATASET_FORMATS  # noqa: PLC0415 - as the module says

    text = "a stream (- for stdin) or the files of a dataset"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    dataset = parser.add_argument_group("datasets that do not describe themselves")
    text, formats = "format of the files (default: detected by content)", [*DATASET_FORMATS]
    dataset.add_argument("--format", choices=sorted([*formats, "hdf5", "zarr"]), help=text)
    add_options(dataset, _DATASET)
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_policy(parser)


def add_sample(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sample``."""
    from core.losses.samples import SampleSpec  # noqa: PLC0415 - as the module says

    spec = SampleSpec()
    parser.add_argument("-o", "--out", required=True, metavar="DIR", help="directory to write to")
    _add_force(parser)
    kinds = ("summary", "gul")
    parser.add_argument("--kind", choices=kinds, default="summary", help="default summary")
    for name in ("events", "summaries", "samples", "seed"):
        default = getattr(spec, name)
        text = f"default {default}"
        parser.add_argument(f"--{name}", type=_count, default=default, metavar="N", help=text)
    text = "streams that share the events, such as summary_P1.bin (default 1)"
    parser.add_argument("--partitions", type=_count, default=1, metavar="N", help=text)
    text = "periods in which events occur, 1000 to 1000000 (default ten for each event)"
    parser.add_argument("--periods", type=_count, default=0, metavar="N", help=text)
    text = "mean share of samples with a loss"
    _add_value(parser, "--density", text, spec.density, type=float)
    _add_float_width(parser)
