"""A body on its way from the connection through two buffers into a posting."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections.abc import Callable
from typing import Any

from app.http.bodies import read
from app.server.body import RequestBody
from app.server.drain import Drain
from app.streams.threads import Threads

from .posting import Ending, Posting


class Pump:
    """Reads one buffer while the other one is parsed.

    Args:
        body: where bytes come from.
        posting: where they go.
        buffers: two.
        threads: parse there.
        drain: when it is hard, the body is read no further.
        progress: called with the bytes taken when a buffer was parsed.
    """

    def __init__(
        self,
        body: RequestBody,
        posting: Posting,
        buffers: list[mmap.mmap],
        *,
        threads: Threads,
        drain: Drain,
        progress: Callable[[int], None],
    ) -> None:
        self._body = body
        self._posting = posting
        self._views = [memoryview(buffer) for buffer in buffers]
        self._threads = threads
        self._drain = drain
        self._progress = progress
        self._parsing: asyncio.Future[Any] | None = None

    async def run(self) -> Ending:
        """Read the body to its end, or until draining is hard.

        Raises:
            CoreError, ServiceError: what is wrong with it.
            ClientDisconnected: it will not go on.
        """
        stop = asyncio.ensure_future(self._drain.hard.wait())
        try:
            return await self._run(stop)
        finally:
            stop.cancel()
            if self._parsing is not None:
                # Its buffer is given back next; that it failed too is no news.
                while not self._parsing.done():
                    # Nor does another cancellation end the thread.
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait({self._parsing})
                self._parsing.cancelled() or self._parsing.exception()
            self._views.clear()

    async def _run(self, stop: asyncio.Future[Any]) -> Ending:
        while True:
            view = self._views[0]
            count = await self._read(view, stop)
            await self._parsed()
            if not count:
                end = self._posting.suspend if count is None else self._posting.finish
                self._parsing = self._threads.start(end)
                ending: Ending = await self._parsed()
                return ending
            self._parsing = self._threads.start(self._posting.feed, view[:count])
            self._parsing.add_done_callback(self._tell(count))
            self._views.reverse()

    def _tell(self, count: int) -> Callable[[asyncio.Future[None]], None]:
        return lambda _: self._progress(count)

    async def _parsed(self) -> Any:  # noqa: ANN401 - what the call returns
        """Wait for the call in a thread; it is forgotten only when it is over.

        Cancelling this task does not end the thread, which uses the buffers and the spool.
        """
        if self._parsing is None:
            return None
        if not self._parsing.done():
            await asyncio.wait({self._parsing})
        parsing, self._parsing = self._parsing, None
        return parsing.result()

    async def _read(self, view: memoryview, stop: asyncio.Future[Any]) -> int | None:
        """Bytes read; None if draining is hard. A fault in what came before ends the wait."""
        reading = asyncio.ensure_future(read(self._body, view))
        others: set[asyncio.Future[Any]] = {stop}
        if self._parsing is not None:
            others.add(self._parsing)
        try:
            while not reading.done():
                await asyncio.wait({reading, *others}, return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return None
                if self._parsing is not None and self._parsing.done():
                    others.discard(self._parsing)
                    self._parsing.result()
            return reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            # If something else ended the wait, that it failed too is no news.
            reading.cancelled() or reading.exception()
