"""The ``thalweg-server`` command.

Exit codes: 0 success, 1 faulty data, 2 wrong usage, 130 interrupted, 141 the reader of
standard output has gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from app.engine.warmup import warm_kernels
from app.losses.sampling import write_sample
from app.telemetry import configure_logging
from core.errors import CoreError, OptionError, ReportError
from core.losses.format import Kind
from core.losses.samples import SampleSpec

from .aggregate import aggregate
from .inspect import inspect_command
from .parser import build_parser
from .service import key, openapi, serve

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


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
        print(f"{size:>12,} bytes  {path}")  # noqa: T201 - the command's output
    return 0


def _warmup(_args: argparse.Namespace) -> int:
    seconds = warm_kernels()
    for name, value in seconds.items():
        print(f"{value:8.2f} s  {name}")  # noqa: T201 - the command's output
    print(f"{sum(seconds.values()):8.2f} s  total")  # noqa: T201 - as above
    return 0


def _fail(error: CoreError, code: int) -> int:
    print(f"thalweg-server: [{error.code}] {error}", file=sys.stderr)  # noqa: T201 - as above
    return code


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "aggregate": aggregate,
    "inspect": inspect_command,
    "sample": _sample,
    "serve": serve,
    "openapi": openapi,
    "key": key,
    "warmup": _warmup,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    args = build_parser().parse_args(argv)
    configure_logging(args.log_level or "info")
    try:
        code = _COMMANDS[args.command](args)
        sys.stdout.flush()
    except (OptionError, ReportError) as e:
        return _fail(e, EXIT_DATA if e.offset is not None else EXIT_USAGE)
    except CoreError as e:
        return _fail(e, EXIT_DATA)
    except BrokenPipeError:
        # The interpreter flushes standard output again at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code
