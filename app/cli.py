"""The ``thalweg-server`` command.

Exit codes: 0 done, 1 something is wrong with the data, 2 something is wrong with
the command, 130 interrupted, 141 the reader of the output has gone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import structlog
from pydantic import ValidationError

from app import __version__
from app.progress import progress_bar
from app.services.aggregation import STDOUT, Aggregation, Job
from app.services.inspection import Findings, inspect
from app.services.sampling import write_sample
from app.settings import Settings
from app.storage.sources import read_file
from app.tables import FORMATS
from app.telemetry import LEVELS, configure_logging
from core._jit import is_build_published
from core.errors import CoreError, OptionError, ReportError
from core.losses.analysis import Rows
from core.losses.events import Completeness, StreamEnd
from core.losses.format import MAX_SAMPLES, Kind
from core.losses.inputs import (
    EventRates,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)
from core.losses.merge import READ_AHEAD
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec
from core.warmup import warm_up

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


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
    parser.set_defaults(run=_aggregate)
    parser.add_argument("streams", nargs="+", metavar="FILE", help="files or fifos, - for stdin")
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
    parser = commands.add_parser("inspect", help="say what is in a stream, and what is wrong")
    parser.set_defaults(run=_inspect)
    parser.add_argument("stream", metavar="FILE", help="file or fifo, - for stdin")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    _add_policy(parser)

    spec = SampleSpec()
    parser = commands.add_parser("sample", help="make a realistic stream with its inputs")
    parser.set_defaults(run=_sample)
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
    parser.set_defaults(run=_warmup)


def _add_service(commands: Any) -> None:  # noqa: ANN401 - as above
    parser = commands.add_parser(
        "serve",
        help="answer loss streams over HTTP",
        description="Serve until SIGTERM. Every setting can also be a THALWEG_... variable.",
    )
    parser.set_defaults(run=_serve)
    for name, field in Settings.model_fields.items():
        kind = _FLAGS.get(name)
        if kind is None:
            continue
        flag = "--" + name.replace("_", "-")
        text = "" if field.default is None else f" (default {field.get_default()})"
        help_text = kind[1] + (text if not field.default_factory else "")
        parser.add_argument(flag, dest=name, type=kind[0], metavar=kind[2], help=help_text)

    parser = commands.add_parser("openapi", help="print the OpenAPI document")
    parser.set_defaults(run=_openapi)

    parser = commands.add_parser("key", help="make a key for clients, and what to store of it")
    parser.set_defaults(run=_key)
    parser.add_argument("name", nargs="?", default="client", help="what logs call its owner")


_FLAGS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "host": (str, "address to listen at", "ADDRESS"),
    "port": (int, "0 for any that is free", "N"),
    "workers": (int, "processes", "N"),
    "threads": (int, "threads of a process that compute; default one a core", "N"),
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


def _policy(args: argparse.Namespace, **more: Any) -> Policy:  # noqa: ANN401 - fields of Policy
    return Policy(
        float_width=args.float_width,
        nan=args.nan,
        negative=args.negative,
        sample_order=args.sample_order,
        max_samples=args.max_samples,
        **more,
    )


def _event_rates(args: argparse.Namespace) -> EventRates | None:
    if args.no_of_periods is not None and not args.occurrence:
        raise OptionError("--no-of-periods goes with --occurrence")
    if args.event_rates:
        return parse_event_rates(read_file(args.event_rates), args.event_rates)
    if args.occurrence:
        data = read_file(args.occurrence)
        return parse_occurrence(data, args.no_of_periods, args.occurrence).event_rates()
    return None


def _quantiles(text: str | None) -> Any:  # noqa: ANN401 - an array or None
    if text is None:
        return None
    if set(text) <= set("0123456789.eE+-, ") and not Path(text).exists():
        return quantiles_from_text(text, "--quantiles")
    return parse_quantiles(read_file(text), text)


def _log_events(rows: Rows) -> None:
    log = structlog.get_logger()
    for row in rows:
        log.debug("event", **{name: row[name].item() for name in rows.dtype.names or ()})


def _aggregate(args: argparse.Namespace) -> int:
    job = Job(
        streams=args.streams,
        reports=args.reports,
        out=args.out,
        format=args.format,
        policy=_policy(args, event_order="ascending" if args.order == "event" else "any"),
        order=args.order,
        quantiles=_quantiles(args.quantiles),
        event_rates=_event_rates(args),
        expect_events=args.expect_events,
        expect_bytes=args.expect_bytes,
        read_ahead=args.read_ahead,
        idle_timeout=args.idle_timeout,
    )
    log = structlog.get_logger()
    if not is_build_published():
        log.info("compiling kernels, once on this machine", hint="about a minute")
        warm_up()
    taps: dict[str, Callable[[Rows], None]] = {}
    if args.log_level == "debug":
        taps["events"] = _log_events
    start = time.perf_counter()
    with progress_bar(wanted=not args.no_progress) as observer:
        ends = Aggregation(job, observer, taps).run()
    _log_ends(args.streams, ends, time.perf_counter() - start)
    return 0


def _log_ends(names: Sequence[str], ends: Sequence[StreamEnd], seconds: float) -> None:
    log = structlog.get_logger()
    for name, end in zip(names, ends, strict=True):
        log.info(
            "stream read",
            stream=name,
            completeness=end.completeness.value,
            events=end.events,
            blocks=end.blocks,
            bytes=end.bytes,
            ascending=end.ascending,
        )
        if end.completeness is Completeness.UNDECLARED:
            log.debug("blocks missing at the end would not show", hint="--expect-events N")
    total = sum(end.bytes for end in ends)
    log.info("reports written", seconds=round(seconds, 3), mb_per_s=round(total / seconds / 1e6, 1))


def _describe(found: Findings) -> list[str]:
    lines = [f"{found.source}: {found.header.describe() if found.header else 'no header'}"]
    if found.header is not None:
        order = "ascending" if found.ascending else "not ascending"
        lines += [
            f"  bytes in whole blocks  {found.bytes:,}",
            f"  events                 {found.events:,} (ids {order})",
            f"  blocks                 {found.blocks:,} (at most {found.most_blocks:,} an event)",
            f"  pairs                  {found.pairs:,}",
        ]
    if found.lowest_event is not None:
        lines.append(f"  event ids              {found.lowest_event} to {found.highest_event}")
    fault = "none; a stream has no end marker, so blocks may be missing at its end"
    if found.fault is not None:
        fault = f"[{found.fault.code}] {found.fault}"
    return [*lines, f"  first fault            {fault}"]


def _inspect(args: argparse.Namespace) -> int:
    found = inspect(args.stream, _policy(args))
    text = "\n".join(_describe(found)).encode()
    if args.json:
        text = orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
    return EXIT_DATA if found.fault is not None else 0


def _sample(args: argparse.Namespace) -> int:
    spec = SampleSpec(
        events=args.events,
        summaries=args.summaries,
        samples=args.samples,
        density=args.density,
        seed=args.seed,
        kind=Kind(args.kind),
        float_width=args.float_width,
    )
    for path, size in write_sample(spec, Path(args.out)):
        print(f"{size:>12,} bytes  {path}")  # noqa: T201 - the command's answer
    return 0


def _serve(args: argparse.Namespace) -> int:
    from app.serving import run_server  # noqa: PLC0415 - half a second other commands save

    given = {name: getattr(args, name) for name in _FLAGS if getattr(args, name) is not None}
    try:
        return run_server(Settings(log_level=args.log_level, **given))
    except (ValidationError, ValueError) as e:
        raise OptionError(str(e)) from e


def _openapi(_args: argparse.Namespace) -> int:
    from app.main import create_app  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as directory:
        document = create_app(Settings(data_dir=Path(directory))).openapi()
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


def _key(args: argparse.Namespace) -> int:
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    print(f"key for the client:   {key}")  # noqa: T201 - the command's answer
    print(f"for THALWEG_API_KEYS: {args.name}:{digest}")  # noqa: T201 - as above
    return 0


def _warmup(_args: argparse.Namespace) -> int:
    seconds = warm_up()
    for name, value in seconds.items():
        print(f"{value:8.2f} s  {name}")  # noqa: T201 - the command's answer
    print(f"{sum(seconds.values()):8.2f} s  in all")  # noqa: T201 - as above
    return 0


def _fail(error: CoreError, code: int) -> int:
    print(f"thalweg-server: [{error.code}] {error}", file=sys.stderr)  # noqa: T201 - as above
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = build_parser().parse_args(argv)
    configure_logging(args.log_level)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except (OptionError, ReportError) as e:
        return _fail(e, EXIT_DATA if e.offset is not None else EXIT_USAGE)
    except CoreError as e:
        return _fail(e, EXIT_DATA)
    except BrokenPipeError:
        # Whoever read our output has enough. Standard output must not be flushed
        # again at exit, that would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
