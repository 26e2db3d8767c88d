"""The resumable stream of batches, and single batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from ..transport.answers import FrameAnswer, checked, exchange
from ..transport.effects import Deliver, Finish, Receive, Steps
from ..transport.frames import Frame, FrameReader, Octets
from ..transport.resumable import Cure, ResumableStream
from ..transport.retry import Backoff
from .batch import Batch, EpochEnd
from .layout import Layout
from .requests import BatchRequests, PipelineInfo
from .selection import is_token

_STATUS_NOT_FOUND = 404
_STATUS_PAST_THE_END = 416

_LIMITS = frozenset({"count", "bytes", "time", "epoch"})
"""Reasons why an answer ends before the pipeline does."""


@dataclass(frozen=True, slots=True)
class BatchesEnd:
    """How an answer ended.

    Attributes:
        reason: exhausted, count, bytes, time, epoch or drain.
        data_finished: no batch follows.
        profile: seconds per stage, as the service measured them.
    """

    reason: str
    data_finished: bool
    profile: Mapping[str, Any] = field(default_factory=dict)


class BatchReader(FrameAnswer[Batch | EpochEnd, BatchesEnd]):
    """The batches of one answer, each checked against the layout before it gets memory.

    Args:
        layout: of the batches.
        first: number of the batch that must come first; None if only the token knows.
    """

    def __init__(self, layout: Layout, first: int | None) -> None:
        self._layout = layout
        self._next = first

    def _memory(self, header: dict[str, Any], size: int) -> Octets:
        self._layout.check(header, size)
        return np.empty(size, np.uint8)

    def _epoch(self) -> EpochEnd:
        return EpochEnd()

    def _data(self, frame: Frame) -> Batch:
        header = frame.header
        sequence = _number(header, "seq")
        if self._next is not None and sequence != self._next:
            raise ProtocolError(f"batch {sequence} came where {self._next} was due")
        token: Any = header.get("token")
        if not is_token(token):
            raise ProtocolError("a frame does not say where to resume")
        self._next = sequence + 1
        return Batch(
            self._layout.columns(header, frame.payload),
            token=token,
            sequence=sequence,
            epoch=_number(header, "epoch"),
            count=_number(header, "count"),
            rows=self._layout.rows(header),
        )

    def _finish(self, header: Mapping[str, Any]) -> None:
        reason, finished = header.get("reason"), header.get("data_finished")
        if not isinstance(reason, str) or not isinstance(finished, bool):
            raise ProtocolError("the END frame does not say how it ended")
        if reason == "exhausted" and not finished:
            raise ProtocolError("the data is exhausted, but not finished")
        profile = header.get("profile")
        self.end = BatchesEnd(reason, finished, profile if isinstance(profile, dict) else {})


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"a frame does not say its {name}")
    return value


class _PipelineStream(ResumableStream):
    """A stream whose pipeline the service may have forgotten.

    A service that lost its store answers 404 until the pipeline is created again; tokens
    remain valid.
    """

    def __init__(self, requests: BatchRequests, token: str | None, backoff: Backoff) -> None:
        super().__init__(backoff, requests.info.token if token is None else token)
        self._requests = requests

    def _cure(self, problem: ProblemError) -> Cure | None:
        if problem.status == _STATUS_NOT_FOUND:
            return self._create_again
        return super()._cure(problem)

    def _create_again(self) -> Steps[None]:
        reply = yield from exchange(self._requests.create)
        self._requests.info.check_same(PipelineInfo.parse(checked(reply)))


class BatchStream(_PipelineStream):
    """Delivers batches and the ends of epochs, up to the limit.

    Args:
        requests: builds the requests.
        token: to resume after; None for the beginning.
        limit: number of batches; None for all.
        backoff: decides on further attempts.

    Attributes:
        data_finished: no batch follows, as far as is known.
        profile: seconds per stage, as the last answer had them.
    """

    def __init__(
        self, requests: BatchRequests, token: str | None, limit: int | None, backoff: Backoff
    ) -> None:
        super().__init__(requests, token, backoff)
        self.data_finished = False
        self.profile: Mapping[str, Any] = {}
        self._next = 0 if token is None else None
        self._batches = requests.batches(token)
        self._left = limit

    @property
    def done(self) -> bool:
        """Whether every batch up to the limit was delivered."""
        return self.data_finished or self._left == 0

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:  # noqa: ARG002 - whatever it is
        return self.done

    def _attempt(self) -> Steps[None]:
        yield from self._open(self._requests.stream(self.token, self._left))
        before = self.token
        end = yield from self._take_frames()
        self.profile = end.profile
        if end.data_finished:
            if self._next is not None:
                _check_last(self._next, self._batches)
            self.data_finished = True
        elif end.reason == "drain":
            if not self.done:
                raise ConnectionFailed("the server is stopping")
        elif end.reason not in _LIMITS:
            raise ProtocolError(f"the answer ended with {end.reason}")
        elif self.token == before and not self.done:
            raise ProtocolError("the answer holds no batch")

    def _take_frames(self) -> Steps[BatchesEnd]:
        reader = BatchReader(self._requests.info.layout, self._next)
        frames = FrameReader(reader.allocate)
        while reader.end is None:
            item = yield from reader.receive(frames)
            if isinstance(item, Batch):
                self._note(item)
            if item is not None:
                yield Deliver(item)
        yield Finish()
        return reader.end

    def _note(self, batch: Batch) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more batches came than were asked for")
            self._left -= 1
        self._next = batch.sequence + 1
        self.token = batch.token
        # If the connection breaks now, only the end is missing.
        self.data_finished = self._next == self._batches


def _check_last(due: int, batches: int | None) -> None:
    """Refuse an end that comes too early, or too late.

    Raises:
        ProtocolError: the number of batches is another one.
    """
    if batches not in {None, due}:
        raise ProtocolError(f"the data claims to be finished before batch {due} of {batches}")


class OneBatch(_PipelineStream):
    """Asks for one batch until it is there.

    Args:
        requests: builds the requests.
        token: after which it is; None for the beginning.
        offset: batches to pass over from there.
        number: of the batch, if known.
        batches: number of all batches, if known.
        backoff: decides on further attempts.

    Attributes:
        batch: once it is there; None if the pipeline ends before it.
        last: no batch follows, as far as is known.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a question consists of
        self,
        requests: BatchRequests,
        token: str | None,
        offset: int,
        number: int | None,
        batches: int | None,
        backoff: Backoff,
    ) -> None:
        super().__init__(requests, token, backoff)
        self.batch: Batch | None = None
        self.last = False
        self._offset = offset
        self._number = number
        self._batches = batches

    @property
    def done(self) -> bool:
        """Whether the batch is there."""
        return self.batch is not None

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        """Whether the pipeline ends before the batch."""
        if not isinstance(failure, ProblemError) or failure.status != _STATUS_PAST_THE_END:
            return False
        if self._batches is None or self._number is None:
            return True
        return self._number >= self._batches

    def _attempt(self) -> Steps[None]:
        yield from self._open(self._requests.one(self.token, self._offset))
        reader = BatchReader(self._requests.info.layout, self._number)
        frames = FrameReader(reader.allocate)
        batch: Batch | None = None
        while count := (yield Receive(frames.buffer())):
            frame = frames.advance(count)
            item = reader.take(frame) if frame else None
            if isinstance(item, Batch):
                if batch is not None:
                    raise ProtocolError("more batches came than were asked for")
                batch = item
        if batch is None or not frames.between_frames:
            raise ProtocolError("the answer was cut: it has no batch")
        last = reader.end is not None and reader.end.data_finished
        if last:
            _check_last(batch.sequence + 1, self._batches)
        yield Finish()
        self.batch, self.last = batch, last
