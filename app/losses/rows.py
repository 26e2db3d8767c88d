"""The rows of a post as a supply of encoded chunks, for an answer to be streamed.

Rows wait in a spool while the body is read. The answer may begin after the body, or while
it arrives; either way the pump that reads the body decides how the answer ends, and the
rows in the spool are sent before that end, or before the failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import Problem
from app.streams.frames import Buffers
from app.streams.limits import Progress
from app.streams.threads import Threads

from .encoding import RowEncoder
from .posting import Ending, Posting
from .spool import Mark, Spool

CHUNK = 1 << 20
"""Bytes of an answer encoded at a time, or a little more."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Encoded rows, and the last mark among them."""

    buffers: Buffers
    nbytes: int
    mark: Mark | None


def next_chunk(encoder: RowEncoder, spool: Spool) -> Chunk:
    """Encode about CHUNK bytes of the rows that wait."""
    buffers: Buffers = []
    size = 0
    mark = None
    while size < CHUNK and (item := spool.take()) is not None:
        if isinstance(item, Mark):
            mark = item
        encoded = encoder.add(item)
        size += sum(map(len, encoded))
        buffers += encoded
    return Chunk(buffers, size, mark)


class PostedRows:
    """Supplies the rows of one post.

    Args:
        spool: where they wait.
        encoder: encodes them.
        posting: where they come from.
        threads: encode them.
        pump: reads the body; its result is the ending.
        started: tells whether anything was sent. A failure before that is answered as a
            problem document, and the rows before it are not sent.
    """

    def __init__(
        self,
        spool: Spool,
        encoder: RowEncoder,
        posting: Posting,
        threads: Threads,
        pump: asyncio.Future[Ending],
        started: Callable[[], bool],
    ) -> None:
        self._spool = spool
        self._encoder = encoder
        self._posting = posting
        self._threads = threads
        self._pump = pump
        self._started = started
        self._news = asyncio.Event()
        self._coming: asyncio.Task[Sequence[Chunk]] | None = None
        pump.add_done_callback(lambda _: self._news.set())

    def notice(self) -> None:
        """Rows may have come: look for them."""
        self._news.set()

    @property
    def ending(self) -> Ending:
        """How the answer ends, once all rows are taken."""
        return self._pump.result()

    def coming(self) -> asyncio.Task[Sequence[Chunk]]:
        """The next rows; nothing once the body ended and all rows are taken."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._next())
        return self._coming

    async def _next(self) -> Sequence[Chunk]:
        while not self._pump.done() and not (self._posting.proven and len(self._spool)):
            await self._news.wait()
            self._news.clear()
        if self._pump.done() and not self._started():
            self._pump.result()
        if len(self._spool) and self._posting.proven:
            return [await self._threads.start(next_chunk, self._encoder, self._spool)]
        self._pump.result()
        return []

    def take(self) -> Sequence[Chunk]:
        """Return the rows that have come.

        Raises:
            CoreError, ServiceError: the body is faulty, and all rows before it were taken.
        """
        chunks = self.coming().result()
        self._coming = None
        return chunks

    async def close(self) -> None:
        """Stop reading the body, and wait until no thread uses the spool."""
        self._pump.cancel()
        waiting: set[asyncio.Future[Any]] = {self._pump}
        if self._coming is not None:
            waiting.add(self._coming)
        self._news.set()
        await asyncio.wait(waiting)
        for future in waiting:
            future.cancelled() or future.exception()


class RowStream:
    """What the rows of a post look like on the wire, in whatever format.

    Args:
        encoder: of the format.
        rows: supplies the chunks it has encoded.
        start: where the post began.
        announced: whether the headers say how the answer ends.
    """

    heavy = False
    finished = False

    def __init__(
        self, encoder: RowEncoder, rows: PostedRows, start: Mark, *, announced: bool
    ) -> None:
        self._encoder = encoder
        self._rows = rows
        self._last = start
        self._announced = announced

    def begin(self) -> Buffers:
        """A header where the format has one."""
        return self._encoder.begin()

    def item(self, item: Chunk) -> Buffers:
        """The chunk, which is encoded already."""
        self._last = item.mark or self._last
        return item.buffers

    def heartbeat(self) -> Buffers:
        """A stream of rows is alive as long as its body arrives."""
        return []

    def end(self, _reason: str, _progress: Progress) -> Buffers | None:
        """The ending of the body; None if rows are missing and nothing tells that."""
        ending = self._rows.ending
        if ending.mark is not None and not self._encoder.tells_end and not self._announced:
            return None
        return self._encoder.end(ending)

    def fail(self, problem: Problem) -> Buffers | None:
        """The failure, with the last mark whose rows were all sent."""
        return self._encoder.fail(problem, self._last)
