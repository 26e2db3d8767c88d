"""How a connection ends: refused, aborted, or closed after a moment of lingering.

*Linger* exists because of TCP: closing a socket that has unread input sends a reset, which
can destroy an answer the client has not read yet. A client in the middle of an upload would
never see why it was refused. So we send FIN after the answer and go on reading, dropping
the input, for a moment.

Clients leave too while nobody reads their socket. A server that does not read a socket is not told
that its client has closed it: what tells is the read that returns nothing. To ask the kernel for
the state of each such socket, several times a second, is a callback of the event loop each time,
and hundreds of clients that wait are thousands of them. So an epoll of our own watches these
sockets for nothing but their end, and the event loop watches the epoll:

    sockets that are not read ──end of input, reset──▶ epoll ──readable──▶ event loop ──▶ callback

The epoll exists while there is something to watch. Most requests are answered within the moment
before their socket is watched at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson
from uvicorn.server import ServerState

from app.errors import Problem, new_request_id

from .cycle import STATUS_LINE, BodyCycle
from .flow import Flow, WriteWatch
from .limits import ServerLimits

_MOMENT = 0.1
"""Seconds after which a request has its socket watched."""
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | select.EPOLLONESHOT


class Disconnects:
    """Tells when the other ends of sockets have finished sending, or are gone.

    For the thread of one event loop. A descriptor must be forgotten before it is closed.
    """

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None

    def watch(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, callback: Callable[[], None]
    ) -> None:
        """Call back once the other end of a socket has finished sending.

        Args:
            loop: The running event loop.
            descriptor: That of the socket.
            callback: Called once, also if this was so before.

        Raises:
            OSError: The process, or the system, has no room for it now.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._report)
        try:
            if descriptor in self._callbacks:
                self._epoll.modify(descriptor, _ENDED)
            else:
                self._epoll.register(descriptor, _ENDED)
            self._callbacks[descriptor] = callback
        finally:
            self._close_if_idle(loop)

    def forget(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        """Watch a socket no longer; does nothing if it is not watched."""
        if self._callbacks.pop(descriptor, None) is None or self._epoll is None:
            return
        with contextlib.suppress(OSError):
            self._epoll.unregister(descriptor)
        self._close_if_idle(loop)

    def _close_if_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._epoll is not None and not self._callbacks:
            with contextlib.suppress(RuntimeError):
                # The event loop may have been closed.
                loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _report(self) -> None:
        ended = [] if self._epoll is None else self._epoll.poll(0)
        for descriptor, _ in ended:
            # One callback may have the next socket forgotten.
            if callback := self._callbacks.get(descriptor):
                callback()


@dataclass(slots=True, eq=False)
class Disconnect:
    """Resets a connection whose client leaves while its socket is not read.

    As for ``eof_received``, a client that has finished sending is gone.

    Args:
        disconnects: Watches its socket.
        transport: Its transport.
        flow: Tells whether the socket is read.
        loop: The running event loop.
    """

    _disconnects: Disconnects
    _transport: asyncio.Transport
    _flow: Flow
    _loop: asyncio.AbstractEventLoop
    _descriptor: int | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._timer = self._loop.call_later(_MOMENT, self._watch)

    def stop(self) -> None:
        """Watch no longer; must be called before the socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._descriptor is not None:
            self._disconnects.forget(self._loop, self._descriptor)
            self._descriptor = None

    def _watch(self) -> None:
        self._timer = None
        sock = None if self._transport.is_closing() else self._transport.get_extra_info("socket")
        if sock is not None:
            self._descriptor = sock.fileno()
            try:
                self._disconnects.watch(self._loop, self._descriptor, self._end)
            except OSError:
                # There may be too many open files now.
                self._timer = self._loop.call_later(_MOMENT, self._watch)

    def _end(self) -> None:
        if self._flow.read_paused:
            self._transport.abort()
        else:
            # Whoever reads will meet the end of the input, unless reading is paused before.
            self._timer = self._loop.call_later(_MOMENT, self._watch)


_MAX_DROPPED = 32 << 20
"""Bytes to drop while lingering before reading stops."""
_RETRIED = {503, 429}
"""Statuses of refusals after which clients may retry."""
_REFUSAL_HEADERS = (
    b"content-type: application/problem+json\r\nx-request-id: %b\r\ncache-control: no-store\r\n"
    b"x-content-type-options: nosniff\r\nconnection: close\r\n"
)
_STARTING_SECONDS = 20
"""When to retry while kernels are compiled: eight times, as our client does, are enough."""


class Leaving(asyncio.Protocol):
    """The part of a connection that ends it; the other one is :class:`.protocol.BodyProtocol`.

    Args:
        loop: the running event loop.
        server_state: uvicorn's, which has the headers of every answer.
        refusals: counts refusals by code.
    """

    limits: ClassVar[ServerLimits] = ServerLimits()
    transport: asyncio.Transport
    flow: Flow
    watch: WriteWatch | None = None

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server_state: ServerState, refusals: Counter[str]
    ) -> None:
        self.loop = loop
        self.server_state = server_state
        self._refusals = refusals
        self._active: BodyCycle | None = None
        self._held = b""
        self._leaving, self._dropped = False, 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._disconnect: Disconnect | None = None

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""
        return self.server_state.default_headers

    def write(self, *pieces: bytes | memoryview) -> None:
        """Send bytes, which must not change until they are sent."""
        if self.watch:
            self.watch.written += sum(map(len, pieces))
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

    def refuse(self, problem: Problem, ident: str | None = None) -> None:
        """Answer with a problem in place of the application, then close.

        Args:
            problem: what is wrong.
            ident: of the request, if it has one.
        """
        status, code = problem.status, problem.code
        self._refusals[code] += 1
        problem.members["request_id"] = ident = ident or new_request_id()
        body = orjson.dumps(problem.to_json())
        content = [STATUS_LINE[status]]
        for name, value in self.default_headers:
            content += [name, b": ", value, b"\r\n"]
        content.append(_REFUSAL_HEADERS % ident.encode())
        if status in _RETRIED:
            seconds = _STARTING_SECONDS if code == "starting" else 1
            content.append(b"retry-after: %d\r\n" % seconds)
        content.append(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        self._active = None
        if not self.transport.is_closing():
            self.write(b"".join(content))
            self._leave(linger=True)

    def abort_answer(self, *, reset: bool) -> None:
        """End the connection in the middle of an answer, by a TCP reset if asked to."""
        self._active = None
        if reset:
            sock = self.transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                # Zero linger time turns close(2) into a reset.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._leaving = True
            self.transport.abort()
        elif not self.transport.is_closing():
            self._leave(linger=True)

    def _leave(self, *, linger: bool) -> None:
        """Close the connection, after a moment of lingering if asked to."""
        self._leaving = True
        self._held = b""
        self._stop_timer("head")
        self._stop_watching()
        if self.transport.get_protocol() is not self:
            self.transport.set_protocol(self)
        if not linger:
            self.transport.close()
        else:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.flow.resume_reading()
            self._set_timer("linger", self.limits.linger_seconds, self._end_linger)
        self._watch_writes()

    def _drop(self, data: bytes) -> None:
        """Drop what arrives while lingering."""
        self._dropped += len(data)
        if self._dropped > _MAX_DROPPED:
            # The client may wait for the end of lingering, but not keep us busy.
            self.flow.pause_reading()

    def _end_linger(self) -> None:
        if self.transport.get_write_buffer_size():
            self._set_timer("linger", self.limits.linger_seconds, self._end_linger)
        else:
            self.transport.close()

    def _set_timer(self, name: str, seconds: float, call: Any) -> None:  # noqa: ANN401
        self._stop_timer(name)
        self._timers[name] = self.loop.call_later(seconds, call)

    def _stop_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _stop_watching(self) -> None:
        if self._disconnect is not None:
            self._disconnect.stop()
            self._disconnect = None

    def _watch_writes(self) -> None:
        if self.watch:
            self.watch.start()

    def _on_stalled_write(self) -> None:
        """Give up on a client that does not take its answer."""
        if self._active:
            self._active.disconnect()
        self.abort_answer(reset=True)
