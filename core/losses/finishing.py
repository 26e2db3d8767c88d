"""Reports of whole runs: the ledger of a pass, and the rows computed from it at the end."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from ..arrays import Indices, Rows
from ..budget import current
from ..errors import StateError
from ._kernels.layout import LEDGER_REFERENCES, LEDGER_STRETCHES, Record
from ._kernels.stretches import Arena
from .events import StreamHeader
from .ledger.batches import LedgerReader, Part
from .ledger.calendar import make_calendar
from .ledger.ledger import MEMORY_BUDGET, Ledger, MoreMemory
from .ledger.memory import SharedArena, make_arena
from .ledger.originals import Originals, Streams
from .ledger.partials import export_ledger, import_ledger
from .ledger.runs import SpillStore
from .parameters import make_scratch
from .reports.report import Calculator, Report, RunOptions, RunSetting

Sink = Callable[[str, Rows], None]
"""Takes (report name, rows of it); the rows are valid only during the call."""
Result = list[tuple[Rows, Rows]]

_ROWS_AT_ONCE = 1 << 16
_SHARE = 8
"""Parts of the budget that are not computed in parallel take more than this share of it."""

_PART_BYTES = 20 << 20
"""Bytes of summaries computed together: small parts stay in the caches, and their memory is
used again instead of being taken from the system anew."""


E = TypeVar("E")
R = TypeVar("R")


class ParallelMap(Protocol[E, R]):
    """Calls a function for each element, in any number of threads; gives results in order."""

    def __call__(self, function: Callable[[E], R], elements: Iterable[E], /) -> Iterator[R]:
        """Call the function; at most a few results may wait to be taken."""


@dataclass(frozen=True, slots=True)
class LedgerResources:
    """What a ledger may use."""

    budget: int = MEMORY_BUDGET
    """Bytes of memory, at first if there is more."""
    more: MoreMemory | None = None
    """Grants the budget itself, and memory beyond it where a ledger can use it."""
    spill: SpillStore | None = None
    """Keeps what is beyond the budget."""
    shared: SharedArena | None = None
    """Holds the stretches of several ledgers that become one."""
    streams: Streams | None = None
    """Reads the streams again, so that their losses are not copied. Such a ledger cannot spill or
    be exported: the pass fails with a :class:`LimitError` then."""
    map: ParallelMap[Part, Result] = map
    """Computes reports of several summaries at once."""
    expect_summaries: int | None = None
    """Number of summaries at most, as somebody declared."""
    at_once: int = 1
    """Summaries that ``map`` computes at once, or parts of them."""
    on_merged: Callable[[Ledger], None] | None = None
    """Called with the ledger of the whole run before its reports are computed: to add partial
    files, and to write one. It makes a ledger necessary where no report does."""


class LedgerReports:
    """The ledger of one pass, and the reports that are computed from it.

    Args:
        reports: all requested reports.
        options: of those of whole runs.
        resources: what the ledger may use.
    """

    def __init__(
        self, reports: Sequence[Report], options: RunOptions, resources: LedgerResources
    ) -> None:
        self._reports = tuple(reports)
        self._options = options
        self._resources = resources
        self._advice = "Raise"
        self._calculators: dict[str, Calculator] = {}
        self.ledger: Ledger | None = None
        self.arena: Arena = make_arena(0)

    @property
    def needed(self) -> bool:
        """Whether there is a ledger: for a report, or to be written."""
        of_reports = any(report.calculate is not None for report in self._reports)
        return of_reports or self._resources.on_merged is not None

    def begin(self, header: StreamHeader, rules: Record, inputs: Mapping[str, Any]) -> None:
        """Make the ledger of a stream with this header, and ask the kernels for it.

        Raises:
            CoreError: its memory is not granted.
        """
        self.arena = make_arena(0)
        if not self.needed:
            return
        names = frozenset(report.name for report in self._reports)
        if curves := " and ".join(sorted(names & {"ept", "psept"})):
            advice = f"Ask for {curves} at return_periods, which take a fraction of it, or raise"
            self._advice = "Raise" if inputs.get("return_periods") else advice
        for report in self._reports:
            if report.calculate is not None:
                dtype = report.dtype(header.float_width)
                setting = RunSetting(header, dtype, inputs, self._options, names)
                self._calculators[report.name] = report.calculate(setting)
        resources = self._resources
        if resources.more is not None:
            resources.more(resources.budget, required=True)
        originals = None
        if resources.streams is not None:
            scratch = partial(make_scratch, header.len_sample, header.float_width)
            originals = Originals(resources.streams, header, rules, scratch)
        rules["ledger"] = LEDGER_STRETCHES if originals is None else LEDGER_REFERENCES
        self.ledger = Ledger(
            header,
            make_calendar(inputs["occurrence"]),
            budget=resources.budget,
            spill=resources.spill,
            more=resources.more,
            shared=resources.shared,
            originals=originals,
        )
        self.arena = self.ledger.arena

    def make_room(self, state: Record) -> None:
        """Make room for a block that the arena has none for.

        Raises:
            LimitError: the budget is used up, and nothing can be spilled.
        """
        assert self.ledger is not None  # noqa: S101 - the kernels ask only for a ledger's room
        self.ledger.make_room(state)
        self.arena = self.ledger.arena

    def take(self, state: Record) -> None:
        """Take note of the blocks appended so far."""
        if self.ledger is not None:
            self.ledger.take(state)

    # -- rows --------------------------------------------------------------------

    def finish(self, sink: Sink, others: Sequence[LedgerReports] = ()) -> None:
        """Hand on the rows of this and other partitions, whose ledgers are used up.

        Raises:
            LimitError: the budget is too small for a summary.
        """
        if self.ledger is None:
            return
        ledger = self.ledger
        try:
            ledger.absorb([other.ledger for other in others if other.ledger is not None])
            if self._resources.on_merged is not None:
                self._resources.on_merged(ledger)
            if self._calculators:
                self._compute(ledger, sink)
        finally:
            ledger.close()

    def _compute(self, ledger: Ledger, sink: Sink) -> None:
        calculators = self._calculators
        most = self._resources.expect_summaries
        reader = LedgerReader(ledger, self._weigh, most, self._advice)

        def compute(part: Part) -> Result:
            budget = current()
            budget.check("ledger")
            batch = reader.read(part)
            results = []
            for name, calculator in calculators.items():
                budget.check(name)
                results.append(calculator.compute(batch))
            reader.release(batch)
            # Rows of some summaries are progress, however many summaries there are.
            budget.renew()
            return results

        later: dict[str, list[Rows]] = {name: [] for name in calculators}
        limit = ledger.budget // _SHARE
        parts = reader.parts(min(limit, _PART_BYTES), self._resources.at_once)
        for result in self._results(compute, parts, limit):
            for name, (rows, last_rows) in zip(calculators, result, strict=True):
                _emit(sink, name, rows)
                if len(last_rows):
                    ledger.keep(last_rows.nbytes, f"the rows of {name}", self._advice)
                    later[name].append(last_rows)
        for name, tables in later.items():
            for rows in tables:
                _emit(sink, name, rows)

    def _results(
        self, compute: Callable[[Part], Result], parts: Iterable[Part], limit: int
    ) -> Iterator[Result]:
        """Results by part: small ones in parallel, large ones alone."""
        for large, group in itertools.groupby(parts, lambda part: part.bytes > limit):
            apply = map if large else self._resources.map
            yield from apply(compute, group)

    def _weigh(self, cells: Indices, references: Indices) -> Indices:
        # Reports are computed one after another, and EPT and PSEPT share their curves.
        calculators = self._calculators.values()
        most: Indices = np.maximum.reduce([c.weigh(cells, references) for c in calculators])
        return most

    # -- state -------------------------------------------------------------------

    def getstate(self, state: Record) -> str | None:
        """The ledger as text; None if there is none."""
        if self.ledger is None:
            return None
        self.take(state)
        parts: list[bytes] = []
        export_ledger(self.ledger, parts.append)
        return base64.b85encode(b"".join(parts)).decode()

    def setstate(self, text: str | None) -> None:
        """Continue from a ledger of :meth:`getstate`.

        Raises:
            StateError: there is none.
            CoreError: it is damaged or does not fit.
        """
        if self.ledger is None:
            return
        if text is None:
            raise StateError("the state has no ledger")
        import_ledger(self.ledger, [base64.b85decode(text)])


def _emit(sink: Sink, name: str, rows: Rows) -> None:
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        sink(name, rows[begin : begin + _ROWS_AT_ONCE])
