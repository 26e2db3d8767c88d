# Made from async_streams.py by deploy/unasync.py (make fmt): change that one.
"""Resumable streams of batches, side by side and read ahead where that helps."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from ..transport.channel import Channel, Closing, Connector
from ..transport.frames import FrameReader
from ..transport.requests import Job
from ..transport.streams import Items, Recovery, Resumable
from .batch import Batch, EpochEnd
from .layout import BatchesEnd, BatchReader
from .requests import BatchRequests, PipelineInfo
from .selection import Position

_STATUS_NOT_FOUND = 404
_WORTH_A_THREAD = 0.5e-3
"""Seconds: handing a batch from one thread to another takes a fifth of it."""
_LARGE = 4 << 20
"""Bytes. For an open answer the service holds some batches, whether they are being read or not. Of
larger ones, those of many workers would fill its memory: each asks for one at a time."""

_LIMITS = frozenset({"count", "bytes", "time", "epoch"})
"""Reasons why an answer ends before the pipeline does."""


class BatchStream(Resumable[Batch | EpochEnd]):
    """Yields batches and the ends of epochs, up to the limit.

    Args:
        channel: of the operation.
        requests: builds the requests.
        position: where to begin.
        every: distance from one batch to the next.
        limit: number of batches; None for all.

    Attributes:
        data_finished: no batch follows, as far as is known.
        answer: batches of one answer; None for all.
        profile: seconds per stage, as the last answer had them.
        notes: what people should know, as the last answer had it.
    """

    def __init__(
        self,
        channel: Channel,
        requests: BatchRequests,
        position: Position,
        every: int,
        limit: int | None,
    ) -> None:
        token = position.token
        super().__init__(channel, requests.info.token if token is None else token)
        self.data_finished = False
        self.answer: int | None = None
        self.profile: Mapping[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self._requests = requests
        self._offset, self._every = position.skip, every
        self._next = position.skip if token is None else None
        self._batches = requests.batches(token)
        self._left = limit
        self.done = limit == 0

    def _recovery(self, problem: ProblemError) -> Recovery | None:
        # A service that lost its store answers so until the pipeline is created again; tokens
        # remain valid.
        if problem.status == _STATUS_NOT_FOUND:
            return self._create_again
        return super()._recovery(problem)

    def _create_again(self) -> None:
        reply = self._channel.ask(self._requests.create)
        self._requests.info.check_same(PipelineInfo.parse(reply))

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:  # noqa: ARG002 - whatever it is
        return self.done

    def _attempt(self) -> Generator[Batch | EpochEnd, None, None]:
        limit = self.answer or self._left
        request = self._requests.stream(self.token, self._offset, self._every, limit)
        self._channel.open(request)
        before = self.token
        reader = BatchReader(self._requests.info.layout, self._next, self._every)
        frames = FrameReader(reader.allocate)
        while (item := self._take(reader, frames)) is not None:
            if isinstance(item, Batch):
                self._note(item)
            yield item
        assert reader.end is not None  # noqa: S101 - the items are over
        self._take_end(reader.end, progressed=self.token != before)

    def _take_end(self, end: BatchesEnd, *, progressed: bool) -> None:
        self.profile, self.notes = end.profile, end.notes
        if end.data_finished:
            due, known = self._next, self._batches
            if due is not None and known is not None and due < known:
                raise ProtocolError(f"the data claims to be finished before batch {due} of {known}")
            self.data_finished = self.done = True
        elif end.reason == "drain":
            if not self.done:
                raise ConnectionFailed("the server is stopping")
        elif end.reason not in _LIMITS:
            raise ProtocolError(f"the answer ended with {end.reason}")
        elif not progressed and not self.done:
            raise ProtocolError("the answer holds no batch")

    def _note(self, batch: Batch) -> None:
        if self.done:
            raise ProtocolError("more batches came than were asked for")
        if self._left is not None:
            self._left -= 1
        self._next = batch.sequence + self._every
        self.token, self._offset = batch.token, self._every - 1
        # If the connection breaks now, only the end is missing.
        self.data_finished = self._batches is not None and self._next >= self._batches
        self.done = self.data_finished or self._left == 0


class _Lane:
    """One of the streams that are read in turn, with what has been read ahead of it.

    Args:
        channel: of the stream.
        stream: read by one at a time: by whoever takes an item, or ahead.
    """

    def __init__(self, channel: Channel, stream: BatchStream) -> None:
        self.stream = stream
        self.channel = channel
        self._items = stream.run()
        self._ready: deque[Batch | EpochEnd] = deque()
        self._job: Job | None = None
        self._is_awaited = False

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows those taken, as far as is known."""
        reading = self._job is not None and not self._job.done()
        return not (self._ready or reading) and self.stream.data_finished

    def take(self) -> Batch | EpochEnd | None:
        """The next item, None at the end; read here, unless something reads it ahead."""
        if not self._ready and self._job is not None:
            self._is_awaited = True
            job, self._job = self._job, None
            self.channel.join(job)
            self._is_awaited = False
        return self._ready.popleft() if self._ready else next(self._items, None)

    def read_ahead(self, depth: int) -> None:
        """Read beside the caller until so many items are there, or one that is waited for."""
        if self._job is not None and self._job.done() and self._job.exception() is None:
            self._job = None
        if self._job is None and len(self._ready) < depth and not self.stream.done:
            self._job = self.channel.beside(partial(self._fill, depth))

    def _fill(self, depth: int, _: Channel) -> None:
        while len(self._ready) < depth and not (self._is_awaited and self._ready):
            item = next(self._items, None)
            if item is None:
                return
            self._ready.append(item)

    def close(self) -> None:
        """Stop reading, and close the stream."""
        Items(self.channel, self._items).close()


