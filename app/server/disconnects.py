"""Clients that leave while nobody reads their socket.

A server that does not read a socket is not told that its client has closed it: what tells is the
read that returns nothing. To ask the kernel for the state of each such socket, several times a
second, is a callback of the event loop each time, and hundreds of clients that wait are thousands
of them. So an epoll of our own watches these sockets for nothing but their end, and the event loop
watches the epoll:

    sockets that are not read ──end of input, reset──▶ epoll ──readable──▶ event loop ──▶ callback

The epoll exists while there is something to watch. Most requests are answered within the moment
before their socket is watched at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable

from .flow import Flow

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


class Disconnect:
    """Resets a connection whose client leaves while its socket is not read.

    As for ``eof_received``, a client that has finished sending is gone.

    Args:
        disconnects: Watches its socket.
        transport: Its transport.
        flow: Tells whether the socket is read.
        loop: The running event loop.
    """

    def __init__(
        self,
        disconnects: Disconnects,
        transport: asyncio.Transport,
        flow: Flow,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._disconnects = disconnects
        self._transport = transport
        self._flow = flow
        self._loop = loop
        self._descriptor: int | None = None
        self._timer: asyncio.TimerHandle | None = loop.call_later(_MOMENT, self._watch)

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
