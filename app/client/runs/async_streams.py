"""The rows of a run while its streams arrive, and what happens to it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import TypeVar

from ..errors import ConnectionFailed
from ..transport.async_channel import AsyncChannel
from ..transport.async_streams import AsyncResumable
from ..transport.frames import FrameReader, error_of
from ..transport.requests import Request
from .following import EventLines, RowFrames, RunEvent, RunRows

T = TypeVar("T")


class _RunStream(AsyncResumable[T]):
    """What lasts as long as a run.

    Args:
        channel: of the operation.
        build: the request for what comes after a token.
        after: token to resume with; None to begin.
    """

    def __init__(
        self, channel: AsyncChannel, build: Callable[[str | None], Request], after: str | None
    ) -> None:
        super().__init__(channel, after)
        self._build = build


class AsyncRowStream(_RunStream[RunRows]):
    """Yields the rows of a run.

    Attributes:
        end: why the rows ended, once they have.
    """

    end: str | None = None

    async def _attempt(self) -> AsyncGenerator[RunRows, None]:
        await self._channel.open(self._build(self.token))
        rows = RowFrames()
        frames = FrameReader(rows.allocate)
        while (tables := await self._take(rows, frames)) is not None:
            for table in tables[:-1]:
                yield replace(table, token=self.token)
            for table in tables[-1:]:
                # Before: what was yielded must not come again.
                self.token = table.token
                yield table
        if rows.end == "drain":
            raise ConnectionFailed("the server is stopping")
        self.end, self.done = rows.end, True


class AsyncEventStream(_RunStream[RunEvent]):
    """Yields what happens to a run, until it is done or has failed; tokens are ids of events."""

    async def _attempt(self) -> AsyncGenerator[RunEvent, None]:
        await self._channel.open(self._build(self.token))
        lines = EventLines()
        buffer = memoryview(bytearray(1))
        # A view is filled before it is given back: an event must not wait for another.
        while await self._channel.receive(buffer):
            for event in lines.feed(buffer):
                if event.kind == "problem":
                    raise error_of({"problem": event.data})
                if event.kind == "end":
                    self.done = event.data.get("reason") != "drain"
                    continue
                self.token = event.id or self.token
                yield event
        await self._channel.finish()
        if not self.done:
            raise ConnectionFailed("the events were cut, or the server is stopping")
