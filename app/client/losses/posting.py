"""Posting a stream in parts, whole or in duplex, until its last row was delivered.

A part is the bytes from the first byte of the unfinished event up to some later byte; the
service answers with the rows of every event that is now complete and with a token at the
first byte of the next unfinished one::

    stream   |--event 1--|--event 2--|------event 3------|--event 4--| ...
    part 1   ├───────────────────────────────┤
    rows      events 1, 2            ▲ token, offset
    part 2                           ├──────────────────────────────────┤
    rows                               event 3                       ▲

So the bytes of event 3 travel twice. That is the price for a service that keeps nothing: any
server with the key can answer the next part, and a broken connection costs one part. Parts
grow with long events (see PartPlan), so that the price stays below half of what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..errors import ConnectionFailed, ProblemError, ProducerFailed, ProtocolError
from ..transport.answers import STATUS_OK, checked, exchange, refuse
from ..transport.effects import BLOCK, Ask, Deliver, Drop, Finish, Receive, Steps, Work
from ..transport.frames import FrameReader, Rows
from ..transport.requests import Head, Request
from ..transport.resumable import Cure, ResumableStream
from ..transport.retry import Backoff
from .ndjson import RowLines
from .requests import LossRequests, Mode, PartPlan, end_of_table, position_of_table
from .rows import End, Position, RowReader
from .sources import Filled, Source, SourceBody


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one report; delivered once."""

    report: str
    rows: Rows
    set_id: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a table that are not settled yet; valid until the next effect."""

    data: memoryview | bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """What came since the last Settled is complete.

    Attributes:
        position: where the stream resumes after it; None at its end.
    """

    position: Position | None


@dataclass(frozen=True, slots=True)
class Undone:
    """What came since the last Settled comes again: forget it."""


Item: TypeAlias = Table | Piece | Settled | Undone


class Posting(ResumableStream):
    """Posts one stream until its last row was delivered, as Items.

    Args:
        requests: builds the requests.
        source: the stream.
        mode: ``parts``: one request per part; ``whole``: one request; ``duplex``: one,
            whose answer is read while it is sent.
        part_size: bytes of a part.
        backoff: decides on further attempts.

        start: where to begin.
        passed: digest of the source's bytes before the start, if known.

    Attributes:
        token: where the stream resumes; every row before it was delivered. While the
            tables of one group are delivered, it is the position before them.
        offset: stream offset in bytes that belongs to the token.
        end: how the stream ended, once it has.
        events: complete events, as far as answers have said.
        dtypes: of the rows of each report, once the stream has ended.
        set_ids: summary sets of a stream of items, once it has ended.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a post consists of
        self,
        requests: LossRequests,
        source: Source,
        mode: Mode,
        part_size: int,
        backoff: Backoff,
        start: Position,
        passed: str | None = None,
    ) -> None:
        if mode not in {"parts", "whole", "duplex"}:
            raise ValueError(f"there is no mode {mode!r}: choose parts, whole or duplex")
        super().__init__(backoff, start.token)
        self.offset = start.offset
        self.end: End | None = None
        self.events = 0
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.set_ids: tuple[int, ...] = ()
        self._requests = requests
        self._source = source
        # Reports of the whole stream have no parts.
        self._mode: Mode = "whole" if mode == "parts" and requests.need_whole_stream else mode
        self._plan = PartPlan(part_size, start.offset)
        self._passed = passed
        self._inputs_stored = False
        self._answered = -1
        self._stop: int | None = None

    @property
    def done(self) -> bool:
        """Whether the last row was delivered."""
        return self.end is not None

    @property
    def position(self) -> tuple[str | None, int, int]:
        """Token, offset, and how far the next part reaches: a longer part is progress too."""
        return self.token, self.offset, self._plan.stop

    def run(self) -> Steps[None]:
        """Deliver Items until the end of the stream.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            ProducerFailed: the source did not end well; the rows of its complete events
                were delivered before.
            SourceError: the source cannot be read, or is not what it was.
        """
        skip = partial(self._source.skip, self.offset, self._passed)
        yield Work(skip, self._source.interrupt)
        yield from super().run()

    def _attempt(self) -> Steps[None]:
        if self._mode == "duplex" and self._backoff.failures > 1:
            # A proxy may hold the answer back until the body has ended.
            yield from self._leave_duplex()
        if not self._inputs_stored:
            yield from self._store_inputs()
        if self._mode == "parts":
            yield from self._post_part()
        else:
            yield from self._post_rest()

    def _forget(self) -> Steps[None]:
        yield Deliver(Undone())

    def _cure(self, problem: ProblemError) -> Cure | None:
        if problem.code == "input-gone" and self._requests.inputs():
            return self._store_inputs
        return super()._cure(problem)

    def _store_inputs(self) -> Steps[None]:
        for name, request in self._requests.inputs():
            reply = yield from exchange(request)
            self._requests.input_stored(name, checked(reply).text("digest"))
        self._inputs_stored = True

    # -- one request -------------------------------------------------------------------

    def _post_part(self) -> Steps[None]:
        start = self.offset
        filled = yield from self._fill(self._plan.stop)
        if filled.failure and filled.stop in {self._answered, start}:
            raise filled.failure
        # A source may have read beyond the part: that is for the next one.
        stop = max(min(filled.stop, self._plan.stop), start)
        last = filled.ended and stop == filled.stop and filled.failure is None
        request = self._requests.part(Position(self.token, start), last=last)
        end = yield from self._post(request, stop)
        if end.reason == "complete":
            self._complete(end, expected=last)
        elif end.reason == "partial" and not last:
            self._plan.answered(self.offset, stop)
            self._answered = stop
        else:
            self._check_drained(end)

    def _post_rest(self) -> Steps[None]:
        duplex = self._mode == "duplex"
        request = self._requests.rest(Position(self.token, self.offset), duplex=duplex)
        try:
            end = yield from self._post(request, None, duplex=duplex)
        except ProducerFailed:
            if self._requests.need_whole_stream:
                raise
            # The service must not take what it got for the whole stream: post it again,
            # as a part that more follows.
            yield Drop()
            yield from self._forget()
            yield from self._change_to_parts()
            return
        if end.reason == "complete":
            self._complete(end, expected=True)
        else:
            self._check_drained(end)

    def _leave_duplex(self) -> Steps[None]:
        if self._requests.need_whole_stream:
            self._mode = "whole"
        else:
            yield from self._change_to_parts()

    def _change_to_parts(self) -> Steps[None]:
        filled = yield from self._fill(self.offset)
        self._mode = "parts"
        self._plan.stop = max(filled.stop, self._plan.stop)

    def _fill(self, stop: int) -> Steps[Filled]:
        filled: Filled = yield Work(partial(self._source.fill, stop), self._source.interrupt)
        return filled

    def _complete(self, end: End, *, expected: bool) -> None:
        if not expected:
            raise ProtocolError("the answer ends a stream of which more follows")
        self.token, self.offset, self.end = None, end.bytes, end

    @staticmethod
    def _check_drained(end: End) -> None:
        if end.reason != "drain":
            raise ProtocolError(f"the answer ended with {end.reason}")
        raise ConnectionFailed("the server is stopping")

    # -- its answer --------------------------------------------------------------------

    def _post(self, request: Request, stop: int | None, *, duplex: bool = False) -> Steps[End]:
        self._stop = stop
        body = SourceBody(self._source, self.offset, stop)
        head: Head = yield Ask(request, body, duplex)
        if head.status != STATUS_OK:
            yield from refuse(head)
        if self._requests.format == "frames":
            end = yield from self._take_frames()
        else:
            end = yield from self._take_table(head)
        self.events = end.events
        return end

    def _take_frames(self) -> Steps[End]:
        rows = RowReader()
        frames = FrameReader(rows.allocate)
        while rows.end is None:
            group = yield from rows.receive(frames)
            if group is None:
                continue
            tables = zip(group.tables, group.set_ids, strict=True)
            for i, ((report, table), set_id) in enumerate(tables, 1):
                if i == len(group.tables):
                    self._move(group.position)
                yield Deliver(Table(report, table, set_id))
            yield from self._settle(group.position)
        yield Finish()
        self.dtypes, self.set_ids = rows.dtypes, rows.set_ids
        return rows.end

    def _take_table(self, head: Head) -> Steps[End]:
        buffer = memoryview(bytearray(BLOCK))
        lines = RowLines() if self._requests.format == "ndjson" else None
        while True:
            count: int = yield Receive(buffer)
            if not count:
                break
            yield Deliver(Piece(lines.feed(buffer[:count]) if lines else buffer[:count]))
        if lines:
            lines.close()
        yield Finish()
        end = end_of_table(head)
        yield from self._settle(position_of_table(head) if end.reason == "partial" else None)
        return end

    def _settle(self, position: Position | None) -> Steps[None]:
        self._move(position)
        yield Work(partial(self._source.release, self.offset))
        yield Deliver(Settled(position))

    def _move(self, position: Position | None) -> None:
        if position is not None:
            if self._stop is not None and position.offset > self._stop:
                raise ProtocolError(f"the answer resumes at {position.offset}, beyond {self._stop}")
            self.token, self.offset = position.token, position.offset
