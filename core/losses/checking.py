"""Checking a stream without computing anything of it."""

from __future__ import annotations

from .. import errors
from .analysis import Analysis
from .events import Position
from .policy import Policy


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

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        expect_bytes: int | None = None,
    ) -> None:
        super().__init__(
            (), lambda _report, _rows: None, policy=policy, name=name, expect_bytes=expect_bytes
        )

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
