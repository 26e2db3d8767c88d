"""What the commands write to the terminal: messages and progress; and their exit codes."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from ..errors import ConnectionFailed, OtherFileError, ProblemError, StateError, ThalwegError
from ..hints import hint_of
from ..losses.requests import INPUTS, LossOptions
from ..losses.saving import Progress
from ..runs.requests import RunOptions
from ..runs.uploading import Uploading
from ..tiles.saving import TileProgress
from ..transport.retry import is_retryable

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_CONNECTION = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143

_OPTIONS = "|".join({*INPUTS, *LossOptions.__annotations__, *RunOptions.__annotations__})
_NAMES = re.compile(rf"(?<!run input RUN )(?<![\w./-])(?=\w+_)({_OPTIONS})=?(?!\w|/|\.\w)")
"""Options as the service and Python name them, unless they are words or parts of a path."""
_MEMBERS = re.compile(r"\b(reports)\.\d+|\boptions\.(\w+)|\binputs\.(\w+)")
"""Members of the body that creates a run, each of which is an option."""
_JSON = tuple(
    (re.compile(pattern), option)
    for pattern, option in (
        (r'\{"layers": \[…\]\}', "--programme FILE"),
        (r'\{"perils": .*?\}\}', "--perils FILE"),
        (r'\{"blend": \{"([^"]+)": …\}\}', r"--blend \1=…"),
        (r'\{"currency": "(\w+)"\}', r"--currency \1"),
        (r'"of": "gross", "net" or', "--of gross, net or"),
        (r'"of": "(\w+)"', r"--of \1"),
        (r'\{"group_by": \["([^"]+)"\]\}?', r"--group-by \1"),
        (r"\b(programme|group)_by\b", r"--\1-by"),
        (r', "insured_value": …\}', " --insured-value NAME"),
    )
)
"""Members of a question about loss sets, as messages quote them, and the option for each."""
_USAGE = frozenset(
    {"option", "report", "not-acceptable", "unprocessable", "pipeline", "shape", "selection"}
)
"""Codes of problems that lie in how a command was called."""
_INTERVAL = 0.1
"""Seconds between two drawings."""
_WIDTH = 24
_MEGABYTE = 1e6


class Fetching(NamedTuple):
    """How far a file is on its way here."""

    bytes: int
    total: int | None = None


class Reducing(NamedTuple):
    """How far a reduction is, in tiles."""

    done: int
    total: int
    bytes: int = 0


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"thalweg: {text}\n")


class _Outages(logging.Handler):
    """Says what the client logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, over a bar if there is one."""
        sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
        say(record.getMessage())


@contextmanager
def saying_outages(*, quiet: bool) -> Iterator[None]:
    """Say while this lasts that requests are tried again, and that they are answered again."""
    log, handler = logging.getLogger("thalweg"), _Outages()
    log.setLevel(logging.ERROR if quiet else logging.INFO)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = True


def print_json(value: object) -> None:
    """Write a value to stdout, for people to read."""
    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")


def exit_code(error: BaseException) -> int:
    """The exit code of an error: of the connection, in the data, or in how a command is used."""
    lost = isinstance(error, ConnectionFailed)
    if lost or (isinstance(error, ThalwegError) and is_retryable(error)):
        return EXIT_CONNECTION
    if isinstance(error, ProblemError):
        return EXIT_USAGE if error.code in _USAGE and error.offset is None else EXIT_DATA
    return EXIT_DATA if isinstance(error, ThalwegError | OSError) else EXIT_USAGE


def told(error: BaseException, args: argparse.Namespace | None = None) -> str:
    """What went wrong, and what to do about it, with options by their names in a command."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        path = Path(str(error.filename).removesuffix(".partial"))
        known = path.parent.exists()
        text = f"{path}: {error.strerror}" if known else f"there is no folder {path.parent}"
    elif isinstance(error, ProblemError):
        text = error.said(hint_of(error.problem, command=True))
        text = _MEMBERS.sub(lambda name: f"--{name[name.lastindex or 0].replace('_', '-')}", text)
        for member, option in _JSON:
            text = member.sub(option, text)
        source = error.problem.get("source")
        if source in INPUTS and (file := getattr(args, source, None)) is not None:
            text = text.replace(f"{source}: ", f"--{source.replace('_', '-')} {file}: ", 1)
    if isinstance(error.__cause__, ConnectionRefusedError):
        text += " Name it with --url or THALWEG_URL"
    text = with_options(text, args)
    prog = getattr(getattr(args, "parser", None), "prog", "")
    if isinstance(error, ProblemError) and " run " in prog:
        text = text.replace(" RUN", f" {getattr(args, 'id', 'RUN')}")
    return text


def with_options(text: str, args: argparse.Namespace | None = None) -> str:
    """A text about options by their names in Python, by those that a command has of them."""

    def option(name: re.Match[str]) -> str:
        has = args is None or hasattr(args, name[1])
        return f"--{name[1].replace('_', '-')}" if has else name[0]

    return _NAMES.sub(option, text)


def fail(error: BaseException, args: argparse.Namespace) -> int:
    """Report what went wrong; the exit code."""
    say(told(error, args))
    return exit_code(error)


def make_bar(args: argparse.Namespace) -> Bar | None:
    """A progress bar, unless it is unwanted or there is no terminal."""
    return Bar(sys.stderr) if _shows_progress(args) else None


def make_bars(args: argparse.Namespace, partitions: Sequence[int]) -> Bars | None:
    """A progress bar for each partition, unless they are unwanted or there is no terminal."""
    return Bars(sys.stderr, partitions) if _shows_progress(args) else None


