"""The pump: moves a body from its connection into a posting, through two buffers.

The event loop reads and a thread parses. They can work at the same time if each has its
own buffer, so the pump swaps two:

    event loop   | read A | read B         | read A  ...... | read B
    thread                | parse A ....... | parse B | idle | parse A

In each round the loop reads into one buffer while the thread parses the other, then waits
for the thread. Neither gets ahead by more than one buffer: a slow parser leaves bytes in
the socket until TCP stops the sender, and a slow sender leaves the thread free for other
requests. A queue of more buffers would add memory per connection, but no speed.

A read may wait for minutes, and three things can end the wait early: a fault in the buffer
being parsed, which a client that reads while it sends should hear of at once; draining,
which ends the post at its last mark; and the client leaving, which cancels the pump.

The event loop can abandon a read but not a thread, which keeps using its buffer and the
spool. So the pump, whatever ended it, returns only after its thread has finished: the
buffers then go back to their pool.
"""

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
    """Reads one buffer while the other is being parsed; see the module.

    Args:
        body: the source of bytes.
        posting: their destination.
        buffers: two of the pool's.
        threads: run the parser.
        drain: ends the post at its last mark once draining is hard.
        progress: called after each parsed buffer with its number of bytes.
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
            CoreError, ServiceError: the body or the stream in it is faulty.
            ClientDisconnected: the client left.
        """
        stop = asyncio.ensure_future(self._drain.hard.wait())
        try:
            return await self._run(stop)
        finally:
            stop.cancel()
            if self._parsing is not None:
                while not self._parsing.done():
                    # A second cancellation does not stop the thread either.
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait({self._parsing})
                # Its error, if any, came after the one that ended the pump: drop it.
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
            self._parsing.add_done_callback(self._report(count))
            self._views.reverse()

    def _report(self, count: int) -> Callable[[asyncio.Future[None]], None]:
        return lambda _: self._progress(count)

    async def _parsed(self) -> Any:  # noqa: ANN401 - the result of the call
        """Wait for the thread and return its result; None if none is running."""
        if self._parsing is None:
            return None
        if not self._parsing.done():
            # Unlike awaiting the future itself, this leaves it in place when cancelled.
            await asyncio.wait({self._parsing})
        parsing, self._parsing = self._parsing, None
        return parsing.result()

    async def _read(self, view: memoryview, stop: asyncio.Future[Any]) -> int | None:
        """Read into a buffer; return the number of bytes, None once draining is hard.

        Raises:
            CoreError, ServiceError: of the read, or of the parser meanwhile.
        """
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
            # If something else ended the wait, the read's own error no longer matters.
            reading.cancelled() or reading.exception()
