"""Bodies that threads pass on from files to the socket.

The event loop sends what is in memory. For the bytes of a file that means two copies and two
cores: a thread reads them into a buffer, and the loop, when it gets round to it, copies the
buffer to the socket, from the memory of the other core's cache. A thread that sends what it has
just got at needs neither the trip to the loop nor, where the file is mapped, the buffer:

    event loop | head, empty buffer |                 | full: wait |                | rest
    thread                          | send, send, ... |            | send, send ... |

So once the transport has nothing left to send, the answer is a thread's, in turns of
``TURN_SECONDS``. A turn ends early when the socket is full and stays so: a fast client empties
it within ``PATIENCE_SECONDS``, and for others the loop waits, which costs no thread. The thread
has a handle of the socket of its own, because the transport may close its own meanwhile.

Why not sendfile(2)? It copies nothing: the socket refers to the pages of the file, and whoever
changes the file *afterwards* changes what a client on this machine is about to read, which no
look at the file can tell in time. A send copies, and what it copied was looked at.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .body import ClientDisconnected
from .flow import Flag, Flow, WriteWatch

MESSAGE_BYTES = 32 << 20
"""Bytes of one message, so that whoever counts bytes sent is not far ahead."""
TURN_SECONDS = 0.02
"""Time after which a thread is given back: others may wait for one."""
PATIENCE_SECONDS = 0.002

Start = Callable[..., asyncio.Future[Any]]
"""``start(function, *args)`` calls a function in a thread."""
Write = Callable[[memoryview], int]
"""Sends bytes; returns how many were taken. They may change once it has returned."""


class Source(Protocol):
    """Bytes of a known number, used by one thread at a time."""

    @property
    def left(self) -> int:
        """Number of bytes that are still to be passed on."""

    def pass_on(self, write: Write) -> None:
        """Call ``write`` once, with bytes from the first one that is left.

        Raises:
            Exception: they cannot be had; the answer is to be aborted.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """The body of an ASGI message: bytes of a source, passed on in threads.

    Further messages follow: it is not the last body of an answer.

    Attributes:
        source: where the bytes are.
        size: how many of them.
        start: calls functions in threads.
    """

    source: Source
    size: int
    start: Start

    def __len__(self) -> int:
        return self.size


@dataclass(slots=True, eq=False)
class SocketPasser:
    """Passes bytes on to the socket of a transport.

    Args:
        transport: the transport.
        flow: paused by the transport.
        watch: notices clients that take nothing.
        sock: a handle of its socket, closed by ``close``.
    """

    _transport: asyncio.Transport
    _flow: Flow
    _watch: WriteWatch | None
    _socket: socket.socket
    _writable: select.poll = field(default_factory=select.poll, init=False)
    _left: int = field(default=0, init=False)
    _is_full: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._socket.setblocking(False)
        self._writable.register(self._socket, select.POLLOUT)

    async def pass_on(self, body: Passing, gone: Flag) -> None:
        """Send a body after everything that was written before it.

        Args:
            body: the body.
            gone: set when the client left.

        Raises:
            ClientDisconnected: the client left.
            Exception: raised by the source; some of the bytes may have been sent.
        """
        self._left = body.size
        await self._flush()
        while self._left and not (gone.is_set() or self._transport.is_closing()):
            before = self._left
            is_full = False
            future = body.start(self._turn, body.source)
            try:
                # Cancelled, it would look as if the thread no longer used the socket.
                is_full = await asyncio.shield(future)
            finally:
                await asyncio.wait({future})
                future.cancelled() or future.exception()
                if self._watch is not None:
                    self._watch.written += before - self._left
            # The client may have left, though perhaps nobody was told yet.
            if is_full and self._left and not (gone.is_set() or self._transport.is_closing()):
                await self._wait()
        if self._left:
            raise ClientDisconnected("the client left")

    def close(self) -> None:
        """Close the handle; no thread may be sending."""
        self._socket.close()

    async def _flush(self) -> None:
        """Wait until the transport has sent what it was given."""
        self._transport.set_write_buffer_limits(high=0)
        try:
            await self._flow.drain()
        finally:
            if not self._transport.is_closing():
                self._transport.set_write_buffer_limits()

    async def _wait(self) -> None:
        """Wait until the socket takes bytes, or the client leaves."""
        loop = asyncio.get_running_loop()
        # Whoever tells the flow of a disconnect thus ends the wait, too.
        self._flow.pause_writing()
        loop.add_writer(self._socket, self._flow.resume_writing)
        if self._watch is not None:
            self._watch.passing = self._left
            self._watch.start()
        try:
            await self._flow.drain()
        finally:
            loop.remove_writer(self._socket)
            self._flow.resume_writing()
            if self._watch is not None:
                self._watch.passing = 0

    # In a thread.

    def _turn(self, source: Source) -> bool:
        """Pass bytes on until all are, or the time is up; return whether the socket is full."""
        end = time.monotonic() + TURN_SECONDS
        while self._left and time.monotonic() < end:
            source.pass_on(self._write)
            if self._is_full and not self._writable.poll(1000 * PATIENCE_SECONDS):
                return True
        return False

    def _write(self, octets: memoryview) -> int:
        size = min(len(octets), self._left)
        try:
            sent = self._socket.send(octets[:size])
        except BlockingIOError:
            sent = 0
        except ConnectionError as error:
            raise ClientDisconnected("the client left") from error
        self._is_full = sent < size
        self._left -= sent
        return sent
