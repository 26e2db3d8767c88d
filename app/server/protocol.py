"""A connection: a protocol class for uvicorn, with limits, and bodies read into place.

uvicorn's own classes feed every byte of a connection to one HTTP parser. Ours stops at the end
of a head: httptools parses heads only (:mod:`.head`), the body reads the socket itself
(:mod:`.reader`), and bytes of a pipelined request wait until the answer before them is complete.
So a connection is in one state at a time:

    idle ──▶ head ──complete──▶ body and answer ──both complete──▶ next head, or idle
      │        │                       │
      │        │ too long, too slow,   │ answer complete or aborted,
      │        │ not HTTP: refused     │ body not read to its end
      │        ▼                       │
      │      linger ◀──────────────────┘
      │        │ a moment, and all sent
      ▼        ▼
    closed ◀── from every state: the client left, or took nothing for too long (reset)

How it ends is told in :mod:`.leaving`.

Which object is the transport's protocol, and thus receives its callbacks, changes with the
state. It is the connection itself, except while a body is read, when it is the
:class:`.reader.SocketBody`. Only ``read_body``, ``body_complete`` and ``_leave`` change it,
and none of them while the transport is closing.

Reading is paused while an application is busy, so that the kernel's buffer fills and the
sender slows down. The price is that a reset goes unnoticed meanwhile: requests whose body takes
longer than a moment have their socket watched for it (:mod:`.leaving`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.server import ServerState

from app.errors import Problem, ProblemError, problem

from .body import ClientDisconnected
from .cycle import BodyCycle
from .drain import DRAIN_EXTENSION
from .flow import Flow, Spread, WriteWatch
from .head import Head, HeadParser
from .lanes.channel import Message
from .lanes.lane import Lane
from .lanes.template import COMPILING
from .leaving import Disconnect, Disconnects, Leaving
from .limits import PEER_EXTENSION, Connections, Peers, ServerLimits
from .reader import SocketBody

if TYPE_CHECKING:
    from .worker import ServerConfig


def _refusal(code: str, limits: ServerLimits) -> Problem:
    """Return the problem that refuses a connection without a request."""
    if code == "starting":
        detail = f"{COMPILING}: the service is ready in some minutes"
        return problem(code, detail, hint="Send the request again then")
    if code == "headers-too-slow":
        limit, allowed, setting = "header_seconds", limits.header_seconds, "HEADER_SECONDS"
        detail, hint = "the headers took longer than {:g} s", "Send the whole head at once"
    elif code == "busy":
        limit, allowed, setting = "connections", limits.connections, "MAX_CONNECTIONS"
        detail, hint = "there are more than {} connections", "Send the request again"
    else:
        limit, allowed, setting = "connections", limits.address_connections, "OWNER_SHARE"
        detail, hint = "your address has more than {} connections", "Close those without use"
    bound = {"limit": limit, "allowed": allowed, "setting": f"THALWEG_{setting}"}
    return problem(code, detail.format(allowed), hint=hint, **bound)


class BodyProtocol(Leaving):
    """One connection; see the module for its states.

    Args:
        config: of the server; has loaded the application.
        server_state: counts what uvicorn waits for when it shuts down.
        app_state: what the lifespan of the application has set.
        _loop: the running event loop.
    """

    connected: ClassVar[Connections] = Connections(4096, 4096, Peers(None))
    disconnects: ClassVar[Disconnects] = Disconnects()
    starts: ClassVar[Spread] = Spread()

    lane: ClassVar[Lane | None] = None
    """The lane of this process; None if it serves all requests."""
    given: Message | None = None
    """What the acceptor told about this connection."""

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(_loop or asyncio.get_running_loop(), server_state, config.slot.refusals)
        self._app = config.loaded_app
        self._app_state = app_state
        self._drain = config.drain
        self._slot = config.slot
        self._head = HeadParser(self.limits, config.root_path)
        self._destination: str | None = None
        """Lane to which the connection goes once the answer before is sent."""
        self._has_moved = False
        self._is_expected = False
        """Whether the process expects its first request."""
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int | None] | None = None
        self._peer: str | None = None

    # Events of the connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request."""
        self.server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own
        self.transport = transport
        self.flow = Flow(transport)
        self._server = _address(transport, "sockname")
        client = _address(transport, "peername")
        self._client = None if client is None or client[1] is None else (client[0], client[1])
        self._peer = None if self._client is None else self._client[0]
        message = self.given
        refusal = self.connected.add(self._peer) if message is None else message.text or None
        seconds = self.limits.write_idle_seconds
        self.watch = WriteWatch(transport, self.loop, seconds, self._on_stalled_write)
        if message is not None:
            self._is_expected = True
            self._held, message.octets = message.octets, b""
        if refusal is None:
            if self._held:
                self.loop.call_soon(self._parse_held)
            elif message is not None and message.seconds:
                left = self.limits.header_seconds - message.seconds
                self._set_timer("head", left, self._on_slow_head)
            else:
                self._set_timer("idle", self.limits.header_seconds, self._on_idle)
        elif message is not None or self.connected.may_linger:
            self.refuse(_refusal(refusal, self.limits))
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and tell the running request."""
        del exc
        self._leaving = True
        self.server_state.connections.discard(self)
        if self.given is None or self.lane is None:
            self.connected.remove(self._peer)
        elif not self._has_moved:
            self.lane.note_gone(self._peer)
        self._stop_expecting()
        for name in list(self._timers):
            self._stop_timer(name)
        self._stop_watching()
        if self.watch:
            self.watch.stop()
            # It refers to this connection: a cycle that only a collection of garbage would free.
            self.watch = None
        self.flow.resume_writing()
        self._part()
        self._active = None
        self._head.close()

    def eof_received(self) -> None:
        """Treat a client that has finished sending as gone."""
        is_cut = self._active is not None
        self._part()
        if is_cut and self.transport.get_write_buffer_size():
            # To send the rest, of an answer that ends too early, might take as long as it may.
            self.transport.abort()
        else:
            self._watch_writes()

    def _part(self) -> None:
        """Tell the running request that its client has left."""
        cycle = self._active
        if cycle:
            cycle.disconnect()

    def pause_writing(self) -> None:
        """Pause the application, and watch that the client takes its answer."""
        self.flow.pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Let the application go on, or the connection to another lane."""
        self.flow.resume_writing()
        if self._destination is not None:
            self._depart(self._destination)

    def shutdown(self) -> None:
        """Close after the running request, or now if there is none."""
        if self._active is not None:
            self._active.keep_alive = False
        elif not self._leaving:
            self.transport.close()
        self._watch_writes()

    def _on_idle(self) -> None:
        """Close a connection without a request."""
        if not self.transport.is_closing():
            self.transport.close()
        self._watch_writes()

    def data_received(self, data: bytes) -> None:
        """Handle bytes that arrive while no body is read."""
        if self._leaving:
            self._drop(data)
        elif self._destination is not None:
            self._held += data
        elif self._active is None:
            self._stop_timer("idle")
            held, self._held = self._held, b""
            self._parse(held + data)
        elif self._active.reader.complete:
            self._held += data
            self.flow.pause_reading()
        else:
            self._active.reader.feed(data)
            self.flow.pause_reading()

    # The head of a request.

    def _parse(self, data: bytes) -> None:
        """Parse a head; what arrived after it is the beginning of its body."""
        if not data:
            return
        if not self._head.begun and "head" not in self._timers:
            self._set_timer("head", self.limits.header_seconds, self._on_slow_head)
        try:
            head, rest = self._head.feed(data)
        except ProblemError as refusal:
            self.refuse(refusal.problem)
            return
        if head is None:
            return
        lane = None if self.lane is None else self.lane.elsewhere(*head.route)
        if lane is None:
            self._begin(head, rest)
        else:
            self._move(lane, head.octets + rest)

    def _parse_held(self) -> None:
        """Parse what was read by another process, unless more has arrived already."""
        if self._held and self._active is None and not self._leaving:
            self.data_received(b"")

    def _begin(self, head: Head, early: bytes) -> None:
        """Start the application on a request.

        Args:
            head: its head.
            early: bytes that arrived in one read with the head.
        """
        self._stop_timer("head")
        if self._is_expected:
            self._stop_expecting()
        reader = SocketBody(self, head.size, early)
        self._active = cycle = BodyCycle(self, reader, head, self._scope(head))
        if early or not reader.complete:
            self.flow.pause_reading()
        if not reader.complete:
            self._disconnect = Disconnect(self.disconnects, self.transport, self.flow, self.loop)
        # Who calls is not known yet: nobody has checked the key, but others have another.
        caller = (self._peer, head.first(b"authorization"))
        self.starts.call(self.loop, caller, partial(self._start, cycle))

    def _start(self, cycle: BodyCycle) -> None:
        tasks = self.server_state.tasks
        task = self.loop.create_task(cycle.run_asgi(self._app))
        task.add_done_callback(self._on_end)
        tasks.add(task)
        self._slot.note_running(len(tasks))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        tasks = self.server_state.tasks
        tasks.discard(task)
        self._slot.note_running(len(tasks))

    def _scope(self, head: Head) -> dict[str, Any]:
        extensions: dict[str, Any] = {DRAIN_EXTENSION: self._drain}
        if self._peer is not None:
            extensions[PEER_EXTENSION] = self._peer
        return {
            "type": "http",
            # Sending to a client that left raises an OSError, as version 2.4 specifies.
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            **head.scope,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "state": self._app_state.copy(),
            "extensions": extensions,
        }

    # Another lane.

    def _stop_expecting(self) -> None:
        if self._is_expected:
            self._slot.expect(-1)
        self._is_expected = False

    def _move(self, lane: str, octets: bytes) -> None:
        """Hand the connection over, as soon as the answer before is sent."""
        self._stop_timer("head")
        self._destination, self._held = lane, octets
        self.flow.pause_reading()
        self.transport.set_write_buffer_limits(high=0)
        if not self.transport.get_write_buffer_size():
            self._depart(lane)

    def _depart(self, lane: str) -> None:
        sock = self.transport.get_extra_info("socket")
        if self.lane is not None and sock is not None and not self.transport.is_closing():
            with contextlib.suppress(OSError):
                self.lane.move(sock, self._held, lane, self._peer)
                self._has_moved = self._leaving = True
        # Only our handle is closed, or the connection, if there was no descriptor for another.
        self.transport.abort()

    # The body of a request.

    def read_body(self, reader: asyncio.BufferedProtocol) -> None:
        """Make a body the protocol of the transport, and read from the socket."""
        if self._active:
            self._active.send_continue()
        if self.transport.is_closing():
            return
        if self.transport.get_protocol() is not reader:
            self.transport.set_protocol(reader)
        self.flow.resume_reading()

    def duplicate_socket(self) -> socket.socket | None:
        """Return a second handle of the socket; None if it cannot be read past the transport."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or self.transport.is_closing():
            return None
        # A handle of its own: the transport may close its own in the middle of a read, and
        # the next connection would get the same number.
        with contextlib.suppress(OSError):
            return socket.socket(sock.family, sock.type, sock.proto, os.dup(sock.fileno()))
        return None

    def body_complete(self, remainder: bytes) -> None:
        """Take the transport back at the end of a body; ``remainder`` arrived after it."""
        self._stop_watching()
        self._held = remainder
        if self.transport.is_closing():
            return
        if self.transport.get_protocol() is not self:
            self.transport.set_protocol(self)
        if self._active and not remainder:
            # No input is expected, but reading reveals that the client left.
            self.flow.resume_reading()

    # The answer.

    def on_response_complete(self) -> None:
        """Continue with the next request, or close."""
        cycle, self._active = self._active, None
        self.server_state.total_requests += 1
        if cycle is None or self.transport.is_closing():
            return
        reader = cycle.reader
        reader.discard_received()
        if not cycle.keep_alive or not reader.complete:
            reader.fail(ClientDisconnected("the answer has ended"))
            self._leave(linger=not reader.complete)
            return
        self.flow.resume_reading()
        held, self._held = self._held, b""
        self._parse(held)
        if self._idle():
            self._set_timer("idle", self.limits.keep_alive_seconds, self._on_idle)

    def _idle(self) -> bool:
        return self._active is None and not self._head.begun and not self._leaving

    def _on_slow_head(self) -> None:
        self.refuse(_refusal("headers-too-slow", self.limits))


def protocol_class(limits: ServerLimits) -> type[asyncio.Protocol]:
    """Return a protocol class with these limits, for ``uvicorn.Config(http=...)``."""
    connected = Connections(limits.connections, limits.address_connections, Peers(limits.proxies))
    attributes = {"limits": limits, "connected": connected, "disconnects": Disconnects()}
    attributes |= {"starts": Spread()}
    return type("LimitedBodyProtocol", (BodyProtocol,), attributes)


def _address(transport: asyncio.Transport, end: str) -> tuple[str, int | None] | None:
    """Return host and port of an end of the connection; the path of a unix socket."""
    address = transport.get_extra_info(end)
    if isinstance(address, tuple):
        return str(address[0]), int(address[1])
    return (address, None) if address and isinstance(address, str) else None
