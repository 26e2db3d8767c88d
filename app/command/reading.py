"""What commands that read loss streams share: which streams, their policy, and what is told."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog

from app.losses.outputs import STDOUT, is_special
from app.losses.sections import Observer, Progress
from app.losses.sources import STDIN
from core._jit import is_build_begun
from core.errors import OptionError
from core.losses.events import Completeness, StreamEnd
from core.losses.policy import Policy


def named_streams(args: argparse.Namespace) -> Sequence[str]:
    """Return the streams to read: those named, else standard input if it is redirected."""
    if not args.streams and not _is_piped():
        args.usage_error("no stream is named: name files or fifos, or pipe a stream in")
    return args.streams or [STDIN]


def _is_piped() -> bool:
    """Whether standard input is a pipe, file or socket rather than a terminal or /dev/null."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def are_piped(outputs: Iterable[str | Path]) -> bool:
    """Whether an output is standard output, a fifo or a device."""
    return any(path == STDOUT or is_special(Path(path)) for path in outputs)


def refuse_live(args: argparse.Namespace, outputs: Iterable[str | Path]) -> None:
    """Refuse ``--live`` where it does nothing.

    Raises:
        OptionError: all outputs are files.
    """
    if args.live and not are_piped(outputs):
        raise OptionError("--live is of standard output, fifos and devices", hint="Leave it out")


def announce_compiling() -> None:
    """Tell that kernels are compiled as they are needed, unless some have been on this machine."""
    if not is_build_begun():
        structlog.get_logger().info(
            "compiling the kernels that this needs, once per machine",
            hint="This takes up to 20 seconds; thalweg-server warmup compiles all of them",
        )


def log_ends(names: Sequence[str], ends: Sequence[StreamEnd], seconds: float, message: str) -> None:
    """Log how each stream ended, and the speed.

    Args:
        names: of the streams.
        ends: of the streams.
        seconds: that reading took.
        message: what has been done, such as ``reports written``.
    """
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
            log.debug("a missing end would go unnoticed", hint="Pass --expect-events N")
    total = sum(end.bytes for end in ends)
    log.info(message, seconds=round(seconds, 3), mb_per_s=round(total / seconds / 1e6, 1))


def policy_of(args: argparse.Namespace, **fields: Any) -> Policy:  # noqa: ANN401 - of Policy
    """Return the policy of parsed options; ``fields`` are those without an option."""
    return Policy(
        float_width=args.float_width,
        nan=args.nan,
        negative=args.negative,
        sample_order=args.sample_order,
        missing_end=args.missing_end,
        max_samples=args.max_samples,
        **fields,
    )


@contextlib.contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Observer | None]:
    """Yield an observer that draws bytes, event rate and remaining time.

    Yields None if the bar is disabled or standard error is not a terminal.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    # The import costs a tenth of a second, which batch jobs need not spend.
    from rich import console, progress  # noqa: PLC0415

    columns = (
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TextColumn("{task.fields[events]:,} events"),
        progress.TextColumn("{task.fields[rate]:,.0f}/s"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, events=0, rate=0.0)

        def observe(now: Progress) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = now.events / elapsed if elapsed else 0.0
            bar.update(task, total=now.total, completed=now.bytes, events=now.events, rate=rate)

        yield observe
