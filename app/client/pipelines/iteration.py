"""Iterating over batches: streamed or asked for one by one, with limits, epochs and states.

Two ways lead to the next batch. A *stream* is one answer that the service fills ahead of the
reader: best for throughput. *Asking* is a request for each batch, several at once: best where
a reader takes every n-th batch, or where batches take long to make and several servers share
the work. Both deliver batches in order and are resumed by the token of the last one::

    ┌───────────┐ advance ┌────────────┐ next_item ┌──────────────────────────────────┐
    │ Batches / │────────▶│ Batch-     │──────────▶│ BatchStream: one answer          │
    │ Async-    │◀────────│ Iteration: │◀──────────│ _Asking: Lookahead ▶ OneBatch... │
    │ Batches   │  batch  │ position,  │  item     └──────────────────────────────────┘
    └───────────┘         │ epoch,limit│
                          └────────────┘

``BatchIteration.position`` moves only when a batch is handed out. Whatever is on its way at
that moment, in a buffer or in another thread, may therefore be dropped at any time: after an
error, a pause or ``close`` the next call opens anew there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..transport.effects import Deliver, Job, Join, Spawn, Steps, next_item
from ..transport.retry import Backoff
from .batch import Batch, EpochEnd
from .requests import BatchRequests
from .selection import BatchSelection, Position
from .stream import BatchStream, OneBatch


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


class Lookahead:
    """Which batch to ask for next, while others are on their way.

    Each is asked for by the newest token that is known, so that however far a reader has
    come, a service that cannot jump has few batches to pass over.

    Args:
        requests: builds the requests.
        position: where to begin.
        every: only one of so many.
        limit: number of batches; None for all.
        retries: failures in a row to tolerate for each.
    """

    def __init__(
        self,
        requests: BatchRequests,
        position: Position,
        every: int,
        limit: int | None,
        retries: int,
    ) -> None:
        self._requests = requests
        self._position = position
        self._every = every
        self._limit = limit
        self._retries = retries
        self._asked = 0
        self._known: tuple[int, Batch] | None = None
        self._last = False
        self._batches = requests.batches(position.token)

    @property
    def finished(self) -> bool:
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

    def next(self) -> Question | None:
        """What to ask for next; None at the limit or the end."""
        if self._asked == self._limit or self.finished:
            return None
        index, number = self._asked, self._number()
        token, offset = self._position.token, self._position.skip + index * self._every
        if self._known is not None:
            known, batch = self._known
            token, offset = batch.token, (index - known) * self._every - 1
        self._asked += 1
        return Question(index, token, offset, number)

    def answered(self, question: Question, batch: Batch, *, last: bool) -> None:
        """Take note of an answer, in any order; perhaps the last batch there is."""
        self._last = self._last or last
        if self._known is None or self._known[0] < question.index:
            # Without its values, which nobody needs here.
            self._known = (question.index, batch.bare())

    def one(self, question: Question) -> OneBatch:
        """Ask a question."""
        return OneBatch(
            self._requests,
            question.token,
            question.offset,
            question.number,
            self._batches,
            Backoff(self._retries),
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch on its way."""

    question: Question
    one: OneBatch
    job: Job


class _Asking:
    """Batches asked for one by one, some of them before they are needed."""

    def __init__(self, look: Lookahead, ahead: int) -> None:
        self._look = look
        self._ahead = ahead
        self._pending: deque[_Pending] = deque()
        self._ended = False

    @property
    def finished(self) -> bool:
        """Whether no batch follows those delivered, as far as is known."""
        return self._ended or (not self._pending and self._look.finished)

    def run(self) -> Steps[None]:
        """Deliver batches."""
        while True:
            yield from self._ask_ahead()
            if self._pending:
                yield Join(self._pending[0].job)
                answered = self._pending.popleft()
                question, one = answered.question, answered.one
            elif (found := self._look.next()) is not None:
                question, one = found, self._look.one(found)
                yield from one.run()
            else:
                return
            if one.batch is None:
                self._ended = True
                return
            self._look.answered(question, one.batch, last=one.last)
            yield Deliver(one.batch)

    def _ask_ahead(self) -> Steps[None]:
        for pending in self._pending:
            if pending.job.done() and pending.one.batch is not None:
                self._look.answered(pending.question, pending.one.batch, last=pending.one.last)
        while len(self._pending) < self._ahead:
            question = self._look.next()
            if question is None:
                break
            one = self._look.one(question)
            job: Job = yield Spawn(one.run())
            self._pending.append(_Pending(question, one, job))


