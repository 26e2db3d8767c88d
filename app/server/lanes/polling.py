"""Events of sockets, for a process of one thread that waits for nothing else."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

READ = select.EPOLLIN | select.EPOLLRDHUP
WRITE = select.EPOLLOUT
EDGE = select.EPOLLET
HUNG_UP = select.EPOLLRDHUP
"""Kinds of events: something to read, room to write, only what is new, the other side's end."""

Handler = Callable[[int], None]


class Poll:
    """Calls whoever handles the events of a socket."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Handler, int]] = {}

    def watch(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Call a handler with the events of a socket from now on."""
        self._epoll.register(sock, events)
        self._watched[sock.fileno()] = handler, events

    def change(self, sock: socket.socket, events: int) -> None:
        """Wait for other events of a socket."""
        handler, before = self._watched[sock.fileno()]
        if events != before:
            self._watched[sock.fileno()] = handler, events
            self._epoll.modify(sock, events)

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no more; must come before it is closed."""
        if self._watched.pop(sock.fileno(), None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(sock)

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()

    def wait(self, seconds: float) -> int:
        """Wait for events, handle them, and return how many there were."""
        ready = self._epoll.poll(seconds)
        watched = [self._watched.get(number) for number, _ in ready]
        for (number, events), before in zip(ready, watched, strict=True):
            now = self._watched.get(number)
            # Another handler may have closed the socket, and a new one have its number now.
            if before is not None and now is not None and now[0] is before[0]:
                now[0](events)
        return len(ready)
