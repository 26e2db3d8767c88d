"""What both clients make of the arguments of a call, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..transport.effects import Item, Settled, Table
from ..transport.frames import Rows
from ..transport.retry import Backoff
from .posting import Posting
from .requests import LossOptions, LossRequests, Mode
from .rows import End, Position
from .saving import WHOLE_FORMATS, Progress, Saving, wire_format
from .sources import Source
from .state import StateFile

Observe: TypeAlias = Callable[[Progress], None]
Several: TypeAlias = list[str] | tuple[str, ...]
"""Names of reports."""

PART_SIZE = 16 << 20
"""Bytes of a part: some milliseconds of work, and little to send again after a cut."""


@dataclass(frozen=True, slots=True)
class How:
    """How a stream is posted.

    Attributes:
        mode: None: what suits the format.
        part_size: in bytes.
        retries: faults in a row to bear.
        observe: called whenever rows have been answered.
    """

    mode: Mode | None
    part_size: int
    retries: int
    observe: Observe | None


@dataclass(frozen=True, slots=True)
class Job:
    """A post that is ready to begin.

    Attributes:
        posting: decides what to do.
        source: what is posted; to be closed.
        saving: where tables go, if they are written.
        observe: called whenever rows have been answered.
    """

    posting: Posting
    source: Source
    saving: Saving | None
    observe: Observe | None

    def note(self, item: Item) -> None:
        """Tell the observer, if there is news."""
        if self.observe is not None and isinstance(item, Settled):
            posting = self.posting
            self.observe(Progress(posting.position.offset, self.source.size, posting.events))

    def tables(self) -> Saving:
        """Where tables go, in a job that writes them."""
        assert self.saving is not None  # noqa: S101 - made by save_job
        return self.saving

    def ended(self) -> End:
        """How it ended, once it is over."""
        assert self.posting.end is not None  # noqa: S101 - it is over
        return self.posting.end


def post_job(
    reports: tuple[str, ...], source: Source, start: Position, how: How, options: LossOptions
) -> Job:
    """A post whose rows are handed out.

    Args:
        reports: to be made.
        source: what is posted; closed if this fails.
        start: where to begin.
        how: to post it.
        options: of the contract.

    Raises:
        SourceError: an input cannot be read.
        TypeError, ValueError: an option cannot be.
    """
    with ExitStack() as on_error:
        on_error.callback(source.close)
        job = _job(reports, "frames", source, start, how, options)
        on_error.pop_all()
    return job


def save_job(  # noqa: PLR0913, PLR0917 - each is what the caller said
    reports: tuple[str, ...],
    source: Source,
    path: str | Path | int,
    table_format: str,
    state: str | Path | None,
    how: How,
    options: LossOptions,
) -> Job:
    """A post whose tables are written, from where the state says.

    Args:
        reports: to be made.
        source: what is posted; closed if this fails.
        path: of the table, or a directory for several, or a file descriptor.
        table_format: one of those that can be saved.
        state: path of the state file.
        how: to post it.
        options: of the contract.

    Raises:
        SourceError: an input cannot be read.
        StateError: the state does not fit.
        OSError: a table cannot be written.
        TypeError, ValueError: an option cannot be.
    """
    with ExitStack() as on_error:
        on_error.callback(source.close)
        how = How(_save_mode(table_format, how.mode), how.part_size, how.retries, how.observe)
        wire = wire_format(table_format)
        target = path if isinstance(path, int) else Path(path)
        file = StateFile(Path(state)) if state is not None else None
        saving = Saving(reports, table_format, target, file, source)
        on_error.callback(saving.stop)
        job = _job(reports, wire, source, saving.start, how, options, saving)
        on_error.pop_all()
    return job


def _job(  # noqa: PLR0913, PLR0917 - as above
    reports: tuple[str, ...],
    wire: str,
    source: Source,
    start: Position,
    how: How,
    options: LossOptions,
    saving: Saving | None = None,
) -> Job:
    requests = LossRequests(reports, wire, options, source.size)
    mode = how.mode or "parts"
    passed = saving.passed if saving is not None else None
    posting = Posting(requests, mode, how.part_size, start, Backoff(how.retries), passed=passed)
    return Job(posting, source, saving, how.observe)


def _save_mode(table_format: str, mode: Mode | None) -> Mode:
    if table_format in WHOLE_FORMATS:
        if mode not in {None, "whole"}:
            raise ValueError(f"{table_format} is made of the whole stream: mode whole")
        return "whole"
    if mode == "duplex" and table_format != "bin":
        raise ValueError(f"{table_format} has no tokens to go on with after a cut: not duplex")
    return mode or "parts"


def reports_of(report: str | Several) -> tuple[str, ...]:
    """One report or several, as several."""
    return (report,) if isinstance(report, str) else tuple(report)


def rows_only(table: Table) -> Rows:
    """What is handed out where one report was asked for by name."""
    return table.rows


def with_report(table: Table) -> tuple[str, Rows]:
    """What is handed out where reports were asked for by a sequence."""
    return table.report, table.rows
