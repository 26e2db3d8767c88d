"""Rows of a run as a streamed answer: the supply of chunks, and their form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.errors import Problem
from app.losses.posting import Ending
from app.losses.rows import Chunk
from app.streams.ahead import settle
from app.streams.frames import Buffers
from app.streams.limits import Progress
from app.streams.threads import Threads

from ..watching import Follower, Watch
from .reader import RowReader


class RunRows:
    """Supplies the rows of a run to a streamed answer.

    Args:
        reader: reads and encodes them.
        threads: run it.
        watch: tells of changes of the run.
        run: its id.
    """

    def __init__(self, reader: RowReader, threads: Threads, watch: Watch, run: str) -> None:
        self._reader = reader
        self._threads = threads
        self._watch = watch
        self._run = run
        self._upcoming: asyncio.Task[Sequence[Chunk]] | None = None
        self._call: asyncio.Future[Chunk | None] | None = None
        self._follower: Follower | None = None

    @property
    def idle(self) -> bool:
        """Whether no thread reads or encodes."""
        return self._call is None or self._call.done()

    def upcoming(self) -> asyncio.Task[Sequence[Chunk]]:
        """Return the future of the next rows; it yields none after the last."""
        if self._upcoming is None:
            self._upcoming = asyncio.ensure_future(self._next())
        return self._upcoming

    async def _next(self) -> Sequence[Chunk]:
        while True:
            self._call = self._threads.start(self._reader.step)
            chunk = await asyncio.shield(self._call)
            if chunk is not None:
                return [chunk]
            if self._reader.reason is not None:
                return []
            if self._follower is None:
                # And look again: what changed until now was not announced to us.
                self._follower = self._watch.follow(self._run)
            else:
                await self._follower.changed()

    def take(self) -> Sequence[Chunk]:
        """Return the rows that are ready.

        Raises:
            CoreError, ServiceError: a stream is faulty; all rows before it were taken.
        """
        chunks = self.upcoming().result()
        self._upcoming = None
        return chunks

    async def close(self) -> None:
        """Stop, and wait until no thread reads any more."""
        if self._upcoming is not None:
            self._upcoming.cancel()
            await settle(self._upcoming)
        if self._call is not None:
            await settle(self._call)
        if self._follower is not None:
            self._follower.close()


class RunRowStream:
    """Adapts an encoder of rows to the driver.

    Args:
        reader: reads the rows.
        rows: the supply of what it has encoded.
    """

    heavy = False
    finished = False

    def __init__(self, reader: RowReader, rows: RunRows) -> None:
        self._reader = reader
        self._rows = rows

    def begin(self) -> Buffers:
        """Return the header of the format, if it has one."""
        return self._reader.encoder.begin()

    def item(self, item: Chunk) -> Buffers:
        """Return the chunk, which is already encoded."""
        return item.buffers

    def heartbeat(self) -> Buffers:
        """Encode a sign of life, unless a thread is encoding rows."""
        return self._reader.encoder.heartbeat() if self._rows.idle else []

    def end(self, reason: str, _progress: Progress) -> Buffers | None:
        """Encode the end; None if there may be more rows and the format cannot tell."""
        reader = self._reader
        reason = reader.reason or reason
        whole = reason in {"sealed", "complete"}
        if not whole and not reader.encoder.tells_end:
            return None
        completeness = "declared" if whole else "partial"
        ending = Ending(reason, completeness, reader.mark, reader.events, reader.bytes, "whole")
        return reader.encoder.end(ending)

    def fail(self, problem: Problem) -> Buffers | None:
        """Encode the failure, with the last mark whose rows were all sent."""
        return self._reader.encoder.fail(problem, self._reader.mark)
