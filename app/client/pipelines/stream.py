"""Streams of batches: what to do next, given what has happened. No input or output."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from ..losses.rows import error_of
from ..transport.effects import Ask, Call, Drop, Effect, Finish, Receive, Sleep, Steps
from ..transport.frames import Frame, FrameReader, Kind
from ..transport.refusals import checked, refused
from ..transport.requests import Head, Reply, token_request
from ..transport.retry import Backoff
from .batch import Batch, EpochEnd, Layout, Octets
from .requests import BatchRequests, PipelineInfo, is_token

_STATUS_OK = 200
_STATUS_NOT_FOUND = 404
_STATUS_PAST_THE_END = 416

_GO_ON = frozenset({"count", "bytes", "time", "epoch"})
"""Ends of an answer that are not those of the pipeline."""


@dataclass(frozen=True, slots=True)
class BatchesEnd:
    """How an answer ended.

    Attributes:
        reason: exhausted, count, bytes, time, epoch or drain.
        data_finished: no batch comes behind it.
        profile: seconds of the stages, as the service tells them.
    """

    reason: str
    data_finished: bool
    profile: Mapping[str, Any] = field(default_factory=dict)


class BatchReader:
    """The batches of one answer, each checked before there is memory for it.

    Args:
        layout: what they look like.
        following: number that the first must have; None if only the token knows.

    Attributes:
        end: how the answer ended, once it has.
    """

    def __init__(self, layout: Layout, following: int | None) -> None:
        self._layout = layout
        self._next = following
        self.end: BatchesEnd | None = None

    def place(self, kind: Kind, header: Mapping[str, Any], size: int) -> Octets:
        """Where a payload goes: what FrameReader asks for.

        Raises:
            ProtocolError: this frame may not come here.
        """
        if self.end is not None and kind is not Kind.HEARTBEAT:
            raise ProtocolError("frames came behind the end")
        if kind is Kind.DATA:
            self._layout.check(header, size)
        elif size:
            raise ProtocolError(f"a frame {kind.name} has a payload")
        return np.empty(size, np.uint8)

    def take(self, frame: Frame) -> Batch | EpochEnd | None:
        """What a frame that is whole has.

        Raises:
            ProblemError: it is an ERROR frame.
            ProtocolError: it does not say what it must, or may not come here.
        """
        match frame.kind:
            case Kind.DATA:
                return self._batch(frame)
            case Kind.EPOCH:
                return EpochEnd()
            case Kind.ERROR:
                raise error_of(frame.header)
            case Kind.END:
                self._finish(frame.header)
        return None

    def _batch(self, frame: Frame) -> Batch:
        header = frame.header
        sequence = _number(header, "seq")
        if self._next is not None and sequence != self._next:
            raise ProtocolError(f"batch {sequence} came where {self._next} was due")
        token: Any = header.get("token")
        if not is_token(token):
            raise ProtocolError("a frame does not say where to go on from")
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
        told = profile if isinstance(profile, dict) else {}
        self.end = BatchesEnd(reason, finished, told)


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"a frame does not say its {name}")
    return value


class Recovery:
    """Makes ready for another try after a fault.

    Args:
        requests: builds what to send.
        backoff: decides on other tries.
    """

    def __init__(self, requests: BatchRequests, backoff: Backoff) -> None:
        self._requests = requests
        self._backoff = backoff
        self._tried: set[str] = set()

    def progressed(self) -> None:
        """Something was achieved: faults before it do not count."""
        self._backoff.progressed()
        self._tried.clear()

    def steps(self, error: ThalwegError, token: str | None) -> Generator[Effect, Any, str | None]:
        """Wait, or have the token renewed, or the pipeline made again.

        A service that has lost its store does not know the pipeline before it is told
        it again; its tokens stay good.

        Returns:
            The token to go on with.

        Raises:
            ThalwegError: the fault itself, if there is no point in another try.
        """
        code, status = "", 0
        if isinstance(error, ProblemError):
            code, status = error.code, error.status
        if code == "token-retired" and token is not None and self._first("refresh"):
            reply: Reply = yield Call(token_request("refresh", token))
            return checked(reply).text("token")
        if status == _STATUS_NOT_FOUND and self._first("create"):
            reply = yield Call(self._requests.create)
            self._requests.info.check_same(PipelineInfo.parse(checked(reply)))
            return token
        yield Sleep(self._backoff.delay(error))
        return token

    def _first(self, cure: str) -> bool:
        known = cure in self._tried
        self._tried.add(cure)
        return not known


class BatchStream:
    """Streams batches until the last one wanted was handed out.

    Args:
        requests: builds what to send.
        token: to go on behind; None for the beginning.
        most: batches wanted; None for all.
        backoff: decides on other tries.

    Attributes:
        data_finished: no batch comes behind it, as far as is known.
        profile: seconds of the stages, as the last answer told them.
    """

    def __init__(
        self,
        requests: BatchRequests,
        token: str | None,
        most: int | None,
        backoff: Backoff,
    ) -> None:
        self.data_finished = False
        self.profile: Mapping[str, Any] = {}
        self._wire = requests.info.token if token is None else token
        self._next = 0 if token is None else None
        self._batches = requests.batches(token)
        self._left = most
        self._requests = requests
        self._recovery = Recovery(requests, backoff)

    @property
    def done(self) -> bool:
        """Whether every batch wanted was handed out."""
        return self.data_finished or self._left == 0

    def run(self) -> Steps:
        """The effects; batches and ends of epochs are handed out.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
        """
        while not self.done:
            before = self._wire
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                if self._wire != before:
                    self._recovery.progressed()
                if not self.done:
                    self._wire = yield from self._recovery.steps(error, self._wire)

    def _attempt(self) -> Steps:
        head: Head = yield Ask(self._requests.stream(self._wire, self._left))
        if head.status != _STATUS_OK:
            yield from refused(head)
        before = self._wire
        end = yield from self._take_frames()
        self.profile = end.profile
        self._check_end(end)
        if end.data_finished:
            self.data_finished = True
        elif end.reason == "drain":
            if not self.done:
                raise ConnectionFailed("the server is stopping")
        elif end.reason not in _GO_ON:
            raise ProtocolError(f"the answer ended with {end.reason}")
        elif self._wire == before and not self.done:
            raise ProtocolError("the answer holds no batch")
        else:
            self._recovery.progressed()

    def _check_end(self, end: BatchesEnd) -> None:
        if end.data_finished and self._next is not None:
            _check_last(self._next, self._batches)

    def _take_frames(self) -> Generator[Effect, Any, BatchesEnd]:
        reader = BatchReader(self._requests.info.layout, self._next)
        frames = FrameReader(reader.place)
        while reader.end is None:
            count: int = yield Receive(frames.buffer())
            if not count:
                raise ProtocolError("the answer was cut: it has no end")
            frame = frames.advance(count)
            item = reader.take(frame) if frame else None
            if isinstance(item, Batch):
                self._note(item)
            if item is not None:
                yield item
        yield Finish()
        return reader.end

    def _note(self, batch: Batch) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more batches came than were asked for")
            self._left -= 1
        self._next = batch.sequence + 1
        self._wire = batch.token
        # Should the connection break now, nothing but the end is missing.
        self.data_finished = self._next == self._batches


def _check_last(due: int, batches: int | None) -> None:
    """Refuse an end that comes too early, or too late.

    Raises:
        ProtocolError: there are more batches.
    """
    if batches not in {None, due}:
        raise ProtocolError(f"the data is said to be finished before batch {due} of {batches}")


class OneBatch:
    """Asks for one batch until it is there.

    Args:
        requests: builds what to send.
        token: behind which; None for the beginning.
        offset: batches to pass over from there.
        following: number that it must have, if that is known.
        batches: how many there are in all, if that is known.
        backoff: decides on other tries.

    Attributes:
        batch: it, once it is there; None if the pipeline ends before.
        last: whether no batch comes behind it, as far as is known.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        requests: BatchRequests,
        token: str | None,
        offset: int,
        following: int | None,
        batches: int | None,
        backoff: Backoff,
    ) -> None:
        self.batch: Batch | None = None
        self.last = False
        self._requests = requests
        self._wire = requests.info.token if token is None else token
        self._offset = offset
        self._following = following
        self._batches = batches
        self._recovery = Recovery(requests, backoff)

    def run(self) -> Steps:
        """The effects.

        Raises:
            ProblemError, ConnectionFailed, ProtocolError: as for ``BatchStream.run``.
        """
        while True:
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                if self._is_past_the_end(error):
                    return
                self._wire = yield from self._recovery.steps(error, self._wire)
            else:
                return

    def _is_past_the_end(self, error: ThalwegError) -> bool:
        if not isinstance(error, ProblemError) or error.status != _STATUS_PAST_THE_END:
            return False
        if self._batches is None or self._following is None:
            return True
        return self._following >= self._batches

    def _attempt(self) -> Steps:
        head: Head = yield Ask(self._requests.one(self._wire, self._offset))
        if head.status != _STATUS_OK:
            yield from refused(head)
        reader = BatchReader(self._requests.info.layout, self._following)
        frames = FrameReader(reader.place)
        found: Batch | None = None
        while count := (yield Receive(frames.buffer())):
            frame = frames.advance(count)
            item = reader.take(frame) if frame else None
            if isinstance(item, Batch):
                if found is not None:
                    raise ProtocolError("more batches came than were asked for")
                found = item
        if found is None or not frames.between_frames:
            raise ProtocolError("the answer was cut: it has no batch")
        last = reader.end is not None and reader.end.data_finished
        if last:
            _check_last(found.sequence + 1, self._batches)
        yield Finish()
        self.batch, self.last = found, last
