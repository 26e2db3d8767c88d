"""What is read of a run as a streamed answer: its supply, and the form of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from app.errors import Problem
from app.losses.posting import Ending
from app.losses.rows import Chunk
from app.streams.ahead import settle
from app.streams.frames import Buffers
from app.streams.limits import Progress
from app.streams.threads import Threads

from ..watching import Follower, Watch
from .reader import RowReader

T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Reads something of a run, in threads, one call at a time."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing more once a call returns None."""

    def step(self) -> T_co | None:
        """Return what is next; None if there is nothing at present, or nothing more."""


class RunSupply(Generic[T_co]):
    """Supplies what a reader finds in a run to a streamed answer.

    Args:
        reader: finds it.
        threads: run it.
        watch: tells of changes of the run.
        run: its id.
        pause: seconds between two findings at least.
    """

    def __init__(
        self, reader: Reader[T_co], threads: Threads, watch: Watch, run: str, pause: float = 0.0
    ) -> None:
        self._reader = reader
        self._threads = threads
        self._watch = watch
        self._run = run
        self._pause = pause
        self._upcoming: asyncio.Task[Sequence[T_co]] | None = None
        self._call: asyncio.Future[T_co | None] | None = None
        self._follower: Follower | None = None

    @property
    def idle(self) -> bool:
        """Whether no thread reads."""
        return self._call is None or self._call.done()

    def upcoming(self) -> asyncio.Task[Sequence[T_co]]:
        """Return the future of what is next; it yields nothing after the last."""
        if self._upcoming is None:
            self._upcoming = asyncio.ensure_future(self._next())
        return self._upcoming

    async def _next(self) -> Sequence[T_co]:
        if self._pause and self._call is not None and not self._reader.ended:
            await asyncio.sleep(self._pause)
        while True:
            self._call = self._threads.start(self._reader.step)
            found = await asyncio.shield(self._call)
            if found is not None:
                return [found]
            if self._reader.ended:
                return []
            if self._follower is None:
                # And look again: what changed until now was not announced to us.
                self._follower = self._watch.follow(self._run)
            else:
                await self._follower.changed()

    def take(self) -> Sequence[T_co]:
        """Return what is ready.

        Raises:
            CoreError, ServiceError: the reader failed; all it found before was taken.
        """
        found = self.upcoming().result()
        self._upcoming = None
        return found

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

    def __init__(self, reader: RowReader, rows: RunSupply[Chunk]) -> None:
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
