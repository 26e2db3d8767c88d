"""Bytes of a loss stream in, rows of every requested report out, in one pass.

The one place that composes the parts of the loss engine. Feed the stream in pieces
of any size to :meth:`Analysis.receive`; rows of complete blocks go to the sink as
they arise. :meth:`Analysis.close` says how the stream ended.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .. import errors
from .._entries import entry_point
from ..arrays import Rows
from ._kernels import layout
from ._kernels.layout import Parameters, Totals, Words
from ._kernels.rows import event_rate, write_event
from ._kernels.scan import close_event, scan
from .aggregators import (
    Aggregator,
    compile_pass,
    encode_aggregators,
    encode_array,
    restore_aggregators,
)
from .events import Position, StreamEnd, StreamHeader
from .finishing import LedgerReports, LedgerResources, Sink
from .header import restoring, whole
from .inputs import EventRates, Occurrence, Periods, ReturnPeriods
from .ledger.ledger import Ledger
from .outputs import Outputs
from .parameters import ReportInputs, make_parameters
from .policy import Policy
from .receiver import NO_LIMIT, StreamReceiver
from .reports import Report, check_inputs, check_kind, choose_reports, digest
from .reports.report import RunOptions
from .seen import SeenEvents

_STATE_VERSION = 1


class Analysis(StreamReceiver):
    """One pass over one loss stream, for any set of reports.

    Args:
        reports: names of the requested reports; may be empty if there are aggregators.
        sink: receives the rows; see :data:`Sink`. An exception it raises passes
            through, and the analysis cannot be used any more.
        policy: what to accept.
        quantiles: for QELT, float32, shape (k,), each 0 to 1.
        event_rates: for MELT's EventRate. Without them it is that of the occurrences, without
            either NaN.
        occurrence: for reports of periods and of whole runs: in which periods and when each
            event happens.
        periods: weights of the periods; equal ones without them.
        return_periods: at which EPT and PSEPT are read; without them they have every point.
        options: how reports of whole runs are computed.
        resources: what the ledger of reports of whole runs may use.
        aggregators: the caller's functions to run in the same pass.
        expect_events: number of events the stream is declared to have.
        expect_bytes: number of bytes the stream is declared to have.
        name: what errors call the stream.
        seen: shared among the partitions of one analysis, so that an event which
            is in two of them is noticed.
        at_event: called with the position of the open event, after the rows of all
            events before it and before any of its own; once a piece, for the last
            event begun in it.

    Raises:
        ReportError: the reports need other inputs than those given.
        InputError: occurrences and period weights are of different numbers of periods.
    """

    noun = "analysis"
    needs_reports: ClassVar[bool] = True
    """Whether one without reports and aggregators is refused."""

    def __init__(  # noqa: PLR0913 - all optional, each documented
        self,
        reports: Sequence[str],
        sink: Sink,
        *,
        policy: Policy | None = None,
        quantiles: npt.NDArray[np.float32] | None = None,
        event_rates: EventRates | None = None,
        occurrence: Occurrence | None = None,
        periods: Periods | None = None,
        return_periods: ReturnPeriods | None = None,
        options: RunOptions | None = None,
        resources: LedgerResources | None = None,
        aggregators: Mapping[str, Aggregator] | None = None,
        expect_events: int | None = None,
        expect_bytes: int | None = None,
        name: str | None = None,
        seen: SeenEvents | None = None,
        at_event: Callable[[Position], None] | None = None,
    ) -> None:
        super().__init__(policy, name, seen, expect_events, expect_bytes)
        self.aggregators = dict(aggregators or {})
        self.reports: tuple[Report, ...] = ()
        if reports or (self.needs_reports and not self.aggregators):
            self.reports = choose_reports(reports)
        self._inputs = ReportInputs(quantiles, event_rates, occurrence, periods, return_periods)
        check_inputs(self.reports, self._inputs.to_dict())
        options = options or RunOptions()
        ledger = LedgerReports(self.reports, options, resources or LedgerResources())
        self._sink = sink
        self._outputs = Outputs(self.reports, sink, ledger, at_event)
        self._options = options
        self._scan_with_aggregators = compile_pass(
            tuple(a.function for a in self.aggregators.values())
        )
        self._entry: Callable[..., int] | None = None
        self._parameters: Parameters
        self._totals: Totals

    # -- what is known -----------------------------------------------------------

    @property
    def unplaced(self) -> int:
        """Events begun so far that never occur."""
        return int(self._scanner.state["unplaced"][0])

    @property
    def unexposed(self) -> int:
        """Blocks so far whose losses MELT or QELT lack, as they have no exposure."""
        return int(self._scanner.state["unexposed"][0])

    @property
    def ledger(self) -> Ledger | None:
        """Sums of the partition, once its header has come, if a report needs them."""
        return self._outputs.ledger.ledger

    @property
    def blocks(self) -> int:
        """Blocks taken so far."""
        return int(self._scanner.state["blocks"][0])

    @property
    def pairs(self) -> int:
        """Pairs taken so far, block ends not counted."""
        return int(self._scanner.state["pairs"][0])

    @property
    def ascending(self) -> bool:
        """Whether every event id so far was above the one before."""
        return bool(self._scanner.state["ascending"][0])

    def _begin(self, header: StreamHeader) -> None:
        check_kind(self.reports, header, self._scanner.name)
        samples = header.len_sample
        self._parameters = make_parameters(samples, header.float_width, self._inputs)
        if ranks := len(self._parameters.ranks):
            self._scanner.make_scratch(ranks)
        self._outputs.begin(header, self._scanner.rules, self._inputs.to_dict())
        pages = -(-samples // layout.LANES)
        self._totals = Totals(np.zeros(pages * layout.LANES), np.zeros(pages, np.uint8))

    # -- rows out ----------------------------------------------------------------

    def _run(self, words: Words, stop: int, max_events: int) -> int:
        while True:
            status = self._scan(words, stop, max_events)
            if status == layout.FULL:
                self._flush()
                self._outputs.make_room(int(self._scanner.state["needed"][0]))
            elif status == layout.ARENA_FULL:
                self._outputs.ledger.make_room(self._scanner.state)
            else:
                return status

    def _scan(self, words: Words, stop: int, max_events: int) -> int:
        s = self._scanner
        arena = self._outputs.ledger.arena
        outputs = (self._totals, self._parameters, self._outputs.tables, arena)
        args = (words, stop, s.rules, s.state, s.scratch, s.seen, *outputs)
        if self._scan_with_aggregators is None:
            if self._entry is None:
                # Arrays may be replaced later, but by others of the same types.
                self._entry = entry_point(scan, *args, NO_LIMIT, max_events)
            return self._entry(*args, NO_LIMIT, max_events)
        states = tuple(aggregator.state for aggregator in self.aggregators.values())
        return self._scan_with_aggregators(*args, 1, max_events, states)

    def _flush(self) -> None:
        if self._scanner.header is not None:
            self._outputs.flush(self._scanner.state, self.position)

    def release(self) -> None:
        """Give back memory that only a call of :meth:`receive` needs: a long wait follows."""
        self._outputs.release()

    def leave_unexpanded(self) -> None:
        """Hand on one row for all occurrences of an event, for :meth:`expand` to repeat later."""
        self._outputs.leave_unexpanded()

    def expand(self, report: str, rows: Rows) -> Iterable[Rows]:
        """Rows of a report from those left unexpanded, in pieces valid until the next."""
        return self._outputs.expand(report, rows)

    # -- end ---------------------------------------------------------------------

    def close(self, *, ends_run: bool = True) -> StreamEnd:
        """The stream has ended; the last rows go to the sink.

        Args:
            ends_run: whether the run ends with the stream, so that the rows of whole-run
                reports are due; else :meth:`finish_run` hands them on.

        Raises:
            TruncatedError: it ended inside its header or a block.
            IncompleteError: it has fewer events or bytes than declared.
            StreamError: its last, unfinished block is wrong in itself.
        """
        with self._failing():
            end = self._finish()
            self.close_event()
            self._outputs.ledger.take(self._scanner.state)
            if self._inputs.occurrence is not None:
                end = replace(end, events_without_occurrence=self.unplaced)
            self._end = self._certified(end)
            if ends_run:
                self._outputs.ledger.finish(self._sink)
        return self._end

    def finish_run(self, sink: Sink, others: Sequence[Analysis]) -> None:
        """Hand on the rows of whole-run reports, of this and other closed partitions."""
        self._outputs.ledger.finish(sink, [other._outputs.ledger for other in others])  # noqa: SLF001

    def close_event(self) -> None:
        """Hand on the row of the open event, as far as its blocks have come."""
        scanner = self._scanner
        if not self.open_event:
            return
        if scanner.rules["events"][0]:
            lanes = scanner.scratch.lanes
            self._flush()
            write_event(
                scanner.rules, scanner.state, self._totals, lanes, self._outputs.tables.events
            )
        close_event(scanner.state)
        self._flush()

    # -- state -------------------------------------------------------------------

    @property
    def _digest(self) -> str:
        """Identity of reports and inputs."""
        options = [self._options.octets()] if self._outputs.ledger.needed else []
        return digest(self.reports, [*self._inputs.octets(), *options])

    def getstate(self) -> dict[str, Any]:
        """Export the state as plain JSON values.

        Everything before ``state["stream"]["offset"]`` is in it or has gone to the
        sink: a new analysis given this state continues from that byte.
        """
        self._check_usable()
        totals = None
        if self.header is not None and self._scanner.rules["events"][0]:
            # Encode the pages of the open event's totals that are in use.
            pages = np.flatnonzero(self._totals.touched).astype("<i4")
            sums = self._totals.sums.reshape(-1, layout.LANES)[pages]
            totals = [encode_array(pages), encode_array(sums.astype("<f8"))]
        state = {
            "version": _STATE_VERSION,
            "wanted": self._digest,
            "stream": self._scanner.getstate(),
            "totals": totals,
            "aggregators": encode_aggregators(self.aggregators),
        }
        if self._inputs.occurrence is not None:
            state["unplaced"] = self.unplaced
        if unexposed := self.unexposed:
            state["unexposed"] = unexposed
        ledger = self._outputs.ledger.getstate(self._scanner.state)
        if ledger is not None:
            state["ledger"] = ledger
        return state

    def setstate(self, state: Mapping[str, Any]) -> None:
        """Continue from an exported state; call it before any byte is received.

        Raises:
            StateError: malformed, of another version, policy, set of reports or inputs.
        """
        self._check_fresh("state")
        # A half-restored analysis must not be used.
        with self._failing(), restoring():
            self._restore(state)

    def resume(self, position: Position) -> None:
        """Continue from a position between two events; call it before any byte is received.

        The next byte received is that at ``position.offset``. Reopened events are
        noticed among the events that follow and the one just before.

        Raises:
            StateError: it does not fit the policy, or bytes were received.
            ReportError: a requested report cannot be made from this kind of stream.
        """
        self._check_fresh("position")
        self._outputs.resume(position)
        self._scanner.resume(position)
        if self.header is not None:
            self._begin(self.header)

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != _STATE_VERSION:
            raise errors.StateError(f"state version {state.get('version')!r} is not known")
        if state.get("wanted") != self._digest:
            raise errors.StateError("the state is of an analysis with other reports or inputs")
        self._scanner.setstate(state["stream"])
        if self.header is not None:
            self._begin(self.header)
            if self._scanner.rules["events"][0]:
                _restore_totals(self._totals, state["totals"])
            self._outputs.ledger.setstate(state.get("ledger"))
            parameters = self._parameters
            rate = event_rate(self.open_event, parameters.rate_ids, parameters.rates)
            self._scanner.state["rate"] = rate
            self._scanner.state["unplaced"] = whole(state.get("unplaced", 0), 0, self.events)
            self._scanner.state["unexposed"] = whole(state.get("unexposed", 0), 0, self.blocks)
        restore_aggregators(self.aggregators, state["aggregators"])


def _restore_totals(totals: Totals, encoded: list[str] | None) -> None:
    """Restore totals.

    Raises:
        ValueError: they are missing or incomplete.
    """
    if encoded is None:
        raise ValueError("it has no totals")
    pages = np.frombuffer(base64.b85decode(encoded[0]), "<i4")
    sums = np.frombuffer(base64.b85decode(encoded[1]), "<f8").reshape(-1, layout.LANES)
    if len(pages) != len(sums) or np.any(pages < 0):
        raise ValueError("its totals are cut")
    totals.sums.reshape(-1, layout.LANES)[pages] = sums
    totals.touched[pages] = 1


def aggregate(data: Any, reports: Sequence[str], **options: Any) -> dict[str, Rows]:  # noqa: ANN401
    """All rows of the wanted reports of a whole stream in memory.

    Args:
        data: the stream, any bytes-like object.
        reports: names of the requested reports.
        **options: as for :class:`Analysis`.

    Returns:
        A structured array for each report, in the dtype of ``Report.dtype``.

    Raises:
        CoreError: as :class:`Analysis`.
    """
    parts: dict[str, list[Rows]] = {name: [] for name in reports}
    analysis = Analysis(reports, lambda name, rows: parts[name].append(rows.copy()), **options)
    analysis.receive(data)
    analysis.close()
    width = analysis._scanner.policy.float_width  # noqa: SLF001 - of the same module
    return {
        report.name: np.concatenate([np.zeros(0, report.dtype(width)), *parts[report.name]])
        for report in analysis.reports
    }


class StreamCheck(Analysis):
    """Takes one stream in pieces of any size, and checks every block of it.

    It is an analysis without a report, and costs what the parsing costs.

    Args:
        policy: what to accept.
        name: what errors call the stream.
        expect_bytes: number of bytes the stream is declared to have.
    """

    noun = "check"
    needs_reports = False

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__((), lambda _report, _rows: None, policy=policy)

    def good_until(self, error: errors.CoreError) -> Position:
        """Where the last event ends that is right, after a call raised an error.

        The open event is right where the fault is in a block of another: it has ended then.
        """
        position = self.position
        s = self._scanner.state[0]
        event = getattr(error, "event", None)
        if not s["event"] or event in {None, 0, int(s["event"])}:
            return position
        return Position(
            position.header,
            int(s["base"] + 4 * s["at"]),
            int(s["event"]),
            position.ascending,
            int(s["events"]),
        )
