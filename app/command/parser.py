"""The ``thalweg-server`` command line: its commands, options and help texts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app import __version__
from app.losses.aggregation import STDOUT
from app.losses.tables import FORMATS
from app.settings import Settings
from app.telemetry import LEVELS
from core.losses.format import MAX_SAMPLES
from core.losses.merge import READ_AHEAD
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec
from core.tiles.formats import FORMATS as DATASET_FORMATS


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to accept")
    group.add_argument(
        "--float-width", type=int, choices=(4, 8), default=4, help="bytes of a loss (default 4)"
    )
    group.add_argument(
        "--nan",
        choices=("error", "zero", "drop"),
        default="error",
        help="NaN and infinite losses: refuse, read as 0, or as absent (default error)",
    )
    group.add_argument(
        "--negative",
        choices=("error", "keep"),
        default="error",
        help="negative losses (default error)",
    )
    group.add_argument(
        "--sample-order",
        choices=("ascending", "any"),
        default="ascending",
        help="order of sidx within a block (default ascending)",
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
        help="make event reports from loss streams",
        description="Read loss streams once and write the wanted event reports.",
    )
    parser.set_defaults(command="aggregate", usage_error=parser.error)
    parser.add_argument(
        "streams", nargs="*", metavar="FILE", help="files or fifos, - for stdin (default: a pipe)"
    )
    parser.add_argument(
        "--reports",
        type=_names,
        default=["events"],
        metavar="LIST",
        help=f"any of {','.join(REPORTS)} (default events)",
    )
    parser.add_argument(
        "--out",
        default=STDOUT,
        metavar="DIR",
        help="directory for one file per report; - writes one report to stdout (default)",
    )
    parser.add_argument("--format", choices=FORMATS, default="csv", help="default csv")
    inputs = parser.add_argument_group("auxiliary files, csv or packed, told apart by content")
    inputs.add_argument(
        "--quantiles", metavar="F", help="file, or a list such as 0.5,0.9: for QELT"
    )
    rates = inputs.add_mutually_exclusive_group()
    rates.add_argument("--event-rates", metavar="F", help="rate of each event: for MELT")
    rates.add_argument("--occurrence", metavar="F", help="occurrences of each event: for MELT")
    inputs.add_argument(
        "--no-of-periods", type=_count, metavar="N", help="periods of an occurrence csv"
    )
    _add_policy(parser)
    ends = parser.add_argument_group("completeness: a stream has no end marker")
    ends.add_argument("--expect-events", type=_count, metavar="N", help="events there must be")
    ends.add_argument("--expect-bytes", type=_count, metavar="N", help="bytes there must be")
    several = parser.add_argument_group("several streams")
    several.add_argument(
        "--order",
        choices=("received", "event"),
        default="received",
        help="rows as they arise, or merged by event id (default received)",
    )
    several.add_argument(
        "--read-ahead",
        type=_count,
        default=READ_AHEAD,
        metavar="BYTES",
        help=f"rows that may wait for the slowest stream (default {READ_AHEAD})",
    )
    several.add_argument(
        "--idle-timeout", type=float, metavar="S", help="give up after S seconds without a byte"
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def _add_others(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "inspect", help="say what is in a loss stream or a dataset, and what is wrong"
    )
    parser.set_defaults(command="inspect")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a stream (- for stdin), or a dataset's files"
    )
    dataset = parser.add_argument_group("datasets that do not say it themselves")
    dataset.add_argument("--format", choices=sorted([*DATASET_FORMATS, "hdf5", "zarr"]))
    dataset.add_argument("--array", metavar="PATH", help="array of an HDF5 file or a zarr store")
    dataset.add_argument("--dtype", help="numpy type of headerless files, such as '<u2'")
    dataset.add_argument("--sig-shape", type=_shape, metavar="R,C", help="shape of a frame")
    dataset.add_argument("--nav-shape", type=_shape, metavar="Y,X", help="shape of the scan")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    _add_policy(parser)

    spec = SampleSpec()
    parser = commands.add_parser("sample", help="make a realistic stream with its inputs")
    parser.set_defaults(command="sample")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--kind", choices=("summary", "gul"), default="summary")
    for name in ("events", "summaries", "samples", "seed"):
        default = getattr(spec, name)
        parser.add_argument(f"--{name}", type=_count, default=default, help=f"default {default}")
    parser.add_argument(
        "--density", type=float, default=spec.density, help="mean share of samples with a loss"
    )
    parser.add_argument("--float-width", type=int, choices=(4, 8), default=4)

    _add_service(commands)
    parser = commands.add_parser("warmup", help="compile the kernels and keep them")
    parser.set_defaults(command="warmup")


def _add_service(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "serve",
        help="answer loss streams over HTTP",
        description="Serve until SIGTERM. Every setting can also be a THALWEG_... variable.",
    )
    parser.set_defaults(command="serve")
    for name, field in Settings.model_fields.items():
        kind = FLAGS.get(name)
        if kind is None:
            continue
        flag = "--" + name.replace("_", "-")
        text = "" if field.default is None else f" (default {field.get_default()})"
        help_text = kind[1] + (text if not field.default_factory else "")
        parser.add_argument(flag, dest=name, type=kind[0], metavar=kind[2], help=help_text)
    parser.add_argument(
        "--scan",
        action="store_const",
        const=True,
        help="recordings under the roots are datasets without being registered",
    )

    parser = commands.add_parser("openapi", help="print the OpenAPI document")
    parser.set_defaults(command="openapi")

    parser = commands.add_parser("key", help="make a key for clients, and what to store of it")
    parser.set_defaults(command="key")
    parser.add_argument("name", nargs="?", default="client", help="what logs call its owner")


FLAGS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "host": (str, "address to listen at", "ADDRESS"),
    "port": (int, "0 for any that is free", "N"),
    "workers": (int, "processes", "N"),
    "threads": (int, "threads of a process that compute; default one a core", "N"),
    "dataset_roots": (str, "directories that datasets may lie in, separated as in PATH", "DIRS"),
    "catalogue": (Path, "TOML file of datasets", "FILE"),
    "data_dir": (Path, "where inputs, the token key and waiting rows are kept", "DIR"),
    "public_url": (str, "how clients reach the service", "URL"),
    "trusted_proxies": (str, "whose X-Forwarded headers are believed", "LIST"),
    "cors_origins": (str, "origins of pages that may use the service", "LIST"),
    "drain_seconds": (float, "grace of running requests at the end", "S"),
    "drain_delay": (float, "time between readiness ending and connections being refused", "S"),
}
"""Settings that are flags too: how to read them, what they are, how they are called."""


def build_parser() -> argparse.ArgumentParser:
    """The command line, with its help texts."""
    parser = argparse.ArgumentParser(
        prog="thalweg-server", description="Event reports from loss streams, exact and in one pass."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="default info")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_aggregate(commands)
    _add_others(commands)
    return parser
