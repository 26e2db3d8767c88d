"""The way of rows out of a pass: tables that kernels fill, expanders, and the sink.

Kernels write rows into tables of a fixed size, one for each table that a requested report is
computed from. When one is full, when a piece of the stream has been read, and before a fault
is raised, the tables are emptied: their rows go to the sink of the reports that are such a
table, and to the expanders of the others.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Rows
from ..errors import StateError
from ..untouched import zeros
from ._kernels.layout import Record, Tables
from .events import Position, StreamHeader
from .finishing import LedgerReports, Sink
from .reports import REPORTS
from .reports.report import Expander, Report, Setting, check_width

__all__ = ["Outputs", "Sink"]


class Outputs:
    """Tables of one pass, and the rows of the reports computed from them.

    Args:
        reports: those requested.
        sink: receives the rows.
        ledger: of the pass.
        at_event: called with the place where the open event begins, after the rows of all
            events before it and before any of its own; not for every event, but for the
            last one of a piece.
    """

    def __init__(
        self,
        reports: Sequence[Report],
        sink: Sink,
        ledger: LedgerReports,
        at_event: Callable[[Position], None] | None = None,
    ) -> None:
        self._reports = tuple(reports)
        self.ledger = ledger
        self._sources = {name for report in reports for name in report.sources}
        self._sink = sink
        self._at_event = at_event
        self._offset = 0
        self._float_width = 0
        self._may_be_wide = False
        self._expanders: dict[str, Expander] = {}
        self._expands = True
        self._least = 0
        self._tables: Tables | None = None

    def begin(self, header: StreamHeader, rules: Record, inputs: Mapping[str, Any]) -> None:
        """Make the tables of a stream with this header, and ask the kernels for them."""
        for name in self._sources:
            rules[name] = 1
        self._float_width = header.float_width
        # Deviations and quantiles of float32 from 0 on are no larger than these are.
        self._may_be_wide = header.float_width > 4 or bool(rules["keep_negative"][0])  # noqa: PLR2004
        self.ledger.begin(header, rules, inputs)
        self._tables = None
        for report in self._reports:
            if report.expand is not None:
                setting = Setting(header, report.dtype(header.float_width), inputs)
                self._expanders[report.name] = report.expand(setting)

    def make_room(self, needed: int) -> None:
        """Make tables, emptied before, that hold as many rows as one block needs."""
        if any(0 < len(table) < needed for table in self.tables):
            self._least = 2 * needed
            self.release()

    def release(self) -> None:
        """Give back the memory of tables, which are empty; they are made again once needed."""
        self._tables = None

    @property
    def tables(self) -> Tables:
        """The tables that kernels fill."""
        if self._tables is None:
            self._tables = self._make_tables()
        return self._tables

    def _make_tables(self) -> Tables:
        def table(name: str) -> Rows:
            report = REPORTS[name]
            rows = max(report.buffer_rows, self._least) if name in self._sources else 0
            return zeros(rows, report.table_dtype(self._float_width))

        tables = {name: table(name) for name in Tables._fields if name in REPORTS}
        return Tables(**tables, selt_words=tables["selt"].view(np.int32))

    def resume(self, position: Position) -> None:
        """Continue from a place between two events.

        Raises:
            StateError: a report needs the stream from its beginning.
        """
        for report in self._reports:
            if report.scope == "run":
                raise StateError(
                    f"{report.name.upper()} is of a whole run, and cannot begin within a stream",
                    hint="Continue from the state of the analysis",
                )
        self._offset = position.offset

    def flush(self, state: Record, position: Position) -> None:
        """Empty the tables.

        Args:
            state: of the pass, which counts their rows.
            position: where the open event begins.

        Raises:
            LimitError: a number is beyond its float width.
        """
        tables = {name: self._take(name, state) for name in self._sources}
        if self._at_event is not None and position.offset != self._offset:
            self._offset = position.offset
            event = int(state["event"][0])
            cuts = {name: _rows_before(rows, event) for name, rows in tables.items()}
            self._hand_on({name: rows[: cuts[name]] for name, rows in tables.items()})
            self._at_event(position)
            tables = {name: rows[cuts[name] :] for name, rows in tables.items()}
        self._hand_on(tables)

    def _take(self, name: str, state: Record) -> Rows:
        counter = f"{name}_rows"
        count = int(state[counter][0])
        state[counter] = 0
        table: Rows = getattr(self.tables, name)
        if self._may_be_wide and name != "selt":
            check_width(table[:count])
        return table[:count]

    def _hand_on(self, tables: Mapping[str, Rows]) -> None:
        for report in self._reports:
            for rows in (tables[name] for name in report.sources if len(tables[name])):
                for piece in self.expand(report.name, rows) if self._expands else (rows,):
                    self._sink(report.name, piece)

    def leave_unexpanded(self) -> None:
        """Hand on rows of tables instead of the reports that have many rows for each."""
        self._expands = False

    def expand(self, report: str, rows: Rows) -> Iterable[Rows]:
        """The rows of a report that follow from rows of its table, in pieces.

        Args:
            report: name of a requested report; of most, rows are those of the table.
            rows: of the table, shape (n,).

        Returns:
            Pieces, each valid until the next.
        """
        expander = self._expanders.get(report)
        return (rows,) if expander is None else expander.take(rows)


def _rows_before(rows: Rows, event: int) -> int:
    """Number of rows before those of this event, which come last."""
    ids = rows["EventId"]
    return bisect.bisect_left(range(len(rows)), 1, key=lambda i: ids[i] == event)
