"""Posts from the arguments of a call, as operations that either client runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..transport.effects import Deliver, Steps, Work, next_item
from ..transport.frames import Rows
from ..transport.retry import Backoff
from .posting import Posting, Settled, Table
from .requests import LossOptions, LossRequests, Mode, SetOptions
from .rows import End, Position
from .saving import WHOLE_FORMATS, Progress, Saving, label, wire_format
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
        live: whether a pipe gets saved rows as they come.
    """

    mode: Mode | None
    part_size: int
    retries: int
    observe: Observe | None
    live: bool = False

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

    With a summary xref, the summary set comes before the rows.

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
        options: SetOptions,
    ) -> None:
        self._alone = isinstance(report, str)
        self._source = source
        self._choices = choices
        with ExitStack() as on_error:
            on_error.callback(source.close)
            requests = LossRequests(_names(report), "frames", options, source.size)
            self._of_items = requests.of_items
            self.posting = choices.posting(requests, source, start)
            on_error.pop_all()

    def run(self) -> Steps[None]:
        """Deliver the rows."""
        items = self.posting.run()
        while (item := (yield from next_item(items))) is not None:
            if isinstance(item, Table):
                yield Deliver(self._shaped(item))
            else:
                self._choices.note(self.posting, self._source, item)

    def _shaped(self, table: Table) -> Any:  # noqa: ANN401 - rows, or a tuple with them
        if self._of_items:
            of_set = (table.set_id, table.rows)
            return of_set if self._alone else (table.report, *of_set)
        return table.rows if self._alone else (table.report, table.rows)


def read(
    report: str | Several, source: Source, choices: Choices, options: SetOptions
) -> Steps[Any]:
    """Post a stream and collect its tables.

    The table of a report, or tables by report; with a summary xref, tables by summary set, or by
    report and set.

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
    parts: dict[tuple[str, int | None], list[Rows]] = {}
    items = posting.run()
    while (item := (yield from next_item(items))) is not None:
        if isinstance(item, Table):
            parts.setdefault((item.report, item.set_id), []).append(item.rows)
        else:
            choices.note(posting, source, item)
    nothing = np.dtype([])

    def table(name: str, set_id: int | None) -> ReportTable:
        rows = _joined(parts.get((name, set_id), []), posting.dtypes.get(name, nothing))
        return ReportTable(name, rows, set_id)

    tables: dict[str, Any] = {
        name: {set_id: table(name, set_id) for set_id in posting.set_ids}
        if requests.of_items
        else table(name, None)
        for name in names
    }
    return tables[report] if isinstance(report, str) else tables


def _joined(rows: list[Rows], dtype: np.dtype[Any]) -> Rows:
    return np.concatenate(rows) if rows else np.zeros(0, dtype)


def save(  # noqa: PLR0913, PLR0917 - what the caller said
    report: str | Several,
    source: Source,
    path: str | Path | int,
    table_format: str,
    state: str | Path | None,
    choices: Choices,
    options: SetOptions,
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
        _labels(requests, table_format),
        table_format,
        path if isinstance(path, int) else Path(path),
        None if state is None else Path(state),
        source,
        live=choices.live,
    )
    try:
        yield Work(saving.open)
        choices = replace(choices, mode=mode)
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


def _labels(requests: LossRequests, table_format: str) -> tuple[str, ...]:
    """Names of the tables: reports, each with its set where a pass has several."""
    if not requests.of_items or table_format != "bin":
        return requests.reports
    if not requests.sets:
        raise ValueError("bin of a summary xref needs the sets to save, such as sets=[1, 2]")
    if len(requests.sets) == 1:
        return requests.reports
    return tuple(label(set_id, name) for set_id in requests.sets for name in requests.reports)


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
