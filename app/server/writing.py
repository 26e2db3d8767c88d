"""Looking after answers that nobody takes."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import Callable


class WriteWatch:
    """Calls back when a client takes no byte of what waits to be sent.

    Args:
        transport: Of the connection.
        loop: Its event loop.
        seconds: Without progress, before ``stalled`` is called.
        stalled: What to do then.

    Attributes:
        written: Bytes given to the transport; kept by the owner.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        stalled: Callable[[], None],
    ) -> None:
        self.written = 0
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._stalled = stalled
        self._mark = (0, 0.0)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look, from time to time, while something waits to be sent."""
        if self._timer is None and self._transport.get_write_buffer_size():
            self._mark = (self._taken(), self._loop.time())
            self._again()

    def stop(self) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = self._loop.call_later(self._seconds / 4, self._check)

    def _check(self) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        taken, now = self._taken(), self._loop.time()
        if taken > self._mark[0]:
            self._mark = (taken, now)
        elif now - self._mark[1] >= self._seconds * 0.99:
            self._stalled()
            return
        self._again()

    def _taken(self) -> int:
        """Bytes the client's machine has confirmed, where the system tells."""
        waiting = self._transport.get_write_buffer_size()
        sock = self._transport.get_extra_info("socket")
        try:
            answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
            waiting += int.from_bytes(answer, "little", signed=True)
        except (OSError, AttributeError):
            pass
        return self.written - waiting
