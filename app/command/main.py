"""The ``thalweg-server`` command.

Exit codes: 0 success, 1 faulty data, 2 wrong usage, 130 interrupted, 141 the reader of
standard output has gone.

Each command imports its parts when it is run: the process that ``serve`` starts stays as the
small supervisor of its workers, and ``keys`` needs no engine.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence

from app.logs import configure_logging
from core.errors import CoreError, OptionError, ReportError

from .parser import build_parser

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_COLLECTION_THRESHOLD = 20_000
"""New objects per collection of garbage; Python's default is 700."""


def _collect_seldom() -> None:
    """Spare a short process most collections of garbage.

    Loading the modules of a command creates some hundred thousand objects, none of them garbage.
    Collections while they are loaded and those of the interpreter at its end, which pass over
    objects that are frozen, would take a quarter of the time of a small job.
    """
    gc.set_threshold(_COLLECTION_THRESHOLD)
    atexit.register(gc.freeze)


def _aggregate(args: argparse.Namespace) -> int:
    if args.run_dir is not None:
        from .oasis import aggregate_run  # noqa: PLC0415 - see above

        return aggregate_run(args)
    from .aggregate import aggregate  # noqa: PLC0415 - see above

    return aggregate(args)


def _inspect(args: argparse.Namespace) -> int:
    from .inspect import inspect_command  # noqa: PLC0415 - see above

    return inspect_command(args)


def _sample(args: argparse.Namespace) -> int:
    from .engine import sample  # noqa: PLC0415 - see above

    return sample(args)


def _merge(args: argparse.Namespace) -> int:
    from .merge import merge  # noqa: PLC0415 - see above

    return merge(args)


def _summarise(args: argparse.Namespace) -> int:
    from .summarise import summarise_command  # noqa: PLC0415 - see above

    return summarise_command(args)


def _oasis(args: argparse.Namespace) -> int:
    from .oasis import oasis  # noqa: PLC0415 - see above

    return oasis(args)


def _warmup(args: argparse.Namespace) -> int:
    from .engine import warmup  # noqa: PLC0415 - see above

    return warmup(args)


def _serve(args: argparse.Namespace) -> int:
    from .service import serve  # noqa: PLC0415 - see above

    return serve(args)


def _openapi(args: argparse.Namespace) -> int:
    from .service import openapi  # noqa: PLC0415 - see above

    return openapi(args)


def _key(args: argparse.Namespace) -> int:
    from .keys import key  # noqa: PLC0415 - see above

    return key(args)


def _keys(args: argparse.Namespace) -> int:
    from .keys import keys  # noqa: PLC0415 - see above

    return keys(args)


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
    "keys": _keys,
    "merge": _merge,
    "oasis": _oasis,
    "summarise": _summarise,
    "warmup": _warmup,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    args = build_parser(argv).parse_args(argv)
    if args.command != "serve":
        # Workers of a service inherit what is set here, and live long.
        _collect_seldom()
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