def _shows_progress(args: argparse.Namespace) -> bool:
    return not args.quiet and not args.no_progress and sys.stderr.isatty()


@contextmanager
def saying_warnings(*, quiet: bool) -> Iterator[None]:
    """Say what the client warns of as a command does, or nothing of it."""
    with warnings.catch_warnings(record=True, action="ignore") as caught:
        warnings.simplefilter("ignore" if quiet else "always", UserWarning)
        try:
            yield
        finally:
            for warning in caught:
                say(with_options(str(warning.message)))


def is_stale(error: BaseException | None) -> bool:
    """Whether a state file is of something else, so that starting over helps."""
    if isinstance(error, ProblemError):
        return error.code == "data-changed"
    return isinstance(error, StateError) and not isinstance(error, OtherFileError)


def stopped(bar: Bar | None, state: str | None, *, error_tells: bool = False) -> None:
    """Clear the bar, and say how to complete what was not finished.

    Args:
        bar: to clear.
        state: path of the state file.
        error_tells: whether the error itself says how to start over.
    """
    if bar is not None:
        bar.clear()
    if state is None or not Path(state).exists():
        return
    error = sys.exc_info()[1]
    if is_stale(error):
        if not error_tells:
            say(f"{state} is of something else: remove it to start over")
    elif not isinstance(error, StateError):
        is_fault = isinstance(error, ProblemError) and error.offset is not None
        suffix = ", once the fault is mended" if is_fault else ""
        say(f"progress is saved in {state}: the same command resumes from there{suffix}")


class Bar:
    """Draws progress in one line, which is cleared at the end.

    Args:
        out: the terminal.
        clock: seconds.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._began = clock()
        self._from: int | None = None
        self._drawn = -_INTERVAL

    def __call__(self, progress: Progress | TileProgress | Fetching | Reducing) -> None:
        """Draw the progress, unless it was drawn a moment ago."""
        at = self._clock() - self._began
        if self._from is None:
            self._from = progress.bytes
        if at - self._drawn < _INTERVAL:
            return
        self._drawn = at
        rate = (progress.bytes - self._from) / at if at else 0.0
        self._out.write(f"\r\x1b[K{describe(progress, rate)}")
        self._out.flush()

    def clear(self) -> None:
        """Leave an empty line."""
        self._out.write("\r\x1b[K")
        self._out.flush()


class Bars:
    """Draws the progress of several uploads, a line for each, which are cleared at the end.

    Any thread may draw.

    Args:
        out: the terminal.
        partitions: in the order of their lines.
        clock: seconds.
    """

    def __init__(
        self, out: TextIO, partitions: Sequence[int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._clock = clock
        self._began = clock()
        self._seen: dict[int, Uploading | None] = dict.fromkeys(partitions)
        self._from: dict[int, int] = {}
        self._lines = 0
        self._drawn = -_INTERVAL
        self._lock = threading.Lock()

    def __call__(self, progress: Uploading) -> None:
        """Draw the progress of one of them, unless it was drawn a moment ago."""
        with self._lock:
            self._seen[progress.partition] = progress
            self._from.setdefault(progress.partition, progress.bytes)
            at = self._clock() - self._began
            if at - self._drawn >= _INTERVAL:
                self._drawn = at
                self._draw(at)

    def _draw(self, seconds: float) -> None:
        lines = []
        for partition, seen in self._seen.items():
            if seen is not None and seen.bytes != seen.total:
                rate = (seen.bytes - self._from[partition]) / seconds if seconds else 0.0
                lines.append(f"{partition:6d}  {describe(seen, rate)}")
        sent = sum(seen.bytes for seen in self._seen.values() if seen is not None)
        begun = sum(self._from.values())
        speed = (sent - begun) / seconds if seconds else 0.0
        lines.append(f"   all  {sent / _MEGABYTE:,.1f} MB  {speed / _MEGABYTE:,.0f} MB/s")
        self._erase()
        self._out.write("\n".join(lines))
        self._out.flush()
        self._lines = len(lines)

    def _erase(self) -> None:
        up = f"\x1b[{self._lines - 1}A" if self._lines > 1 else ""
        self._out.write(f"\r{up}\x1b[J")

    def clear(self) -> None:
        """Leave nothing."""
        with self._lock:
            if self._lines:
                self._erase()
                self._out.flush()
                self._lines = 0


def counted(number: int, noun: str) -> str:
    """Say how many there are: ``1 event``, ``2,000 events``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bar(done: int, total: int) -> str:
    share = min(done / total, 1.0)
    return f"{share:4.0%} [{'#' * int(share * _WIDTH):{_WIDTH}}] "


def describe(
    progress: Progress | TileProgress | Uploading | Fetching | Reducing, rate: float
) -> str:
    """Progress as a line of text.

    Args:
        progress: of a post, a view, an upload, a file or a reduction.
        rate: bytes per second.
    """
    if isinstance(progress, Reducing):
        done, total, _ = progress
        return f"{_bar(done, total or 1)}{done:,} of {counted(total, 'tile')}"
    text = f"{progress.bytes / _MEGABYTE:,.1f}"
    if progress.total:
        text = f"{_bar(progress.bytes, progress.total)}{text}/{progress.total / _MEGABYTE:,.1f}"
    text += f" MB  {rate / _MEGABYTE:,.0f} MB/s"
    if isinstance(progress, TileProgress):
        return f"{text}  {counted(progress.tiles, 'tile')}"
    if isinstance(progress, Progress):
        return f"{text}  {counted(progress.events, 'event')}"
    return text
