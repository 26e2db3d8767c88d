"""The resumable stream of batches, and batches that are asked for one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from ..transport.async_channel import AsyncChannel
from ..transport.async_streams import AsyncRepeated, AsyncResumable, Cure
from ..transport.frames import FrameReader
from ..transport.requests import Job
from .batch import Batch, EpochEnd
from .layout import BatchesEnd, BatchReader
from .requests import BatchRequests, PipelineInfo
from .selection import BatchSelection, Position

T = TypeVar("T")

_STATUS_NOT_FOUND = 404
_STATUS_PAST_THE_END = 416

_LIMITS = frozenset({"count", "bytes", "time", "epoch"})
"""Reasons why an answer ends before the pipeline does."""


@dataclass(frozen=True, slots=True)
class Question:
    """One batch to ask for.

    Attributes:
        index: rank among the questions, from 0.
        token: after which it is.
        offset: batches to pass over from there.
        number: its number among all batches, if known.
    """

    index: int
    token: str | None
    offset: int
    number: int | None


class _PipelineStream(AsyncResumable[T]):
    """A stream whose pipeline the service may have forgotten.

    A service that lost its store answers 404 until the pipeline is created again; tokens
    remain valid.
    """

    def __init__(self, channel: AsyncChannel, requests: BatchRequests, token: str | None) -> None:
        super().__init__(channel, requests.info.token if token is None else token)
        self._requests = requests

    def _cure(self, problem: ProblemError) -> Cure | None:
        if problem.status == _STATUS_NOT_FOUND:
            return self._create_again
        return super()._cure(problem)

    async def _create_again(self) -> None:
        reply = await self._channel.ask(self._requests.create)
        self._requests.info.check_same(PipelineInfo.parse(reply))


class AsyncBatchStream(_PipelineStream[Batch | EpochEnd]):
    """Yields batches and the ends of epochs, up to the limit.

    Args:
        channel: of the operation.
        requests: builds the requests.
        token: to resume after; None for the beginning.
        limit: number of batches; None for all.

    Attributes:
        data_finished: no batch follows, as far as is known.
        profile: seconds per stage, as the last answer had them.
        notes: what people should know, as the last answer had it.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        requests: BatchRequests,
        token: str | None,
        limit: int | None,
    ) -> None:
        super().__init__(channel, requests, token)
        self.data_finished = False
        self.profile: Mapping[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self._next = 0 if token is None else None
        self._batches = requests.batches(token)
        self._left = limit
        self.done = limit == 0

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:  # noqa: ARG002 - whatever it is
        return self.done

    async def _attempt(self) -> AsyncGenerator[Batch | EpochEnd, None]:
        await self._channel.open(self._requests.stream(self.token, self._left))
        before = self.token
        reader = BatchReader(self._requests.info.layout, self._next)
        frames = FrameReader(reader.allocate)
        while (item := await self._take(reader, frames)) is not None:
            if isinstance(item, Batch):
                self._note(item)
            yield item
        assert reader.end is not None  # noqa: S101 - the items are over
        self._take_end(reader.end, progressed=self.token != before)

    def _take_end(self, end: BatchesEnd, *, progressed: bool) -> None:
        self.profile, self.notes = end.profile, end.notes
        if end.data_finished:
            if self._next is not None:
                _check_last(self._next, self._batches)
            self.data_finished = self.done = True
        elif end.reason == "drain":
            if not self.done:
                raise ConnectionFailed("the server is stopping")
        elif end.reason not in _LIMITS:
            raise ProtocolError(f"the answer ended with {end.reason}")
        elif not progressed and not self.done:
            raise ProtocolError("the answer holds no batch")

    def _note(self, batch: Batch) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more batches came than were asked for")
            self._left -= 1
        self._next = batch.sequence + 1
        self.token = batch.token
        # If the connection breaks now, only the end is missing.
        self.data_finished = self._next == self._batches
        self.done = self.data_finished or self._left == 0


def _check_last(due: int, batches: int | None) -> None:
    """Refuse an end that comes too early, or too late.

    Raises:
        ProtocolError: the number of batches is another one.
    """
    if batches not in {None, due}:
        raise ProtocolError(f"the data claims to be finished before batch {due} of {batches}")


class AsyncOneBatch(_PipelineStream[None], AsyncRepeated):
    """Asks for one batch until it is there.

    Args:
        channel: of the operation.
        requests: builds the requests.
        question: which batch.
        batches: number of all batches, if known.

    Attributes:
        batch: once it is there; None if the pipeline ends before it.
        last: no batch follows, as far as is known.
        notes: why there is none at all.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        requests: BatchRequests,
        question: Question,
        batches: int | None,
    ) -> None:
        super().__init__(channel, requests, question.token)
        self.batch: Batch | None = None
        self.last = False
        self.notes: tuple[str, ...] = ()
        self._offset = question.offset
        self._number = question.number
        self._batches = batches

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        """Whether the pipeline ends before the batch."""
        if not isinstance(failure, ProblemError) or failure.status != _STATUS_PAST_THE_END:
            return False
        if self._number == 0 and failure.hint is not None:
            self.notes = (failure.hint,)
        if self._batches is None or self._number is None:
            return True
        return self._number >= self._batches

    async def _try(self) -> None:
        await self._channel.open(self._requests.one(self.token, self._offset))
        reader = BatchReader(self._requests.info.layout, self._number)
        frames = FrameReader(reader.allocate)
        batch: Batch | None = None
        while count := await self._channel.receive(frames.buffer()):
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
        await self._channel.finish()
        self.batch, self.last, self.done = batch, last, True


class AsyncAsking:
    """Batches asked for one by one, some of them before they are needed.

    Each is asked for by the newest token that is known, so that however far a reader has
    come, a service that cannot jump has few batches to pass over.

    Args:
        channel: of the operation.
        requests: builds the requests.
        position: where to begin.
        selection: which batches.
        limit: number of batches; None for all.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        requests: BatchRequests,
        position: Position,
        selection: BatchSelection,
        limit: int | None,
    ) -> None:
        self._channel = channel
        self._requests = requests
        self._position = position
        self._every = selection.every
        self._ahead = selection.ahead
        self._limit = limit
        self._batches = requests.batches(position.token)
        self.notes: tuple[str, ...] = ()
        self._asked = 0
        self._known: tuple[int, Batch] | None = None
        self._last = False
        self._pending: deque[tuple[Question, Job]] = deque()
        self._answers: dict[Question, AsyncOneBatch] = {}

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows those yielded, as far as is known."""
        return not self._pending and self._is_over()

    async def run(self) -> AsyncGenerator[Batch, None]:
        """Yield batches."""
        while True:
            self._ask_ahead()
            if self._pending:
                question, job = self._pending[0]
                await self._channel.join(job)
                self._pending.popleft()
            elif (found := self._next()) is not None:
                question = found
                await self._ask(question, self._channel)
            else:
                return
            one = self._answers.pop(question)
            if one.batch is None:
                self._pending.clear()
                self._last, self.notes = True, one.notes
                return
            self._note(question, one)
            yield one.batch

    def _ask_ahead(self) -> None:
        for question, _ in self._pending:
            if (one := self._answers.get(question)) is not None:
                self._note(question, one)
        while len(self._pending) < self._ahead and (found := self._next()) is not None:
            job = self._channel.beside(partial(self._ask, found))
            self._pending.append((found, job))

    async def _ask(self, question: Question, channel: AsyncChannel) -> None:
        one = AsyncOneBatch(channel, self._requests, question, self._batches)
        await one.complete()
        self._answers[question] = one

    def _is_over(self) -> bool:
        """Whether it is known that no batch is left to ask for."""
        if self._last:
            return True
        number, batches = self._number(), self._batches
        return number is not None and batches is not None and number >= batches

    def _number(self) -> int | None:
        """Number of the batch to ask for next, if known."""
        if self._known is not None:
            index, batch = self._known
            return batch.sequence + (self._asked - index) * self._every
        if self._position.token is None:
            return self._position.skip + self._asked * self._every
        return None

    def _next(self) -> Question | None:
        """What to ask for next; None at the limit or the end."""
        if self._asked == self._limit or self._is_over():
            return None
        index, number = self._asked, self._number()
        token, offset = self._position.token, self._position.skip + index * self._every
        if self._known is not None:
            known, batch = self._known
            token, offset = batch.token, (index - known) * self._every - 1
        self._asked += 1
        return Question(index, token, offset, number)

    def _note(self, question: Question, one: AsyncOneBatch) -> None:
        """Take note of an answer, in any order; perhaps the last batch there is."""
        self._last = self._last or one.last
        if one.batch is not None and (self._known is None or self._known[0] < question.index):
            # Without its values, which nobody needs here.
            self._known = (question.index, replace(one.batch, columns={}))
