"""A progress bar, on terminals only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from app.losses.aggregation import Observer, Progress


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
