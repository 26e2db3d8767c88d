"""A worker: uvicorn with our protocol, which drains after a signal, before it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE

from .board import Seat
from .drain import Drain
from .last_resort import MARGIN_SECONDS, end_after
from .memory import FreeMemory, raise_malloc_thresholds

_logger = logging.getLogger(__name__)

ACCEPTED = 16
"""Connections accepted per turn of the event loop."""
TICKS = 10
"""Ticks of uvicorn in a second."""

DrainHook = Callable[[Drain], None]


class ServerConfig(Config):
    """uvicorn's configuration and ours.

    Attributes:
        drain: Draining state of this process.
        drain_seconds: Seconds that running requests have to finish.
        drain_delay: Seconds for which a draining server still accepts connections.
        on_drain: Called in the thread of the event loop when draining begins.
        seat: Where to beat.
    """

    drain: Drain
    drain_seconds: float
    drain_delay: float
    on_drain: DrainHook | None
    seat: Seat

    def load(self) -> None:
        """Load the application, and raise the thresholds of malloc."""
        super().load()
        reason = raise_malloc_thresholds()
        if reason:
            _logger.info("malloc thresholds unchanged: %s", reason)


class DrainingServer(Server):
    """A server that drains after a signal, and exits with code 0."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self._settings = config
        self._close_at: float | None = None
        self._notified = False
        self._free_memory = FreeMemory()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; the first worker announces the address."""
        await super().startup(sockets)
        if sockets and not self.should_exit:
            self._settings.seat.beat()
            if self._settings.seat.index == 0:
                announce(sockets[0])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second signal cuts running requests."""
        del frame
        if sig == signal.SIGINT:
            # Sent to all processes by a terminal; the supervisor sends us SIGTERM for it.
            return
        if self._close_at is not None:
            self.force_exit = self.should_exit = True
            return
        # Not recorded with the captured signals, which uvicorn raises again at the end.
        _logger.info("draining after signal %d", sig)
        delay = self._settings.drain_delay
        self._settings.drain.begin(delay + self._settings.drain_seconds)
        self._close_at = time.monotonic() + delay
        end_after(delay + self._settings.drain_seconds + MARGIN_SECONDS)
        if not self.started:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop accepting; called ten times per second."""
        self._settings.seat.beat()
        self._notify()
        if counter % TICKS == 0:
            asyncio.get_running_loop().run_in_executor(None, self._free_memory.look)
        if self._close_at is not None and time.monotonic() >= self._close_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for running requests, cut the rest."""
        settings = self._settings
        settings.seat.rest()
        settings.drain.begin(settings.drain_seconds)
        self._notify()
        remaining = settings.drain.left() or 0.0
        margin = min(5.0, settings.drain_seconds / 4)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(remaining - margin, 0), settings.drain.hard.set)
        settings.timeout_graceful_shutdown = remaining  # type: ignore[assignment]  # a float works
        await super().shutdown(sockets)
        timer.cancel()

    def _notify(self) -> None:
        if self._settings.drain.draining and not self._notified:
            self._notified = True
            # Not in the handler of the signal, which may interrupt whoever uses the event.
            self._settings.drain.begun.set()
            if self._settings.on_drain:
                self._settings.on_drain(self._settings.drain)


def announce(sock: socket.socket) -> None:
    """Print the address the server listens on, as one line on stderr."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        address = f"unix:{name}"
    elif sock.family == socket.AF_INET6:
        address = f"http://[{name[0]}]:{name[1]}"
    else:
        address = f"http://{name[0]}:{name[1]}"
    sys.stderr.write(f"listening on {address}\n")
    sys.stderr.flush()


def run_worker(config: ServerConfig, sock: socket.socket) -> int:
    """Serve until a signal; return the exit code."""
    server = DrainingServer(config)
    # uvloop accepts one connection per listening descriptor and turn of the event loop. With one
    # descriptor, a client waits for as many turns as others have connected before it: for seconds,
    # where turns take long because threads want the interpreter's lock too.
    server.run([sock, *(sock.dup() for _ in range(ACCEPTED - 1))])
    return 0 if server.started else STARTUP_FAILURE
