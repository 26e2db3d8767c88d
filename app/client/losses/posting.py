# Made from async_posting.py by deploy/unasync.py (make fmt): change that one.
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

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import ConnectionFailed, ProblemError, ProducerFailed, ProtocolError
from ..transport.channel import Channel
from ..transport.frames import FrameReader
from ..transport.requests import BLOCK, Head, Request
from ..transport.retry import shorter
from ..transport.streams import Recovery, Resumable
from .requests import Choices, LossRequests, PartPlan, end_of_table, position_of_table
from .rows import End, Item, Piece, Position, RowLines, RowReader, Settled, Undone, common_ids
from .saving import Observe, Progress
from .sources import Filled, Source, body_of


@dataclass(frozen=True, slots=True)
class _Sending:
    """A request that posts some of the stream.

    Attributes:
        request: without its body.
        stop: stream offset after its last byte; None for the end of the stream.
        last: whether the stream ends with it.
    """

    request: Request
    stop: int | None
    last: bool


class Posting(Resumable[Item]):
    """Posts one stream until its last row came, and yields Items.

    Args:
        channel: of the operation.
        requests: builds the requests.
        source: the stream.
        choices: how it is posted.
        observe: called whenever rows have been answered.
        start: where to begin.
        passed: digest of the source's bytes before the start, if known.

    Attributes:
        token: where the stream resumes; every row before it came. While the tables of one
            group come, it is the position before them.
        offset: stream offset in bytes that belongs to the token.
        end: how the stream ended, once it has.
        events: complete events, as far as answers have said.
        dtypes: of the rows of each report, once the stream has ended.
        set_ids: summary sets of a stream of items, once it has ended.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a post consists of
        self,
        channel: Channel,
        requests: LossRequests,
        source: Source,
        choices: Choices,
        observe: Observe | None,
        start: Position,
        passed: str | None = None,
    ) -> None:
        super().__init__(channel, start.token)
        self.offset = start.offset
        self.end: End | None = None
        self.events = 0
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.set_ids: tuple[int, ...] = ()
        self._requests = requests
        self._source = source
        # Reports of the whole stream have no parts.
        whole = choices.mode == "parts" and requests.need_whole_stream
        self._mode = "whole" if whole else choices.mode
        self._plan = PartPlan(choices.part_size, start.offset)
        self._observe = observe
        self._passed = passed
        self._inputs_stored = False
        self._sent = -1
        self._answered: End | None = None
        self._knows_rows = start.token is None
        self._rows = 0
        # Ids that no row has had so far; none are known where not all rows came to an end.
        self._missing: Mapping[str, str] | None = None if start.token is None else {}
        self._mark, self._unexposed = start.offset, 0

    @property
    def position(self) -> tuple[str | None, int, int]:
        """Token, offset, and how far the next part reaches: a longer part is progress too."""
        return self.token, self.offset, self._plan.stop

    def run(self) -> Generator[Item, None, None]:
        """Yield Items until the end of the stream.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            ProducerFailed: the source did not end well; the rows of its complete events
                came before.
            SourceError: the source cannot be read, or is not what it was.
        """
        skip = partial(self._source.skip, self.offset, self._passed)
        self._channel.work(skip, self._source.interrupt)
        yield from super().run()

    def _attempt(self) -> Generator[Item, None, None]:
        if self._mode == "duplex" and self._backoff.failures > 1:
            # A proxy may hold the answer back until the body has ended.
            self._leave_duplex()
        if not self._inputs_stored:
            self._store_inputs()
        if self._mark != self.offset:
            self._missing = {}
        sending = self._next_part() if self._mode == "parts" else self._rest()
        try:
            yield from self._post(sending)
        except ProducerFailed:
            if self._mode == "parts" or self._requests.need_whole_stream:
                raise
            # The service must not take what it got for the whole stream: post it again,
            # as a part that more follows.
            self._channel.drop()
            yield Undone()
            self._change_to_parts()
            return
        self._take_end(sending)

    def _forget(self) -> Iterable[Item]:
        return (Undone(),)

    def _recovery(self, problem: ProblemError) -> Recovery | None:
        if problem.code == "input-gone" and self._requests.inputs():
            return self._store_inputs
        most = shorter(problem, self._plan.stop - self.offset)
        # An event that is longer cannot be sent.
        if self._mode == "parts" and most is not None and self.offset + most > self._sent:
            return partial(self._shorten, most)
        return super()._recovery(problem)

    def _shorten(self, most: int) -> None:
        self._plan.shorten(self.offset, most)

    def _store_inputs(self) -> None:
        for name, request in self._requests.inputs():
            self._requests.input_stored(name, (self._channel.ask(request)).text("digest"))
        self._inputs_stored = True

    # -- one request -------------------------------------------------------------------

    def _next_part(self) -> _Sending:
        start = self.offset
        filled = self._fill(self._plan.stop)
        if filled.failure and filled.stop in {self._sent, start}:
            raise filled.failure
        # A source may have read beyond the part: that is for the next one.
        stop = max(min(filled.stop, self._plan.stop), start)
        last = filled.ended and stop == filled.stop and filled.failure is None
        return _Sending(self._requests.part(Position(self.token, start), last=last), stop, last)

    def _rest(self) -> _Sending:
        position = Position(self.token, self.offset)
        request = self._requests.rest(position, duplex=self._mode == "duplex")
        return _Sending(request, None, last=True)

    def _leave_duplex(self) -> None:
        if self._requests.need_whole_stream:
            self._mode = "whole"
        else:
            self._change_to_parts()

    def _change_to_parts(self) -> None:
        filled = self._fill(self.offset)
        self._mode = "parts"
        self._plan.stop = max(filled.stop, self._plan.stop)

    def _fill(self, stop: int) -> Filled:
        fill = partial(self._source.fill, stop)
        return self._channel.work(fill, self._source.interrupt)

    def _take_end(self, sending: _Sending) -> None:
        end = self._answered
        assert end is not None  # noqa: S101 - its answer was read
        self.events, self._mark = end.events, self.offset
        missing, self._unexposed = end.missing_ids, self._unexposed + end.blocks_without_exposure
        self._missing = missing if self._missing is None else common_ids(self._missing, missing)
        if end.reason == "complete":
            if not sending.last:
                raise ProtocolError("the answer ends a stream of which more follows")
            self.token, self.offset, self.done = None, end.bytes, True
            selected = self._rows if self._knows_rows and end.selected_rows is not None else None
            self.end = replace(end, selected_rows=selected, missing_ids=self._missing or {})
            self.end = replace(self.end, blocks_without_exposure=self._unexposed)
            self.end.warn()
        elif end.reason == "partial" and not sending.last:
            assert sending.stop is not None  # noqa: S101 - it is a part
            self._plan.answered(self.offset, sending.stop)
            self._sent = sending.stop
        elif end.reason != "drain":
            raise ProtocolError(f"the answer ended with {end.reason}")
        else:
            raise ConnectionFailed("the server is stopping")

    # -- its answer --------------------------------------------------------------------

    def _post(self, sending: _Sending) -> Generator[Item, None, None]:
        """Open the answer to a request; its items."""
        body = body_of(self._source, self.offset, sending.stop)
        duplex = self._mode == "duplex"
        head = self._channel.open(replace(sending.request, stream=body, duplex=duplex))
        frames = self._requests.format == "frames"
        return self._take_frames(sending) if frames else self._take_table(head, sending)

    def _take_frames(self, sending: _Sending) -> Generator[Item, None, None]:
        rows = RowReader()
        frames = FrameReader(rows.allocate)
        while (group := self._take(rows, frames)) is not None:
            for i, table in enumerate(group.tables, 1):
                if i == len(group.tables):
                    self._move(group.position, sending)
                yield table
            yield self._settle(group.position, sending)
            self._rows += sum(len(table.rows) for table in group.tables)
            self._note()
        self.dtypes, self.set_ids, self._answered = rows.dtypes, rows.set_ids, rows.end

    def _take_table(self, head: Head, sending: _Sending) -> Generator[Item, None, None]:
        buffer = memoryview(bytearray(BLOCK))
        lines = RowLines() if self._requests.format == "ndjson" else None
        while count := self._channel.receive(buffer):
            yield Piece(lines.feed(buffer[:count]) if lines else buffer[:count])
        if lines:
            lines.close()
        self._channel.finish()
        self._answered = end = end_of_table(head)
        self._rows += end.selected_rows or 0
        position = position_of_table(head) if end.reason == "partial" else None
        yield self._settle(position, sending)
        self._note()

    def _settle(self, position: Position | None, sending: _Sending) -> Settled:
        self._move(position, sending)
        self._channel.work(partial(self._source.release, self.offset))
        return Settled(position)

    def _move(self, position: Position | None, sending: _Sending) -> None:
        if position is not None:
            stop = sending.stop
            if stop is not None and position.offset > stop:
                raise ProtocolError(f"the answer resumes at {position.offset}, beyond {stop}")
            self.token, self.offset = position.token, position.offset

    def _note(self) -> None:
        if self._observe is not None:
            self._observe(Progress(self.offset, self._source.size, self.events))