class BatchIteration:
    """Where a reader of batches is, and how it moves on.

    Args:
        requests: builds the requests.
        position: where to begin.
        selection: which batches, and how to fetch them.
        retries: failures in a row to tolerate.

    Attributes:
        position: after the last batch handed out.
        profile: seconds per stage, as the service's last answer had them.
        paused: whether an epoch has ended.
    """

    def __init__(
        self, requests: BatchRequests, position: Position, selection: BatchSelection, retries: int
    ) -> None:
        self._requests = requests
        self._selection = selection
        self._retries = retries
        self.profile: Mapping[str, Any] = {}
        self.restart(position)

    def restart(self, position: Position) -> None:
        """Begin at a position; limits count anew."""
        self.position = position
        self.paused = False
        self._left = self._selection.limit
        self._epoch: int | None = None
        self._held: Batch | None = None
        self._finished = False
        self._source: BatchStream | _Asking | None = None
        self._items: Steps[None] | None = None

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows the last one handed out, as far as is known."""
        return self._finished and self._held is None

    @property
    def connections(self) -> int:
        """Connections to ask with."""
        return self._selection.connections

    @property
    def over(self) -> bool:
        """Whether it has stopped for another reason than the end of an epoch."""
        return self._left == 0 or not self.paused

    def resume(self) -> None:
        """Continue with the next epoch, if one has ended."""
        if self.paused:
            self.paused, self._epoch = False, None

    def advance(self) -> Steps[Batch | None]:
        """The next batch; None at the end, the limit, or the end of an epoch."""
        while not (self.paused or self._left == 0):
            item = self._held or (yield from self._fetch())
            if item is None:
                break
            batch = self._take(item)
            if batch is not None:
                return batch
        if self._left == 0 and isinstance(self._source, BatchStream):
            # Read how the answer ended: its connection can be used again.
            while (item := (yield from self._fetch())) is not None:
                self._take(item)
        return None

    def _fetch(self) -> Steps[Batch | EpochEnd | None]:
        if self._finished and self._source is None:
            return None
        if self._source is None or self._items is None:
            self._source = self._open()
            self._items = self._source.run()
        item: Batch | EpochEnd | None = yield from next_item(self._items)
        source = self._source
        if isinstance(source, BatchStream):
            self._finished, self.profile = source.data_finished, source.profile
        else:
            self._finished = source.finished
        return item

    def _open(self) -> BatchStream | _Asking:
        selection = self._selection
        if not selection.ahead and selection.every == 1 and not self.position.skip:
            backoff = Backoff(self._retries)
            return BatchStream(self._requests, self.position.token, self._left, backoff)
        look = Lookahead(self._requests, self.position, selection.every, self._left, self._retries)
        return _Asking(look, selection.ahead)

    def _take(self, item: Batch | EpochEnd) -> Batch | None:
        """Move on by what came next; the batch to hand out, if any."""
        if isinstance(item, EpochEnd):
            # After a cut, the end of an epoch that is known already may come again.
            self.paused = self._selection.by_epoch and self._epoch is not None
            return None
        if self._selection.by_epoch and self._epoch not in {None, item.epoch}:
            self._held, self.paused = item, True
            return None
        self._held = None
        self._epoch = item.epoch
        self.position = Position(item.token, self._selection.every - 1)
        if self._left is not None:
            self._left -= 1
        return item

    def stop(self) -> None:
        """Forget what is on its way: it comes again."""
        if self._held is not None:
            self._held, self._finished = None, False
        items, self._items, self._source = self._items, None, None
        if items is not None:
            items.close()
