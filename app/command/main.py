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
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from app.errors import InvalidOptionError
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


_MEMBERS = re.compile(
    r"""\"(\w+)\": \"?([^\s".,]+)\"?"""
    r"|(?<![\w./-])([a-z]+(?:_[a-z]+)+|dtype|(?<=in )array|[a-z]+(?==))(?!\w|/|\.\w)"
)
"""Members of a description, alone or with their value, which are options of some commands."""


def _fail(error: CoreError, code: int, args: argparse.Namespace) -> int:
    missing = getattr(error, "inputs", None) or ()
    options = "".join(f": --{name.replace('_', '-')} FILE" for name in missing)

    def spoken(name: re.Match[str]) -> str:
        member, value = name[1] or name[3], name[2]
        option = f"--{member.replace('_', '-')}{f' {value}' if value else ''}"
        return option if member in args else name[0]

    text = _MEMBERS.sub(spoken, f"{error}{options}")
    print(f"thalweg-server: [{error.code}] {text}", file=sys.stderr)  # noqa: T201 - as above
    return code


_COMMANDS = {
    "aggregate": ("aggregate", "aggregate"),
    "doctor": ("doctor", "doctor"),
    "inspect": ("inspect", "inspect_command"),
    "sample": ("engine", "sample"),
    "serve": ("serving", "serve"),
    "openapi": ("serving", "openapi"),
    "key": ("keys", "key"),
    "keys": ("keys", "keys"),
    "merge": ("split", "merge"),
    "oasis": ("oasis", "oasis"),
    "state": ("state", "state"),
    "split": ("split", "split"),
    "summarise": ("summarise", "summarise_command"),
    "warmup": ("engine", "warmup"),
    "worker": ("worker", "worker"),
}
"""Module and function of each command."""
_OF_RUN_DIRECTORIES = ("oasis", "aggregate_run")
"""The same of ``aggregate --run-dir``."""


def _load(args: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Import what runs a command."""
    module, function = _COMMANDS[args.command]
    if args.command == "aggregate" and args.run_dir is not None:
        module, function = _OF_RUN_DIRECTORIES
    run: Callable[[argparse.Namespace], int] = getattr(
        import_module(f".{module}", __package__), function
    )
    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    args = build_parser(argv).parse_args(argv)
    if args.command != "serve":
        # Workers of a service inherit what is set here, and live long.
        _collect_seldom()
    configure_logging(args.log_level or ("warning" if args.command == "inspect" else "info"))
    try:
        code = _load(args)(args)
        sys.stdout.flush()
    except (OptionError, ReportError) as e:
        return _fail(e, EXIT_DATA if e.offset is not None else EXIT_USAGE, args)
    except InvalidOptionError as e:
        return _fail(OptionError(str(e), hint=e.hint), EXIT_USAGE, args)
    except CoreError as e:
        return _fail(e, EXIT_DATA, args)
    except BrokenPipeError:
        # The interpreter flushes standard output again at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code
