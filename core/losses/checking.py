"""Checking a stream without computing anything of it."""

from __future__ import annotations

import numpy as np

from .. import errors
from ._kernels import layout
from ._kernels.layout import Parameters, Totals, Words
from ._kernels.scan import close_event, scan
from .events import StreamEnd
from .finishing import LedgerReports, LedgerResources
from .outputs import Outputs
from .parameters import ReportInputs, make_parameters
from .policy import Policy
from .position import Position
from .receiver import NO_LIMIT, StreamReceiver
from .reports.running import RunOptions


class StreamCheck(StreamReceiver):
    """Takes one stream in pieces of any size, and checks every block of it.

    It accepts and refuses what an :class:`~core.losses.analysis.Analysis` does with the same
    policy, at the cost of the parsing alone.

    Args:
        policy: what to accept.
        name: what errors call the stream.
        expect_bytes: number of bytes the stream is declared to have.
    """

    noun = "check"

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        expect_bytes: int | None = None,
    ) -> None:
        super().__init__(policy, name, None, None, expect_bytes)
        self._outputs = Outputs(
            (), lambda _report, _rows: None, LedgerReports((), RunOptions(), LedgerResources())
        )
        self._parameters: Parameters
        self._totals: Totals

    def _begin(self) -> None:
        header = self._scanner.header
        assert header is not None  # noqa: S101 - called only after the header
        inputs = ReportInputs()
        samples = header.len_sample
        self._parameters = make_parameters(samples, header.float_width, inputs)
        self._outputs.begin(header, self._scanner.rules, inputs.to_dict())
        pages = -(-samples // layout.LANES)
        self._totals = Totals(np.zeros(pages * layout.LANES), np.zeros(pages, np.uint8))

    def _run(self, words: Words, stop: int, max_events: int) -> int:
        s = self._scanner
        outputs = (self._parameters, self._outputs.tables, self._outputs.ledger.arena)
        stream = (words, stop, s.rules, s.state, s.scratch, s.seen)
        return scan(*stream, self._totals, *outputs, NO_LIMIT, max_events)

    def _flush(self) -> None:
        """Hand on nothing: nothing is computed."""

    def resume(self, position: Position) -> None:
        """Continue from a position between two events; before any byte is received.

        Raises:
            StateError: it does not fit the policy, or bytes were received.
        """
        self._check_fresh("position")
        self._scanner.resume(position)
        if self.header is not None:
            self._begin()

    def close(self) -> StreamEnd:
        """The stream has ended.

        Raises:
            TruncatedError: it ended inside its header or a block.
            IncompleteError: it has fewer bytes than declared.
            StreamError: its last, unfinished block is wrong in itself.
        """
        with self._failing():
            end = self._certified(self._finish())
            if self.open_event:
                close_event(self._scanner.state)
            self._end = end
        return end

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
