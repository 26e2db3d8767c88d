"""Writing the tables of a post to files, so that another process can go on with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..files.outputs import Mark, Output, open_output
from ..transport.effects import Item, Piece, Settled, Table, Undone
from .rows import Position
from .sources import Source
from .state import State, StateFile

FORMATS = ("csv", "ndjson", "bin", "arrow", "parquet")
"""Formats of saved tables; they are the file name endings too."""

WHOLE_FORMATS = ("arrow", "parquet")
"""Formats whose parts cannot be joined."""

_STATE_INTERVAL = 0.1
"""Seconds between writes of the state file; what is done in them is done again after
a kill, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a post is.

    Attributes:
        bytes: of the stream whose rows have been answered.
        total: bytes of the stream, None if not known.
        events: that are complete, as far as answers have said.
    """

    bytes: int
    total: int | None
    events: int


def wire_format(table_format: str) -> str:
    """What to ask the service for: packed records are the very rows of frames.

    Raises:
        ValueError: there is no such format.
    """
    if table_format not in FORMATS:
        raise ValueError(f"there is no format {table_format!r}: choose {', '.join(FORMATS)}")
    return "frames" if table_format == "bin" else table_format


class Saving:
    """The tables of one post on their way into files.

    Args:
        reports: that are made.
        table_format: one of FORMATS.
        path: of the table; of a directory if there are several reports; or a file
            descriptor.
        state: file to go on from, and to write; None for none.
        source: what is posted.

    Attributes:
        start: where to begin.
        passed: digest of the source's bytes before it, if known.

    Raises:
        StateError: the state file does not fit.
        OSError: a table cannot be written.
    """

    def __init__(
        self,
        reports: Sequence[str],
        table_format: str,
        path: Path | int,
        state: StateFile | None,
        source: Source,
    ) -> None:
        self._reports = tuple(reports)
        self._format = table_format
        self._file = state
        self._source = source
        self._identity = source.identity()
        loaded = state.load() if state else None
        if loaded is not None:
            loaded.check(self._reports, table_format, self._identity)
        self.start = loaded.position if loaded else Position()
        self.passed = loaded.passed if loaded else None
        self._passed: str | None = None
        self._position: Position | None = None
        self._written = float("-inf")
        marks = loaded.outputs if loaded else {}
        self._outputs: dict[str, Output] = {}
        with ExitStack() as on_error:
            on_error.callback(self._close, keep=loaded is not None)
            for report in self._reports:
                self._outputs[report] = open_output(self._place(path, report), marks.get(report))
            on_error.pop_all()

    def _place(self, path: Path | int, report: str) -> Path | int:
        if isinstance(path, int) or len(self._reports) == 1:
            return path
        path.mkdir(parents=True, exist_ok=True)
        return path / f"{report}.{self._format}"

    def take(self, item: Item) -> None:
        """Take what the post has brought."""
        if isinstance(item, Table):
            rows = np.ascontiguousarray(item.rows).view(np.uint8)
            self._outputs[item.report].write(rows.data)
        elif isinstance(item, Piece):
            self._outputs[self._reports[0]].write(item.data)
        elif isinstance(item, Settled):
            self._settle(item.position)
        elif isinstance(item, Undone):
            self._each(lambda output: output.undo())

    def _settle(self, position: Position | None) -> None:
        if position is None:
            # The end: from the state before it, it would be reached again.
            return
        self._each(lambda output: output.settle())
        self._position = position
        self._passed = self._source.passed()
        if time.monotonic() - self._written > _STATE_INTERVAL:
            self._write_state()

    def _write_state(self) -> None:
        marks = {report: output.mark() for report, output in self._outputs.items()}
        known: dict[str, Mark] = {k: m for k, m in marks.items() if m is not None}
        if self._file is None or self._position is None or len(known) < len(marks):
            return
        state = State(
            self._reports,
            self._format,
            self._position,
            self._identity,
            self._passed,
            known,
        )
        self._file.save(state)
        self._written = time.monotonic()

    def finish(self) -> None:
        """Every row was written: put the tables into their places."""
        self._each(lambda output: output.settle())
        self._each(lambda output: output.finish())
        self._outputs.clear()
        if self._file is not None:
            self._file.remove()

    def stop(self) -> None:
        """Keep what another process can go on with, if it was not finished and any can."""
        if not self._outputs:
            return
        self._each(lambda output: output.undo())
        self._write_state()
        self._close(keep=self._file is not None and self._file.path.exists())

    def _each(self, act: Callable[[Output], None]) -> None:
        for output in self._outputs.values():
            act(output)

    def _close(self, *, keep: bool) -> None:
        self._each(lambda output: output.close(keep=keep))
        self._outputs.clear()
