"""Exit codes and messages of the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .progress import Bar, Bars

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_CONNECTION = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"thalweg: {text}\n")


def fail(error: BaseException | str, code: int) -> int:
    """Report what went wrong; the exit code."""
    say(str(error))
    return code


def make_bar(args: argparse.Namespace) -> Bar | None:
    """A progress bar, unless it is unwanted or there is no terminal."""
    return Bar(sys.stderr) if _shows_progress(args) else None


def make_bars(args: argparse.Namespace, partitions: Sequence[int]) -> Bars | None:
    """A progress bar for each partition, unless they are unwanted or there is no terminal."""
    return Bars(sys.stderr, partitions) if _shows_progress(args) else None


def _shows_progress(args: argparse.Namespace) -> bool:
    return not args.quiet and not args.no_progress and sys.stderr.isatty()


def stopped(bar: Bar | None, state: str | None) -> None:
    """Clear the bar, and say how to complete what was not finished."""
    if bar is not None:
        bar.clear()
    if state is not None and Path(state).exists():
        say(f"progress is saved in {state}: the same command resumes from there")
