"""A worker: uvicorn with our protocol, which drains after a signal, before it ends.

After a drain, whatever still runs is cancelled, and the interpreter joins its threads. A thread
that hangs in a system call or a library would keep the process for good, and whoever waits for
it: an orchestrator, a deployment. So a timer ends it, after the log has told what hung.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE

from .board import WorkerSlot
from .drain import Drain
from .forking import CUT
from .lanes.channel import Message, receive
from .lanes.lane import Lane
from .lanes.table import Table
from .memory import FreeMemory

_logger = logging.getLogger(__name__)

ACCEPTED = 16
"""Connections accepted per turn of the event loop."""
TICKS = 10
"""Ticks of uvicorn in a second."""
MARGIN_SECONDS = 8.0
"""Time that a process has to end after its drain."""
_CODE = 70
"""Exit code: an internal failure, as in sysexits.h."""
_HANDOVER_SECONDS = 0.02


class ServerConfig(Config):
    """uvicorn's configuration and ours.

    Attributes:
        drain: Draining state of this process.
        drain_seconds: Seconds that running requests have to finish.
        drain_delay: Seconds for which a draining server still accepts connections.
        slot: Where to beat.
        table: Lanes of the routes.
        address: What the first worker announces.
    """

    drain: Drain
    drain_seconds: float
    drain_delay: float
    slot: WorkerSlot
    table: Table
    address: str


class DrainingServer(Server):
    """A server that drains after a signal, and exits with code 0."""

    def __init__(self, config: ServerConfig, control: socket.socket | None = None) -> None:
        super().__init__(config)
        self._control = control
        self._lane: Lane | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settings = config
        self._close_at: float | None = None
        self._notified = False
        self._adoptions: set[asyncio.Task[None]] = set()
        self._free_memory = FreeMemory()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; the first worker announces the address."""
        await super().startup(sockets)
        if self.should_exit:
            return
        self._loop = asyncio.get_running_loop()
        slot = self._settings.slot
        slot.beat()
        if self._control is not None:
            self._join_lane(self._control)
        if slot.index == 0:
            sys.stderr.write(f"listening on {self._settings.address}\n")
            sys.stderr.flush()

    def _join_lane(self, control: socket.socket) -> None:
        """Serve the connections that the acceptor gives us, whichever process it is."""
        loop = asyncio.get_running_loop()
        lane = self._lane = Lane(self._settings.slot.lane, self._settings.table, loop, self._adopt)
        protocol: Any = self.config.http_protocol_class
        protocol.lane = lane

        def connect() -> None:
            with contextlib.suppress(BlockingIOError):
                while message := receive(control):
                    if message.sock is not None:
                        lane.connect(message.sock)

        loop.add_reader(control, connect)

    def _adopt(self, message: Message) -> None:
        def make() -> asyncio.Protocol:
            protocol: Any = self.config.http_protocol_class
            connection = protocol(self.config, self.server_state, self.lifespan.state)
            connection.given = message
            return cast("asyncio.Protocol", connection)

        task = asyncio.get_running_loop().create_task(self._connect(make, message))
        self._adoptions.add(task)
        task.add_done_callback(self._adoptions.discard)

    async def _connect(self, make: Callable[[], asyncio.Protocol], message: Message) -> None:
        slot, sock = self._settings.slot, message.sock
        assert sock is not None  # noqa: S101 - or it would not be adopted
        slot.expect(1)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, sock)
        except OSError as e:
            # The client may have left.
            _logger.debug("connection lost: %s", e)
            sock.close()
            slot.expect(-1)
            if self._lane is not None:
                self._lane.note_gone(message.peer or None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain, or cut running requests."""
        del frame
        if sig == signal.SIGINT:
            # Sent to all processes by a terminal; the supervisor sends us SIGTERM for it.
            return
        if sig == CUT:
            self.force_exit = self.should_exit = True
            end_after(MARGIN_SECONDS)
        if self._close_at is not None:
            return
        # Not recorded with the captured signals, which uvicorn raises again at the end.
        _logger.info("draining after signal %d", sig)
        delay = self._settings.drain_delay
        self._settings.drain.begin(delay + self._settings.drain_seconds)
        self._close_at = time.monotonic() + delay
        end_after(delay + self._settings.drain_seconds + MARGIN_SECONDS)
        if self._loop is None:
            self.should_exit = True
        else:
            # Not here, in the middle of whatever the signal has interrupted.
            self._loop.call_soon_threadsafe(self._notify)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop accepting; called ten times per second."""
        self._settings.slot.beat()
        if counter % TICKS == 0:
            asyncio.get_running_loop().run_in_executor(None, self._free_memory.look)
        if self._close_at is not None and time.monotonic() >= self._close_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for running requests, cut the rest."""
        settings = self._settings
        settings.slot.rest()
        settings.drain.begin(settings.drain_seconds)
        self._notify()
        if self._lane is not None:
            while (self._lane.is_connected or self._adoptions) and settings.drain.left():  # noqa: ASYNC110
                # The acceptor hands over what it has accepted.
                await asyncio.sleep(_HANDOVER_SECONDS)
            self._lane.end()
        remaining = settings.drain.left() or 0.0
        margin = min(5.0, settings.drain_seconds / 4)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(remaining - margin, 0), settings.drain.hard.set)
        settings.timeout_graceful_shutdown = remaining  # type: ignore[assignment]  # a float works
        await super().shutdown(sockets)
        timer.cancel()
        if self.force_exit:
            # uvicorn leaves this out, and the application would leave its files.
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()

    def _notify(self) -> None:
        if self._settings.drain.draining and not self._notified:
            self._notified = True
            self._settings.drain.begun.set()
            if self._settings.slot.on_drain is not None:
                self._settings.slot.on_drain()


def run_worker(
    config: ServerConfig, sockets: list[socket.socket], control: socket.socket | None = None
) -> int:
    """Serve until a signal; return the exit code.

    Args:
        config: the configuration.
        sockets: listening sockets; none in a lane.
        control: our end of a channel to the supervisor; None without lanes.
    """
    server = DrainingServer(config, control)
    signal.signal(CUT, server.handle_exit)
    # uvloop accepts one connection per listening descriptor and turn of the event loop. With one
    # descriptor, a client waits for as many turns as others have connected before it: for seconds,
    # where turns take long because threads want the interpreter's lock too.
    server.run([*sockets, *(sock.dup() for sock in sockets for _ in range(ACCEPTED - 1))])
    return 0 if server.started else STARTUP_FAILURE


def end_after(seconds: float) -> threading.Timer:
    """End the process after some time, unless it has ended by then or the timer is cancelled."""
    timer = threading.Timer(seconds, _end)
    timer.name = "last resort"
    # It runs on while the interpreter joins the other threads.
    timer.daemon = True
    timer.start()
    return timer


def _end() -> None:
    for line in hanging():
        _logger.error("the process does not end: %s", line)
    for stream in (sys.stderr, sys.stdout):
        stream.flush()
    os._exit(_CODE)


def hanging() -> list[str]:
    """Describe where each thread is but this one and daemons, innermost call last."""
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to see other threads
    own = threading.get_ident()
    lines = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread.ident == own or thread.daemon:
            continue
        calls = traceback.extract_stack(frame)[-4:]
        where = " > ".join(f"{call.filename}:{call.lineno} {call.name}" for call in calls)
        lines.append(f"thread {thread.name!r} is at {where}")
    return lines
