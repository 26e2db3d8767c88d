"""The ``thalweg-server`` command line: commands, options and help texts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from app import __version__
from app.losses.aggregation import STDOUT
from app.losses.tables import FORMATS
from app.settings import Settings
from app.telemetry import LEVELS
from core.losses.format import MAX_SAMPLES
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import READ_AHEAD
from core.losses.reports import REPORTS
from core.losses.reports.running import RunOptions
from core.losses.samples import SampleSpec
from core.tiles.formats import FORMATS as DATASET_FORMATS


def _name_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accepted values")
    group.add_argument(
        "--float-width", type=int, choices=(4, 8), default=4, help="bytes per loss (default 4)"
    )
    group.add_argument(
        "--nan",
        choices=("error", "zero", "drop"),
        default="error",
        help="treat NaN and infinite losses as an error, as 0 or as absent (default error)",
    )
    group.add_argument(
        "--negative",
        choices=("error", "keep"),
        default="error",
        help="treat negative losses as an error, or keep them (default error)",
    )
    group.add_argument(
        "--sample-order",
        choices=("ascending", "any"),
        default="ascending",
        help="required order of sidx within a block (default ascending)",
    )
    group.add_argument(
        "--missing-end",
        choices=("error", "accept"),
        default="error",
        help="last block without its 0,0 pair: refuse it, or accept the stream as "
        "unterminated (default error)",
    )
    group.add_argument(
        "--max-samples",
        type=_count,
        default=MAX_SAMPLES,
        metavar="N",
        help=f"largest len_sample accepted (default {MAX_SAMPLES})",
    )


def _add_aggregate(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    parser = commands.add_parser(
        "aggregate",
        help="compute reports from loss streams",
        description="Compute any reports from loss streams in a single pass.",
    )
    parser.set_defaults(command="aggregate", usage_error=parser.error)
    parser.add_argument(
        "streams",
        nargs="*",
        metavar="FILE",
        help="files or fifos; - or nothing for a stream piped to stdin",
    )
    parser.add_argument(
        "--reports",
        type=_name_list,
        default=["events"],
        metavar="LIST",
        help=f"comma-separated: {','.join(REPORTS)} (default events)",
    )
    parser.add_argument(
        "--out",
        default=STDOUT,
        metavar="DIR",
        help="directory for one file per report; - for a single report on stdout (default -)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="csv", help="output format (default csv)"
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
        help="when events happen: for SPLT, MPLT, QPLT and the event rates of MELT",
    )
    inputs.add_argument(
        "--no-of-periods",
        type=_count,
        metavar="N",
        help="number of periods, for an occurrence csv or parquet",
    )
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
    _add_whole_runs(parser)
    _add_policy(parser)
    completeness = parser.add_argument_group("completeness (a stream has no end marker)")
    completeness.add_argument(
        "--expect-events", type=_count, metavar="N", help="fail unless the stream has N events"
    )
    completeness.add_argument(
        "--expect-bytes", type=_count, metavar="N", help="fail unless the stream has N bytes"
    )
    several = parser.add_argument_group("several streams")
    several.add_argument(
        "--order",
        choices=("received", "event"),
        default="received",
        help="write rows as they arise, or merged by event id (default received)",
    )
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
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")


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


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 2GiB")
    return int(match[1]) * int(_SIZES[match[2].upper()])


_SIZE = re.compile(r"([1-9][0-9]{0,12})(|B|[KMGT]i?B)", re.ASCII | re.IGNORECASE)
_SIZES = {"": 1, "B": 1} | {
    f"{letter}{infix}B": base**power
    for power, letter in enumerate("KMGT", 1)
    for infix, base in (("", 1000), ("I", 1024))
}


def _add_others(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "inspect",
        help="describe a loss stream or a dataset",
        description="Describe a loss stream, up to its first fault, or the files of a dataset.",
    )
    parser.set_defaults(command="inspect")
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

    spec = SampleSpec()
    parser = commands.add_parser("sample", help="generate a realistic loss stream and its inputs")
    parser.set_defaults(command="sample")
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
        "--density",
        type=float,
        default=spec.density,
        help=f"mean share of samples with a loss (default {spec.density})",
    )
    parser.add_argument(
        "--float-width", type=int, choices=(4, 8), default=4, help="bytes per loss (default 4)"
    )

    _add_service(commands)
    parser = commands.add_parser("warmup", help="compile the kernels and cache them")
    parser.set_defaults(command="warmup")


def _add_service(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Serve until SIGTERM. Each option can also be set as a THALWEG_... variable.",
    )
    parser.set_defaults(command="serve")
    for name, field in Settings.model_fields.items():
        if name not in FLAGS:
            continue
        flag = FLAGS[name]
        default = None if field.default_factory else field.get_default()
        suffix = "" if default in {None, "", ()} else f" (default {default})"
        parser.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            type=flag.parse,
            metavar=flag.metavar,
            help=flag.help + suffix,
        )
    parser.add_argument(
        "--scan",
        action="store_const",
        const=True,
        help="serve recordings under the dataset roots without registration",
    )
    parser.add_argument(
        "--allow-anonymous",
        action="store_const",
        const=True,
        help="listen on other addresses than loopback without API keys",
    )
    parser.add_argument(
        "--ephemeral",
        action="store_const",
        const=True,
        help="keep nothing: state in memory, and a token key that ends with the process",
    )

    parser = commands.add_parser("openapi", help="print the OpenAPI document")
    parser.set_defaults(command="openapi")

    parser = commands.add_parser("key", help="generate an API key and its THALWEG_API_KEYS entry")
    parser.set_defaults(command="key")
    parser.add_argument(
        "name", nargs="?", default="client", help="name of its owner (default client)"
    )
    _add_keys(commands)


def _add_keys(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "keys",
        help="add, list and revoke stored API keys; hand over what an owner has",
        description="Manage the API keys in a data directory; servers notice within seconds.",
    )
    parser.set_defaults(command="keys")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="data directory (default THALWEG_DATA_DIR)"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a key and print it, once")
    add.add_argument("name", metavar="NAME", help="owner that the key stands for")
    add.add_argument(
        "--scope",
        action="append",
        required=True,
        metavar="SCOPE",
        help="losses, pipelines, runs, admin, read:PATTERN (datasets of the catalogue) or"
        " register:PATTERN (paths); repeatable",
    )
    add.add_argument("--expires", type=lifetime, metavar="TIME", help="lifetime, such as 90d")
    actions.add_parser("list", help="list keys: id, state, owner, scopes and expiry")
    revoke = actions.add_parser("revoke", help="revoke a key, or all keys of an owner")
    revoke.add_argument("name", metavar="ID|NAME")
    adopt = actions.add_parser("adopt", help="hand everything of one owner to another")
    adopt.add_argument("old", metavar="OLD", help="such as admin, who owns what had no owner")
    adopt.add_argument("name", metavar="NAME")


def lifetime(text: str) -> int:
    """Parse a lifetime such as ``90d``; seconds.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a lifetime such as 90d, 12h or 2w")
    return int(match[1]) * _UNITS[match[2]]


