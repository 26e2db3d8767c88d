"""The flow of a connection: what it waits for, whether it reads and writes, and when it starts.

Callers take turns at the event loop, so that a flood of one delays another by a few requests.

One client may send hundreds of requests in one moment, and each costs the event loop half a
millisecond in its next turn. Whoever else asks would wait for all of them, and again at the next
step of each. So a turn of the loop starts a few requests at most, of one caller after another
(without it, ``python -m tests.bench.lanes --only flood`` rises)::

    arrived in one turn     a1 a2 a3 a4 a5 a6    b1
    turn 1                  a1 a2
    turn 2                  a3     b1
    turn 3                  a4 a5
    turn 4                  a6
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

PER_TURN = 2
"""Calls of each kind per turn. The work of a turn is then about twice what the turn itself costs:
with more, turns last longer; with fewer, all would take longer together."""


class Flag:
    """An event of asyncio's kind; that of the library takes 750 bytes for a queue of nobody.

    Thousands of connections wait for their clients, each with several.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: set[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake whoever waits."""
        self._is_set = True
        waiters, self._waiters = self._waiters or (), None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Let whoever comes wait again."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        await self.future()

    def future(self) -> asyncio.Future[None]:
        """Return a future of its own for one who waits for more; cancel it to wait no longer."""
        future = asyncio.get_running_loop().create_future()
        if self._is_set:
            future.set_result(None)
        else:
            self._waiters = self._waiters or set()
            self._waiters.add(future)
            future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[None]) -> None:
        if self._waiters is not None:
            self._waiters.discard(future)


class Flow:
    """Pauses reading from a transport, and those who write to it.

    Args:
        transport: the transport.

    Attributes:
        read_paused: whether the transport reads nothing.
        write_paused: whether its buffer is full.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._writable = Flag()
        self._writable.set()

    async def drain(self) -> None:
        """Wait until there is room in the buffer of the transport."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Read nothing more from the socket."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the buffer of the transport is full."""
        if not self.write_paused:
            self.write_paused = True
            self._writable.clear()

    def resume_writing(self) -> None:
        """Note that there is room again, or that nobody will need it."""
        if self.write_paused:
            self.write_paused = False
            self._writable.set()


@dataclass(slots=True, eq=False)
class WriteWatch:
    """Calls back when a client takes none of the bytes that wait to be sent.

    Args:
        transport: Transport of the connection.
        loop: Its event loop.
        seconds: Time without progress after which ``stalled`` is called.
        stalled: The callback.

    Attributes:
        written: Number of bytes given to the transport or the socket; updated by the owner.
        passing: Number of bytes that wait for the socket itself; updated by who passes them on.
    """

    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop
    _seconds: float
    _stalled: Callable[[], None]
    written: int = field(default=0, init=False)
    passing: int = field(default=0, init=False)
    _mark: tuple[int, float] = field(default=(0, 0.0), init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def start(self) -> None:
        """Check periodically while bytes wait to be sent."""
        if self._timer is None and self._is_waiting():
            self._mark = (self._acknowledged(), self._loop.time())
            self._schedule()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._seconds / 4, self._check)

    def _check(self) -> None:
        self._timer = None
        if not self._is_waiting():
            return
        count, now = self._acknowledged(), self._loop.time()
        if count > self._mark[0]:
            self._mark = (count, now)
        elif now - self._mark[1] >= self._seconds * 0.99:
            self._stalled()
            return
        self._schedule()

    def _is_waiting(self) -> bool:
        return bool(self.passing or self._transport.get_write_buffer_size())

    def _acknowledged(self) -> int:
        """Count the bytes the client's machine has acknowledged; those sent if unknown."""
        waiting = self._transport.get_write_buffer_size()
        sock = self._transport.get_extra_info("socket")
        try:
            answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
            waiting += int.from_bytes(answer, "little", signed=True)
        except (OSError, ValueError, AttributeError):
            pass  # the socket is closed, or none of a kernel
        return self.written - waiting


class Spread:
    """Makes calls of one kind, a few per turn of the event loop; see the module.

    For the thread of the event loop alone. While it has little to do, calls are made at once.
    """

    def __init__(self) -> None:
        self._calls = 0
        """Calls made in this turn."""
        self._waiting: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()
        """By caller; whose turn is next comes first."""

    def call(
        self, loop: asyncio.AbstractEventLoop, caller: Hashable, function: Callable[[], object]
    ) -> None:
        """Call a function, now or in one of the next turns.

        Args:
            loop: the running event loop.
            caller: for whom; calls for one caller are made in order.
            function: must not raise.
        """
        if self._calls < PER_TURN and not self._waiting:
            self._count(loop)
            function()
        else:
            self._waiting.setdefault(caller, deque()).append(function)

    def _count(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._calls:
            loop.call_soon(self._next_turn, loop)
        self._calls += 1

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = 0
        while self._waiting and self._calls < PER_TURN:
            self._count(loop)
            caller, functions = self._waiting.popitem(last=False)
            function = functions.popleft()
            if functions:
                self._waiting[caller] = functions
            function()
