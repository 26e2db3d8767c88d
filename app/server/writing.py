"""Detection of clients that do not take their answer."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import Callable


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

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        stalled: Callable[[], None],
    ) -> None:
        self.written = 0
        self.passing = 0
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._stalled = stalled
        self._mark = (0, 0.0)
        self._timer: asyncio.TimerHandle | None = None

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