class Lanes(Closing):
    """The batches of one stream, or of several that share them and are read in turn.

    While the caller works, the service fills the buffers of all connections. Only where that
    does not suffice is something read ahead beside the caller: to hand every batch from thread
    to thread makes fast ones slower, so it happens only after the caller was away for long.

    Args:
        connector: opens a channel for each stream.
        requests: builds the requests.
        position: where to begin.
        limit: number of batches; None for all.
    """

    def __init__(
        self,
        connector: Connector,
        requests: BatchRequests,
        position: Position,
        limit: int | None,
    ) -> None:
        selection = requests.selection
        every, self._count = selection.every, selection.parallel or 1
        self._depth = -(-selection.prefetch // self._count)
        self._lanes: list[_Lane] = []
        for k in range(self._count):
            channel = connector.channel()
            start = Position(position.token, position.skip + k * every)
            share = None if limit is None else max(-(-(limit - k) // self._count), 0)
            stream = BatchStream(channel, requests, start, every * self._count, share)
            if every > 1 and requests.batch_bytes > _LARGE:
                stream.answer = 1
            self._lanes.append(_Lane(channel, stream))
        self.first = self._lanes[0].stream
        """Whose profile and notes stand for those of all."""
        self._index = 0
        self._left: float | None = None

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows those taken, as far as is known."""
        return self._lanes[self._index % self._count].data_finished

    def take(self) -> Batch | EpochEnd | None:
        """The next batch, or of a single stream also the end of an epoch; None at the end."""
        now = perf_counter()
        is_busy = self._left is not None and now - self._left > _WORTH_A_THREAD
        if self._left is None and self._count > 1:
            for lane in self._lanes:
                lane.read_ahead(1)  # so that the service begins with all of them
        lane = self._lanes[self._index % self._count]
        item = lane.take()
        while isinstance(item, EpochEnd) and self._count > 1:
            item = lane.take()
        if item is not None:
            self._index += 1
        if is_busy and self._depth:
            for each in self._lanes:
                each.read_ahead(self._depth)
        self._left = perf_counter()
        return item

    def close(self) -> None:
        """Stop reading, and close the streams."""
        for lane in self._lanes:
            lane.close()

    def __del__(self) -> None:
        # What reads ahead would keep its lane until it has read enough, for nobody.
        for lane in self._lanes:
            lane.channel.abandon()