_LIFETIME = re.compile(r"([1-9][0-9]{0,5})([mhdw])", re.ASCII)
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Flag(NamedTuple):
    """A setting as an option of ``serve``."""

    parse: Callable[[str], Any]
    help: str
    metavar: str


FLAGS = {
    "host": Flag(str, "address to listen on", "ADDRESS"),
    "port": Flag(int, "port to listen on; 0 picks a free one", "N"),
    "workers": Flag(int, "number of server processes", "N"),
    "threads": Flag(int, "compute threads per process (default: its share of the cores)", "N"),
    "dataset_roots": Flag(
        str, "directories that may hold datasets, separated as in PATH (default: none)", "DIRS"
    ),
    "catalogue": Flag(Path, "TOML catalogue of datasets", "FILE"),
    "data_dir": Flag(Path, "directory for inputs, the token key and spooled rows", "DIR"),
    "public_url": Flag(
        str, "URL under which clients reach the service (default: as requested)", "URL"
    ),
    "trusted_proxies": Flag(str, "addresses whose X-Forwarded headers are trusted, or *", "LIST"),
    "cors_origins": Flag(str, "web origins that may call the service (default: none)", "LIST"),
    "drain_seconds": Flag(float, "grace period of running requests at shutdown", "S"),
    "drain_delay": Flag(float, "pause between turning unready and refusing connections", "S"),
}
"""Settings that are also options, by name."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="thalweg-server",
        description="Resumable streams of loss reports, dataset tiles and batches.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        help="least severe level to log (default info; serve: THALWEG_LOG_LEVEL)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_aggregate(commands)
    _add_others(commands)
    return parser
