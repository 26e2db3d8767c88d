"""The pump: moves a body from its connection into a posting, through two buffers.

The event loop reads and a thread parses. They can work at the same time if each has its
own buffer, so the pump swaps two:

    event loop   | read A | read B         | read A  ...... | read B
    thread                | parse A ....... | parse B | idle | parse A

In each round the loop reads into one buffer while the thread parses the other, then waits
for the thread. Neither gets ahead by more than one buffer: a slow parser leaves bytes in
the socket until TCP stops the sender, and a slow sender leaves the thread free for other
requests. A queue of more buffers would add memory per connection, but no speed.

A body may also be slow: it is the output of a model that runs for hours. Buffers of the
pool are few and large, so a body has them only while bytes arrive in numbers:

    slow   two buffers of 16 KiB of its own
     │ ▲
     │ └── nothing has arrived for a quarter of a second, and nothing is being parsed
     ▼
    fast   two buffers of the pool, if there are some left for its owner; else it stays slow
           (a read filled a small buffer)

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
import time
from collections.abc import Callable
from typing import Any, Protocol

from app.errors import BusyError, ShareExceededError
from app.http.bodies import read
from app.server.body import RequestBody
from app.server.drain import Drain
from app.streams.threads import Threads

from .posting import Ending, Posting

_SMALL_BYTES = 1 << 14
_QUIET_SECONDS = 0.25
"""Time without a byte after which buffers go back to the pool."""
_QUIET = -1
_JUDGED_SECONDS = 31.0
"""Time after which the rate of a slow body is looked at."""


class Buffers(Protocol):
    """A bounded pool of buffers."""

    def take(self, owner: str, count: int) -> list[mmap.mmap]:
        """Take buffers for an owner, all or none.

        Raises:
            BusyError, ShareExceededError: fewer are left.
        """

    def give_back(self, owner: str, buffers: list[mmap.mmap]) -> None:
        """Return an owner's buffers; the caller must not use them any more."""


class Pump:
    """Reads one buffer while the other is being parsed; see the module.

    Args:
        body: the source of bytes.
        posting: their destination.
        buffers: the pool.
        owner: who is charged for them.
        threads: run the parser.
        drain: ends the post at its last mark once draining is hard.
        progress: called after each parsed buffer with its number of bytes.
        lent: called with the number of buffers taken, negative if given back.
        hurry: called now and then with the bytes and seconds since the body became slow, or
            since the last call; raises if it has to end.
    """

    def __init__(
        self,
        body: RequestBody,
        posting: Posting,
        buffers: Buffers,
        owner: str,
        *,
        threads: Threads,
        drain: Drain,
        progress: Callable[[int], None],
        lent: Callable[[int], None],
        hurry: Callable[[int, float], None],
    ) -> None:
        self._body = body
        self._posting = posting
        self._buffers = buffers
        self._owner = owner
        self._lent = lent
        self._hurry = hurry
        self._slow_since = time.monotonic()
        self._slow_bytes = 0
        self._taken: list[mmap.mmap] = []
        self._small = [memoryview(bytearray(_SMALL_BYTES)) for _ in range(2)]
        self._views = self._small
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
            self._give_back()

    async def _run(self, stop: asyncio.Future[Any]) -> Ending:
        while True:
            view = self._views[0]
            count = await self._read(view, stop)
            if count == _QUIET:
                self._give_back()
                continue
            self._judge(count or 0)
            await self._parsed()
            if not count:
                end = self._posting.suspend if count is None else self._posting.finish
                self._parsing = self._threads.start(end)
                ending: Ending = await self._parsed()
                return ending
            self._parsing = self._threads.start(self._posting.feed, view[:count])
            self._parsing.add_done_callback(self._report(count))
            if count == _SMALL_BYTES and not self._taken:
                self._take()
            self._views = self._views[::-1]

    def _take(self) -> None:
        """Become fast, if there are buffers left."""
        with contextlib.suppress(BusyError, ShareExceededError):
            self._taken = self._buffers.take(self._owner, 2)
            self._lent(2)
            self._views = [memoryview(buffer) for buffer in self._taken]

    def _give_back(self) -> None:
        """Become slow; no thread may be using a buffer."""
        self._slow_since, self._slow_bytes = time.monotonic(), 0
        taken, self._taken, self._views = self._taken, [], self._small
        if taken:
            self._buffers.give_back(self._owner, taken)
            self._lent(-2)

    def _judge(self, count: int) -> None:
        """Count bytes of a slow body, and have them judged once in a period.

        Raises:
            ServiceError: the body has to end.
        """
        self._slow_bytes += count
        now = time.monotonic()
        if now - self._slow_since >= _JUDGED_SECONDS:
            if not self._taken:
                self._hurry(self._slow_bytes, now - self._slow_since)
            self._slow_since, self._slow_bytes = now, 0

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
        """Read into a buffer.

        Returns:
            The number of bytes, 0 at the end of the body; ``_QUIET`` if a buffer of the pool
            should not wait any longer; None once draining is hard.

        Raises:
            CoreError, ServiceError: of the read, or of the parser meanwhile.
        """
        reading = asyncio.ensure_future(read(self._body, view))
        others: set[asyncio.Future[Any]] = {stop}
        if self._parsing is not None:
            others.add(self._parsing)
        try:
            while not reading.done():
                seconds = _QUIET_SECONDS if self._taken else _JUDGED_SECONDS
                done, _ = await asyncio.wait(
                    {reading, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stop.done():
                    return None
                if self._parsing in done:
                    others.discard(self._parsing)
                    self._parsing.result()
                if not done:
                    self._judge(0)
                    if self._taken and (self._parsing is None or self._parsing.done()):
                        return _QUIET
            return reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            # If something else ended the wait, the read's own error no longer matters.
            reading.cancelled() or reading.exception()
