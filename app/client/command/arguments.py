"""What the commands share: exit codes, arguments, messages."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from ..client import Client
from .progress import Bar

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_CONNECTION = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """An argument such as 16MiB.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    found = re.fullmatch(r"(\d+) ?([KMG]?)(i?B)?", text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 16MiB")
    return int(found[1]) * _UNITS[found[2]]


def count(text: str) -> int:
    """An argument that is a number of things.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of things")
    return int(text)


def add_service(parser: argparse.ArgumentParser) -> None:
    """Arguments that say which service, and how to talk to it."""
    url = os.environ.get("THALWEG_URL", "http://127.0.0.1:8000")
    parser.add_argument("--url", default=url, help="of the service (THALWEG_URL)")
    key = os.environ.get("THALWEG_KEY")
    parser.add_argument("--key", default=key, help="bearer key (THALWEG_KEY)")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="of silence (default 60)"
    )
    parser.add_argument(
        "--retries", type=count, default=8, metavar="N", help="faults in a row (default 8)"
    )


def add_manners(parser: argparse.ArgumentParser) -> None:
    """Arguments of commands that take a while."""
    parser.add_argument("--state", help="state file (default: --out with .thalweg-state)")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def connect(args: argparse.Namespace) -> Client:
    """A client of the service that the arguments say."""
    return Client(args.url, args.key, timeout=args.timeout, retries=args.retries)


def make_bar(args: argparse.Namespace) -> Bar | None:
    """A progress bar, where one is wanted and there is a terminal."""
    if args.quiet or args.no_progress or not sys.stderr.isatty():
        return None
    return Bar(sys.stderr)


def stopped(bar: Bar | None, state: str | None) -> None:
    """Clear the bar, and say what is kept of what was not finished."""
    if bar is not None:
        bar.clear()
    if state is not None and Path(state).exists():
        say(f"what was done is kept in {state}: the same command goes on from there")


def say(text: str) -> None:
    """Write a line for people."""
    sys.stderr.write(f"thalweg: {text}\n")


def fail(error: BaseException | str, code: int) -> int:
    """Say what went wrong; the exit code."""
    say(str(error))
    return code
