"""Posting a stream: what to do next, given what has happened. No input or output.

``Posting.run`` is a generator of effects. Whoever drives it does what an effect says
and sends back what came of it, or throws the ThalwegError that came instead; so the
blocking and the asynchronous client share every decision.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..errors import (
    ConnectionFailed,
    ProblemError,
    ProducerFailed,
    ProtocolError,
    ThalwegError,
)
from ..transport.effects import (
    Call,
    Drop,
    Effect,
    Fill,
    Finish,
    Piece,
    Receive,
    Release,
    Send,
    Settled,
    Skip,
    Sleep,
    Steps,
    Table,
    Undone,
)
from ..transport.frames import FrameReader
from ..transport.refusals import checked, refused
from ..transport.requests import Head, Reply, token_request
from ..transport.retry import Backoff
from .ndjson import RowLines
from .requests import LossRequests, Mode, PartPlan, end_of_table, position_of_table
from .rows import End, Position, RowReader
from .sources import Filled
from .window import BLOCK


class Posting:
    """Posts one stream until its last row was handed out.

    Args:
        requests: builds what to send.
        mode: ``parts``: one request per part; ``whole``: one request; ``duplex``: one,
            whose answer is read meanwhile.
        part_size: bytes of a part.
        start: where to begin.
        backoff: decides on other tries.
        passed: digest of the bytes before the start, if known.

    Attributes:
        position: what to go on with; every row before it was handed out. While the
            tables of one group are handed out it is the position before them.
        end: how it ended, once it has.
        events: events complete so far, as far as answers have said.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        requests: LossRequests,
        mode: Mode,
        part_size: int,
        start: Position,
        backoff: Backoff,
        *,
        passed: str | None = None,
    ) -> None:
        if mode not in {"parts", "whole", "duplex"}:
            raise ValueError(f"there is no mode {mode!r}: choose parts, whole or duplex")
        self.position = start
        self.end: End | None = None
        self.events = 0
        self._requests = requests
        self._mode: Mode = mode
        self._plan = PartPlan(part_size, start.offset)
        self._backoff = backoff
        self._passed = passed
        self._inputs_put = False
        self._failed = False
        self._answered = -1

    def run(self) -> Steps:
        """The effects.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
            ProducerFailed: the source did not end well; the rows of its complete
                events were handed out before.
        """
        yield Skip(self.position.offset, self._passed)
        while self.end is None:
            before = (self.position, self._plan.stop)
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                yield Undone()
                if (self.position, self._plan.stop) != before:
                    self._backoff.progressed()
                yield from self._recover(error)
            else:
                self._backoff.progressed()

    def _attempt(self) -> Steps:
        if not self._inputs_put:
            yield from self._put_inputs()
        if self._mode == "parts":
            yield from self._post_part()
        else:
            yield from self._post_rest()

    def _put_inputs(self) -> Steps:
        for name, request in self._requests.inputs():
            reply: Reply = yield Call(request)
            self._requests.input_put(name, checked(reply).text("digest"))
        self._inputs_put = True

    # -- one request -----------------------------------------------------------------

    def _post_part(self) -> Steps:
        start = self.position.offset
        filled: Filled = yield Fill(self._plan.stop)
        if filled.failure and filled.stop in {self._answered, start}:
            raise filled.failure
        # What a source has read beyond the part is for the next one.
        stop = max(min(filled.stop, self._plan.stop), start)
        last = filled.ended and stop == filled.stop and filled.failure is None
        request = self._requests.part(self.position, last=last)
        head: Head = yield Send(request, start, stop)
        end = yield from self._answer(head)
        if end.reason == "complete":
            self._complete(end, expected=last)
            return
        if end.reason == "partial" and not last:
            self._check_offset(stop)
            self._plan.answered(self.position.offset, stop)
            self._answered = stop
        else:
            self._drained(end)

    def _post_rest(self) -> Steps:
        duplex = self._mode == "duplex"
        request = self._requests.rest(self.position, duplex=duplex)
        try:
            head: Head = yield Send(request, self.position.offset, None, duplex)
            end = yield from self._answer(head)
        except ProducerFailed:
            # The service must not take the stream for whole: what is there is posted
            # again, as a part that more is to follow.
            yield Drop()
            yield Undone()
            yield from self._change_to_parts()
            return
        if end.reason == "complete":
            self._complete(end, expected=True)
        else:
            self._drained(end)

    def _change_to_parts(self) -> Steps:
        filled: Filled = yield Fill(self.position.offset)
        self._mode = "parts"
        self._plan.stop = max(filled.stop, self._plan.stop)

    def _complete(self, end: End, *, expected: bool) -> None:
        if not expected:
            raise ProtocolError("the answer ends a stream of which more follows")
        self.position = Position(None, end.bytes)
        self.end = end

    def _check_offset(self, stop: int) -> None:
        if self.position.offset > stop:
            raise ProtocolError(f"the answer goes on at {self.position.offset}, beyond {stop}")

    @staticmethod
    def _drained(end: End) -> None:
        if end.reason != "drain":
            raise ProtocolError(f"the answer ended with {end.reason}")
        raise ConnectionFailed("the server is stopping")

    # -- its answer ------------------------------------------------------------------

    def _answer(self, head: Head) -> Generator[Effect, Any, End]:
        if head.status != 200:  # noqa: PLR2004 - OK
            yield from refused(head)
        if self._requests.format == "frames":
            end = yield from self._take_frames()
        else:
            end = yield from self._take_table(head)
        self.events = end.events
        return end

    def _take_frames(self) -> Generator[Effect, Any, End]:
        frames, rows = FrameReader(), RowReader()
        while rows.end is None:
            count: int = yield Receive(frames.buffer())
            if not count:
                raise ProtocolError("the answer was cut: it has no end")
            frame = frames.advance(count)
            group = rows.take(frame) if frame else None
            if group is None:
                continue
            for i, (report, table) in enumerate(group.tables, 1):
                if i == len(group.tables):
                    self._move(group.position)
                yield Table(report, table)
            self._move(group.position)
            yield Release(self.position.offset)
            yield Settled(group.position)
        yield Finish()
        return rows.end

    def _take_table(self, head: Head) -> Generator[Effect, Any, End]:
        buffer = memoryview(bytearray(BLOCK))
        lines = RowLines() if self._requests.format == "ndjson" else None
        while True:
            count: int = yield Receive(buffer)
            if not count:
                break
            yield Piece(lines.feed(buffer[:count]) if lines else buffer[:count])
        if lines:
            lines.close()
        yield Finish()
        end = end_of_table(head)
        position = position_of_table(head) if end.reason == "partial" else None
        self._move(position)
        yield Release(self.position.offset)
        yield Settled(position)
        return end

    def _move(self, position: Position | None) -> None:
        if position is not None:
            self.position = position

    # -- faults ----------------------------------------------------------------------

    def _recover(self, error: ThalwegError) -> Steps:
        """Make ready for another try, or raise the fault."""
        code = error.code if isinstance(error, ProblemError) else ""
        if code in {"input-gone", "token-retired"} and not self._failed:
            self._failed = True
            yield from self._renew(code, error)
            return
        self._failed = False
        delay = self._backoff.delay(error)
        if self._mode == "duplex" and self._backoff.faults > 1:
            # Something on the way does not pass answers on before the body has ended.
            yield from self._change_to_parts()
        yield Sleep(delay)

    def _renew(self, code: str, error: ThalwegError) -> Steps:
        if code == "input-gone" and self._requests.inputs():
            self._inputs_put = False
        elif code == "token-retired" and self.position.token is not None:
            reply: Reply = yield Call(token_request("refresh", self.position.token))
            token = checked(reply).text("token")
            self.position = Position(token, self.position.offset)
        else:
            raise error
