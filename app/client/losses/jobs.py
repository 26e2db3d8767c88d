"""Posts from the arguments of a call, as operations that either client runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..transport.effects import Deliver, Steps, Work, next_item
from ..transport.frames import Rows
from ..transport.retry import Backoff
from .posting import Posting, Settled, Table
from .requests import LossOptions, LossRequests, Mode
from .rows import End, Position
from .saving import WHOLE_FORMATS, Progress, Saving, wire_format
from .sources import Source
from .tables import ReportTable

Observe: TypeAlias = Callable[[Progress], None]
Several: TypeAlias = list[str] | tuple[str, ...]
"""Names of reports."""


class ReadOptions(LossOptions, total=False):
    """Everything that a post can be given that begins with its stream."""

    exec: Sequence[str] | None
    mode: Mode
    part_size: int
    progress: Observe | None


class PostOptions(ReadOptions, total=False):
    """Everything that a post can be given besides its reports and its source."""

    after: str | None
    offset: int


PART_SIZE = 16 << 20
"""Bytes of a part: some milliseconds of work, and little to send again after a cut."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a stream is posted.

    Attributes:
        mode: None for the one that suits the format.
        part_size: bytes.
        retries: failures in a row to tolerate.
        observe: called whenever rows have been answered.
    """

    mode: Mode | None
    part_size: int
    retries: int
    observe: Observe | None

    def posting(
        self,
        requests: LossRequests,
        source: Source,
        start: Position,
        passed: str | None = None,
    ) -> Posting:
        """A post of a source.

        Raises:
            ValueError: there is no such mode, or parts have no size.
        """
        mode = self.mode or "parts"
        backoff = Backoff(self.retries)
        return Posting(requests, source, mode, self.part_size, backoff, start, passed)

    def note(self, posting: Posting, source: Source, item: object) -> None:
        """Tell the observer of progress."""
        if self.observe is not None and isinstance(item, Settled):
            self.observe(Progress(posting.offset, source.size, posting.events))


class Post:
    """A post whose rows are delivered: pairs of report and rows, or rows alone.

    Args:
        report: a name, for rows; or several, for pairs.
        source: the stream; closed if this fails.
        start: where to begin.
        choices: how to post it.
        options: of the contract.

    Attributes:
        posting: how far it is.

    Raises:
        SourceError: an input cannot be read.
        TypeError, ValueError: an option is wrong.
    """

    def __init__(
        self,
        report: str | Several,
        source: Source,
        start: Position,
        choices: Choices,
        options: LossOptions,
    ) -> None:
        self._alone = isinstance(report, str)
        self._source = source
        self._choices = choices
        with ExitStack() as on_error:
            on_error.callback(source.close)
            requests = LossRequests(_names(report), "frames", options, source.size)
            self.posting = choices.posting(requests, source, start)
            on_error.pop_all()

    def run(self) -> Steps[None]:
        """Deliver the rows."""
        items = self.posting.run()
        while (item := (yield from next_item(items))) is not None:
            if isinstance(item, Table):
                yield Deliver(item.rows if self._alone else (item.report, item.rows))
            else:
                self._choices.note(self.posting, self._source, item)


def read(
    report: str | Several, source: Source, choices: Choices, options: LossOptions
) -> Steps[dict[str, ReportTable]]:
    """Post a stream and collect its tables, by report.

    Args:
        report: a name, or several.
        source: the stream.
        choices: how to post it.
        options: of the contract.

    Raises:
        ThalwegError: as for posting.
        TypeError, ValueError: an option is wrong.
    """
    names = _names(report)
    requests = LossRequests(names, "frames", options, source.size)
    posting = choices.posting(requests, source, Position())
    parts: dict[str, list[Rows]] = {name: [] for name in names}
    items = posting.run()
    while (item := (yield from next_item(items))) is not None:
        if isinstance(item, Table):
            parts[item.report].append(item.rows)
        else:
            choices.note(posting, source, item)
    nothing = np.dtype([])
    return {
        name: ReportTable(name, _joined(rows, posting.dtypes.get(name, nothing)))
        for name, rows in parts.items()
    }


def _joined(rows: list[Rows], dtype: np.dtype[Any]) -> Rows:
    return np.concatenate(rows) if rows else np.zeros(0, dtype)


class PostAnswer:
    """What both clients' answers say about their post."""

    _post: Post

    @property
    def token(self) -> str | None:
        """Token to resume with after the rows delivered; None at the beginning and end."""
        return self._post.posting.token

    @property
    def offset(self) -> int:
        """Stream offset in bytes that belongs to ``token``."""
        return self._post.posting.offset

    @property
    def end(self) -> End | None:
        """How the stream ended; None before."""
        return self._post.posting.end


def save(  # noqa: PLR0913, PLR0917 - what the caller said
    report: str | Several,
    source: Source,
    path: str | Path | int,
    table_format: str,
    state: str | Path | None,
    choices: Choices,
    options: LossOptions,
) -> Steps[End]:
    """Post a stream and write its tables; how it ended.

    Args:
        report: a name, or several.
        source: the stream.
        path: of the table, of a directory for several, or a file descriptor.
        table_format: one of ``saving.FORMATS``.
        state: path of the state file.
        choices: how to post it.
        options: of the contract.

    Raises:
        ThalwegError: as for posting; StateError if the state does not fit.
        OSError: a table cannot be written.
        TypeError, ValueError: an option is wrong.
    """
    mode = _save_mode(table_format, choices.mode)
    requests = LossRequests(_names(report), wire_format(table_format), options, source.size)
    saving = Saving(
        requests.reports,
        table_format,
        path if isinstance(path, int) else Path(path),
        None if state is None else Path(state),
        source,
    )
    try:
        yield Work(saving.open)
        choices = Choices(mode, choices.part_size, choices.retries, choices.observe)
        posting = choices.posting(requests, source, saving.start, saving.passed)
        items = posting.run()
        while (item := (yield from next_item(items))) is not None:
            yield Work(partial(saving.take, item))
            choices.note(posting, source, item)
        yield Work(saving.finish)
    finally:
        saving.stop()
    assert posting.end is not None  # noqa: S101 - the items are over
    return posting.end


def _save_mode(table_format: str, mode: Mode | None) -> Mode:
    if table_format in WHOLE_FORMATS:
        if mode not in {None, "whole"}:
            raise ValueError(f"{table_format} describes the whole stream: mode whole only")
        return "whole"
    if mode == "duplex" and table_format != "bin":
        raise ValueError(f"{table_format} has no tokens to resume after a cut: not duplex")
    return mode or "parts"


def _names(report: str | Several) -> tuple[str, ...]:
    return (report,) if isinstance(report, str) else tuple(report)
