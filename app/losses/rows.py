"""The rows of a post as the supply of a streamed answer.

Rows wait in the spool while the body is read. Whether the answer begins after the body or
while it arrives, the outcome of the pump decides how the answer ends, and the rows in the
spool are sent before that end or failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.errors import Problem
from app.http.bodies import Threads
from app.streams.driver import Encoder, Progress
from app.streams.frames import Buffers
from core.budget import current

from .encoding import RowEncoder
from .posting import Ending, Posting
from .spool import Item, Mark, Spool, Table

CHUNK = 1 << 20
"""Bytes of an answer to encode per call, at least."""
_TOGETHER = CHUNK // 2
"""Bytes of rows to encode at once where the format allows; as text they are about twice as many."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Encoded rows, and the last mark among them."""

    buffers: Buffers
    nbytes: int
    mark: Mark | None


def next_chunk(encoder: RowEncoder, spool: Spool) -> Chunk:
    """Encode at least CHUNK bytes of the waiting rows, or all of them."""
    buffers: Buffers = []
    size = 0
    mark = None
    while size < CHUNK and len(spool):
        items = _next_items(spool, together=not encoder.shows_marks)
        for item in items:
            if isinstance(item, Mark):
                mark = item
            encoded = encode_item(encoder, item)
            size += sum(map(len, encoded))
            buffers += encoded
    return Chunk(buffers, size, mark)


def encode_item(encoder: RowEncoder, item: Item) -> Buffers:
    """Encode an item; its rows and the result count in the budget of the request.

    Raises:
        BudgetExceededError: they do not fit.
    """
    budget = current()
    if isinstance(item, Table):
        budget.hold("rows", item.rows.nbytes)
    encoded = encoder.add(item)
    budget.hold("rows", sum(map(len, encoded)))
    return encoded


def _next_items(spool: Spool, *, together: bool) -> list[Item]:
    """Take the next item, or with ``together`` the rows of several as one, then the last mark."""
    tables: list[Table] = []
    mark = None
    size = 0
    while size < _TOGETHER and (item := spool.take()) is not None:
        if not together:
            return [item]
        if isinstance(item, Mark):
            mark = item
        else:
            tables.append(item)
            size += item.rows.nbytes
    items: list[Item] = list(tables)
    if len(tables) > 1:
        # A call of an encoder costs as much as a hundred rows, and a piece of a body has fewer.
        joined = b"".join(table.rows.view(np.uint8).data for table in tables)
        first = tables[0]
        items = [Table(first.report, np.frombuffer(joined, first.rows.dtype), first.set_id)]
    return items if mark is None else [*items, mark]


@dataclass(eq=False)
class PostedRows(Encoder[Chunk]):
    """The rows of one post: their supply, and as they are encoded there, their form on the wire.

    They have no signs of life: a body that is being read is one.
    """

    spool: Spool
    """Holds the rows until they are taken."""
    encoder: RowEncoder
    """Encodes them."""
    posting: Posting
    """Their source."""
    threads: Threads
    """Run the encoder."""
    pump: asyncio.Future[Ending]
    """The task that reads the body; its result is the ending."""
    started: Callable[[], bool]
    """Whether anything was sent. A failure before that is answered with a problem document
    instead of the rows before it."""
    last: Mark | None
    """The last mark whose rows were all sent, at first that at which the post began; None if the
    stream has to come whole."""
    news: asyncio.Event | None
    """Set when rows may have arrived; None if the headers state how the answer ends."""

    def __post_init__(self) -> None:
        self._arrived = self.news or asyncio.Event()
        self._upcoming: asyncio.Task[Sequence[Chunk]] | None = None
        self.pump.add_done_callback(lambda _: self._arrived.set())

    def upcoming(self) -> asyncio.Task[Sequence[Chunk]]:
        """Return the future of the next rows; it yields none after the last."""
        if self._upcoming is None:
            self._upcoming = asyncio.ensure_future(self._next())
        return self._upcoming

    async def _next(self) -> Sequence[Chunk]:
        while not self.pump.done() and not (self.posting.proven and len(self.spool)):
            await self._arrived.wait()
            self._arrived.clear()
        if self.pump.done() and not self.started():
            self.pump.result()
        if len(self.spool) and self.posting.proven:
            return [await self.threads.start(next_chunk, self.encoder, self.spool)]
        self.pump.result()
        return []

    def take(self) -> Sequence[Chunk]:
        """Return the rows that have arrived.

        Raises:
            CoreError, ServiceError: the body is faulty; all rows before the fault were taken.
        """
        chunks = self.upcoming().result()
        self._upcoming = None
        return chunks

    async def close(self) -> None:
        """Stop reading the body, and wait until no thread uses the spool."""
        self.pump.cancel()
        waiting: set[asyncio.Future[Any]] = {self.pump}
        if self._upcoming is not None:
            waiting.add(self._upcoming)
        self._arrived.set()
        await asyncio.wait(waiting)
        for future in waiting:
            future.cancelled() or future.exception()

    def begin(self) -> Buffers:
        """Return the header of the format, if it has one."""
        return self.encoder.begin()

    def item(self, item: Chunk) -> Buffers:
        """Return the chunk, which is already encoded."""
        self.last = item.mark or self.last
        return item.buffers

    def end(self, _reason: str, _progress: Progress) -> Buffers | None:
        """Encode the ending; None if it is partial and the format cannot tell."""
        ending = self.pump.result()
        if ending.mark is not None and not self.encoder.tells_end and self.news is not None:
            return None
        return self.encoder.end(ending)

    def fail(self, problem: Problem) -> Buffers | None:
        """Encode the failure, with the last mark whose rows were all sent."""
        return self.encoder.fail(problem, self.last)
