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

import numpy as np
import orjson
import structlog
from pydantic import ValidationError

from app.parser import FLAGS, build_parser
from app.progress import progress_bar
from app.services.aggregation import Aggregation, Job
from app.services.dataset_inspection import inspect_files
from app.services.inspection import Findings, inspect, looks_like_stream
from app.services.sampling import write_sample
from app.settings import Settings
from app.storage.sources import read_file
from app.telemetry import configure_logging
from core._jit import is_build_published
from core.arrays import Rows
from core.errors import CoreError, OptionError, ReportError
from core.losses.events import Completeness, StreamEnd
from core.losses.format import Kind
from core.losses.inputs import (
    EventRates,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)
from core.losses.policy import Policy
from core.losses.samples import SampleSpec
from core.tiles.recording import Hints
from core.tiles.view import parse_dtype
from core.warmup import warm_up

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


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
    hints = (args.format, args.dtype, args.sig_shape, args.array)
    directory = Path(args.files[0]).is_dir()
    if len(args.files) > 1 or any(hints) or directory or not looks_like_stream(args.files[0]):
        return _inspect_dataset(args)
    found = inspect(args.files[0], _policy(args))
    text = "\n".join(_describe(found)).encode()
    if args.json:
        text = orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
    return EXIT_DATA if found.fault is not None else 0


def _inspect_dataset(args: argparse.Namespace) -> int:
    hints = Hints(
        dtype=None if args.dtype is None else np.dtype(parse_dtype(args.dtype)),
        sig_shape=args.sig_shape,
        nav_shape=args.nav_shape,
    )
    about = inspect_files([Path(name) for name in args.files], hints, args.format, args.array)
    text = orjson.dumps(about, option=orjson.OPT_INDENT_2)
    if not args.json:
        text = "\n".join(f"{name:<14}{value}" for name, value in about.items()).encode()
    sys.stdout.buffer.write(text + b"\n")
    return 0


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

    names = [*FLAGS, "scan"]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
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


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "aggregate": _aggregate,
    "inspect": _inspect,
    "sample": _sample,
    "serve": _serve,
    "openapi": _openapi,
    "key": _key,
    "warmup": _warmup,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = build_parser().parse_args(argv)
    configure_logging(args.log_level)
    try:
        code = _COMMANDS[args.command](args)
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
