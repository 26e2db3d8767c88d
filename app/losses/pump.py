"""The pump: moves a body from its connection into a posting.

The event loop waits for bytes and a thread parses them. To hand a buffer from one to the other
costs as much as parsing a good part of it, so the pump hands over as seldom as it can: the loop
reads what starts a burst, and the thread goes on by itself, reading and parsing in turns, until
nothing is there or its turn is over:

    event loop   | wait, read A |                        | wait, read A |
    thread                      | parse A, read A, parse A ... |        | parse A ...

Reading ahead into a second buffer while the first is parsed looks faster, but costs more than it
saves: another hand-over per buffer, and bytes that have to move between the caches of two cores.
A slow parser leaves bytes in the socket until TCP stops the sender, and a slow sender leaves the
thread free for other requests. A turn ends after some milliseconds, because others wait for
threads too; and where turns find little, the loop waits a moment for more before it reads.

A body may also be slow: it is the output of a model that runs for hours. Buffers of the
pool are few and large, so a body has one only while bytes arrive in numbers:

    slow   a buffer of 16 KiB of its own once bytes are there, which stays while more than a few
     │ ▲   keep coming, read by the event loop alone
     │ │
     │ └── nothing has arrived for a quarter of a second
     ▼
    fast   a buffer of the pool, if there is one left for its owner, and a thread that reads;
           else it stays slow
           (a read filled the small buffer)

A read may wait for minutes, and two things can end the wait early: draining, which ends the
post at its last mark; and the client leaving, which cancels the pump.

The event loop can abandon a read but not a thread, which keeps using its buffer and the
spool. So the pump, whatever ended it, returns only after its thread has finished: the
buffer then goes back to its pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from app.engine.buffers import Buffers
from app.engine.request_budget import current_trace
from app.errors import BusyError, ShareExceededError
from app.http.bodies import Threads, read, wait
from app.server.drain import Drain
from app.server.reader import SocketBody, ThreadReader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_NOTHING = memoryview(b"")
_SMALL_BYTES = 1 << 14
_QUIET_SECONDS = 0.25
"""Time without a byte after which a buffer is given up."""
_QUIET = -1
_JUDGED_SECONDS = 31.0
"""Time after which the rate of a slow body is looked at."""
_FEW_BYTES = 1 << 10
"""Bytes up to which a piece comes from a sender who may not send more for a while, so that it is
not worth a buffer that waits."""
_TURN_SECONDS = 0.005
"""Time for which a thread goes on reading: long against a hand-over, short for those who wait."""
_MUCH_BYTES = 1 << 18
"""Bytes that make a turn worth its hand-over. A thread goes on only after a piece of so many, as
further pieces of a slower sender would be ever smaller; and after two turns in a row with fewer,
the loop waits for ``_GATHER_SECONDS`` while more arrive in the socket."""
_GATHER_SECONDS = 0.002
_START_BYTES = 1 << 16
"""Bytes that the event loop reads where a thread goes on: a read tells that there are some."""
_WORD = 4
"""Bytes of the words of a stream. The parser copies what does not lie in whole words."""


class Destination(Protocol[T_co]):
    """What a body goes into, such as a Posting; called in one thread at a time."""

    def feed(self, data: memoryview) -> None:
        """Take the next bytes.

        Raises:
            CoreError, ServiceError: they are faulty.
        """

    def finish(self) -> T_co:
        """End after the last byte.

        Raises:
            CoreError, ServiceError: what came is not whole.
        """

    def suspend(self) -> T_co:
        """End early, because the server stops.

        Raises:
            ServiceError: that is not possible.
        """


@dataclass(eq=False)
class Pump(Generic[T]):
    """Moves one body into one posting; see the module.

    Args:
        body: the source of bytes.
        posting: their destination.
        buffers: the pool.
        owner: who is charged for them.
        threads: run the parser.
        drain: ends the post at its last mark once draining is hard.
        progress: called after each turn of the parser with the number of bytes.
        lent: called with the number of buffers taken, negative if given back.
        hurry: called now and then with the bytes and seconds since the body became slow, or
            since the last call; raises if it has to end.
    """

    _body: SocketBody
    _posting: Destination[T]
    _buffers: Buffers
    _owner: str
    threads: Threads
    drain: Drain
    progress: Callable[[int], None]
    lent: Callable[[int], None]
    hurry: Callable[[int, float], None]
    _slow_since: float = field(default_factory=time.monotonic, init=False)
    _slow_bytes: int = field(default=0, init=False)
    _maps: list[mmap.mmap] = field(default_factory=list, init=False)
    _reader: ThreadReader | None = field(default=None, init=False)
    _buffer: memoryview = field(default=_NOTHING, init=False)
    _parsed: int = field(default=0, init=False)
    _busy: float = field(default=0.0, init=False)
    """Seconds that threads have read and parsed."""
    _was_small: bool = field(default=False, init=False)
    _parsing: asyncio.Future[Any] | None = field(default=None, init=False)

    async def run(self) -> T:
        """Read the body to its end, or until draining is hard.

        Raises:
            CoreError, ServiceError: the body or the stream in it is faulty.
            ClientDisconnected: the client left.
        """
        stop, begun = self.drain.hard.future(), time.monotonic()
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
            took = time.monotonic() - begun
            current_trace().past("parse", took, bytes=self._parsed, busy_seconds=self._busy)

    async def _run(self, stop: asyncio.Future[Any]) -> T:
        goes_on = False
        while True:
            count = 0
            if not goes_on or stop.done():
                received = await self._read(stop)
                if received == _QUIET:
                    if self._maps:
                        self._give_back()
                    self._buffer = _NOTHING
                    continue
                if not received:
                    end = self._posting.suspend if received is None else self._posting.finish
                    ending: T = await self._call(end)
                    return ending
                count = received
            view, before = self._room(), self._parsed
            goes_on = await self._parse(view, count)
            await self._gather(self._parsed - before)
            is_full, view = count == len(view), _NOTHING
            if not self._maps:
                if count < _FEW_BYTES:
                    self._buffer = _NOTHING
                if is_full:
                    self._take()

    async def _gather(self, count: int) -> None:
        """Wait a moment after a second small turn in a row of a body that has a buffer."""
        if not count:
            # The turn before ended for its time, and nothing more has come.
            return
        was_small, self._was_small = self._was_small, count < _MUCH_BYTES
        if was_small and self._was_small and self._maps and not self._body.complete:
            await asyncio.sleep(_GATHER_SECONDS)

    def _room(self) -> memoryview:
        """Return the part of the buffer to read into next, so that words lie on words."""
        return self._buffer[self._parsed % _WORD :]

    async def _parse(self, view: memoryview, count: int) -> bool:
        before = self._parsed
        try:
            goes_on: bool = await self._call(self._take_turn, view, count)
        finally:
            self.progress(self._parsed - before)
        self._judge(self._parsed - before)
        return goes_on

    def _take_turn(self, view: memoryview, count: int) -> bool:
        """Parse what was read, then read and parse in turns; runs in a thread.

        Returns:
            Whether the turn ended while bytes were still there.
        """
        begun = time.monotonic()
        try:
            return self._go_on(view, count, begun + _TURN_SECONDS)
        finally:
            self._busy += time.monotonic() - begun

    def _go_on(self, view: memoryview, count: int, end: float) -> bool:
        reader = self._reader
        while True:
            if reader is not None:
                while count < len(view) and (more := reader.read(view[count:])):
                    count += more
            if not count:
                return False
            self._parsed += count
            self._posting.feed(view[:count])
            if reader is None or count < _MUCH_BYTES:
                return False
            if time.monotonic() >= end:
                return True
            view, count = self._room(), 0

    def _take(self) -> None:
        """Become fast, if there are buffers left."""
        with contextlib.suppress(BusyError, ShareExceededError):
            self._maps = self._buffers.take(self._owner, 1)
            self.lent(1)
            self._buffer = memoryview(self._maps[0])
            self._reader = self._body.in_thread()

    def _give_back(self) -> None:
        """Become slow; no thread may be using the buffer."""
        self._slow_since, self._slow_bytes = time.monotonic(), 0
        maps, self._maps, self._buffer = self._maps, [], _NOTHING
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if maps:
            self._buffers.give_back(self._owner, maps)
            self.lent(-1)

    def _judge(self, count: int) -> None:
        """Count bytes of a slow body, and have them judged once in a period.

        Raises:
            ServiceError: the body has to end.
        """
        self._slow_bytes += count
        now = time.monotonic()
        if now - self._slow_since >= _JUDGED_SECONDS:
            if not self._maps:
                self.hurry(self._slow_bytes, now - self._slow_since)
            self._slow_since, self._slow_bytes = now, 0

    async def _call(self, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        """Call a function in a thread and return its result."""
        self._parsing = self.threads.start(function, *args)
        # Unlike awaiting the future itself, this leaves it in place when cancelled.
        await asyncio.wait({self._parsing})
        parsing, self._parsing = self._parsing, None
        try:
            return parsing.result()
        finally:
            # The traceback of its error refers to this frame.
            del parsing

    async def _receive(self) -> int:
        """Read what comes next; a slow body gets its buffer once bytes are there."""
        if not self._buffer:
            await wait(self._body)
            self._buffer = memoryview(bytearray(_SMALL_BYTES))
        view = self._room()
        return await read(self._body, view if self._reader is None else view[:_START_BYTES])

    async def _read(self, stop: asyncio.Future[Any]) -> int | None:
        """Read into the buffer.

        Returns:
            The number of bytes, 0 at the end of the body; ``_QUIET`` if the buffer should
            not wait any longer; None once draining is hard.

        Raises:
            CoreError, ServiceError: of the read.
        """
        reading = asyncio.ensure_future(self._receive())
        try:
            while not reading.done():
                seconds = _QUIET_SECONDS if self._buffer else _JUDGED_SECONDS
                await asyncio.wait(
                    {reading, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stop.done():
                    return None
                if not reading.done():
                    self._judge(0)
                    if self._buffer:
                        return _QUIET
            return reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            # If something else ended the wait, the read's own error no longer matters.
            reading.cancelled() or reading.exception()
            # The traceback of its error refers to this frame.
            del reading
