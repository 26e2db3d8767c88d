"""A connection: uvicorn's protocol, with limits, and bodies read into place.

uvicorn feeds every byte of a connection to one HTTP parser. Ours stops at the end of a
head: httptools parses heads only, the body reads the socket itself (:mod:`.reader`), and
bytes of a pipelined request wait until the answer before them is complete. So a connection
is in one state at a time:

    idle ──▶ head ──complete──▶ body and answer ──both complete──▶ next head, or idle
      │        │                       │
      │        │ too long, too slow,   │ answer complete or aborted,
      │        │ not HTTP: refused     │ body not read to its end
      │        ▼                       │
      │      linger ◀──────────────────┘
      │        │ a moment, and all sent
      ▼        ▼
    closed ◀── from every state: the client left, or took nothing for too long (reset)

*Linger* exists because of TCP: closing a socket that has unread input sends a reset, which
can destroy an answer the client has not read yet. A client in the middle of an upload would
never see why it was refused. So we send FIN after the answer and go on reading, dropping
the input, for a moment.

Which object is the transport's protocol, and thus receives its callbacks, changes with the
state. It is the connection itself, except while a body is read, when it is the
:class:`.reader.SocketBody`. Only ``read_body``, ``body_complete`` and ``_leave`` change it,
and none of them while the transport is closing.

Reading is paused while an application is busy, so that the kernel's buffer fills and the
sender slows down. The price is that a reset goes unnoticed meanwhile: requests whose body takes
longer than a moment have their socket watched for it (:mod:`.departures`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from .board import Seat
from .body import ClientDisconnected
from .connection import PEER_EXTENSION
from .cycle import BodyCycle, problem
from .departures import Departure, Departures
from .drain import DRAIN_EXTENSION
from .flag import Flag
from .limits import ServerLimits
from .peers import Connections, Peers
from .reader import SocketBody
from .spreading import Spread
from .writing import WriteWatch

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

_HEAD_END = b"\r\n\r\n"
_MAX_DROPPED = 32 << 20
"""Bytes to drop while lingering before reading stops."""
_REFUSALS = {"busy": 503, "share-exceeded": 429}
"""Statuses of the problems that refuse connections."""


class BodyProtocol(HttpToolsProtocol):
    """One connection; see the module for its states."""

    limits: ClassVar[ServerLimits] = ServerLimits()
    connected: ClassVar[Connections] = Connections(4096, 4096, Peers(None))
    departures: ClassVar[Departures] = Departures()
    starts: ClassVar[Spread] = Spread()
    partings: ClassVar[Spread] = Spread()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.timeout_keep_alive: float = self.limits.keep_alive_seconds  # type: ignore[assignment]
        self._drain = getattr(config, "drain", None)
        seat: Seat | None = getattr(config, "seat", None)
        self._refusals: Counter[str] = Counter() if seat is None else seat.refusals
        self._active: BodyCycle | None = None
        self._pending: tuple[RequestResponseCycle, ASGI3Application] | None = None
        self._held = b""
        self._tail = b""
        self._head_bytes = 0
        self._refusal: tuple[int, str, str] | None = None
        self._leaving, self._dropped = False, 0
        self.watch: WriteWatch | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._peer: str | None = None
        self._departure: Departure | None = None

    # Events of the connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request."""
        super().connection_made(transport)
        self.flow._is_writable_event = writable = Flag()  # noqa: SLF001 - uvicorn's takes more
        writable.set()
        self._peer = None if self.client is None else self.client[0]
        refusal = self.connected.add(self._peer)
        seconds = self.limits.write_idle_seconds
        self.watch = WriteWatch(transport, self.loop, seconds, self._on_stalled_write)
        if refusal is None:
            self._set_timer("head", self.limits.header_seconds, self.timeout_keep_alive_handler)
        elif self.connected.may_linger:
            self.refuse(_REFUSALS[refusal], refusal, "there are too many connections")
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and tell the running request."""
        self._leaving = True
        self.connected.remove(self._peer)
        for name in list(self._timers):
            self._stop_timer(name)
        self._stop_watching()
        if self.watch:
            self.watch.stop()
            # It refers to this connection: a cycle that only a collection of garbage would free.
            self.watch = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._part()
        self._active = None
        self.cycle = None  # type: ignore[assignment]

    def eof_received(self) -> None:
        """Treat a client that has finished sending as gone, as uvicorn does."""
        self._part()
        self._watch_writes()

    def _part(self) -> None:
        """Tell the running request that its client has left."""
        cycle = self._active
        if cycle and not cycle.parting:
            cycle.parting = True
            self.partings.call(self.loop, self._peer, cycle.disconnect)

    def pause_writing(self) -> None:
        """Pause the application, and watch that the client takes its answer."""
        super().pause_writing()
        self._watch_writes()

    def shutdown(self) -> None:
        """Close after the running request, or now if there is none."""
        super().shutdown()
        self._watch_writes()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a request."""
        super().timeout_keep_alive_handler()
        self._watch_writes()

    def data_received(self, data: bytes) -> None:
        """Handle bytes that arrive while no body is read."""
        if self._leaving:
            self._dropped += len(data)
            if self._dropped > _MAX_DROPPED:
                # The client may wait for the end of lingering, but not keep us busy.
                self.flow.pause_reading()
            return
        if self._active is None:
            self._unset_keepalive_if_required()
            self._parse(data)
        elif self._active.reader.complete:
            self._held += data
            self.flow.pause_reading()
        else:
            self._active.reader.feed(data)
            self.flow.pause_reading()

    # The head of a request.

    def _parse(self, data: bytes) -> None:
        while data and self._active is None and not self._leaving:
            if not self._head_bytes:
                self._set_timer("head", self.limits.header_seconds, self._on_slow_head)
            known = len(self._tail)
            end = (self._tail + data).find(_HEAD_END)
            size = len(data) if end < 0 else end + len(_HEAD_END) - known
            self._head_bytes += size
            if self._head_bytes > self.limits.header_bytes:
                self.refuse(431, "headers-too-large", "the request line and headers are too long")
                return
            self._tail = (self._tail + data[-3:])[-3:] if end < 0 else b""
            if not self._feed(data[:size], ended=end >= 0):
                return
            data = data[size:]
            if self._pending:
                self._begin(data)
                return

    def _feed(self, piece: bytes, *, ended: bool) -> bool:
        """Parse a piece of a head; return False if the connection closes or is handed over."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._stop_timer("head")
                self.connected.remove(self._peer)
                self.handle_websocket_upgrade()
                return False
        except httptools.HttpParserError:
            self._refusal = self._refusal or (400, "bad-request", "the request is not HTTP/1.1")
        if self._pending and not ended:
            self._refusal = (400, "bad-request", "lines must end with CR and LF")
        if self._refusal:
            self.refuse(*self._refusal)
            return False
        return True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, within the limit on their number."""
        if len(self.headers) >= self.limits.header_count:
            self._refusal = (431, "headers-too-large", "the request has too many headers")
            return
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Do nothing: bodies do not pass through the parser."""
        del body

    def on_message_complete(self) -> None:
        """Do nothing: the body finds its own end."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Postpone a request that uvicorn would start in the middle of parsing its head."""
        self._pending = (cycle, app)

    def _begin(self, early: bytes) -> None:
        """Start the application on a request whose head is complete.

        Args:
            early: bytes that arrived in one read with the head.
        """
        assert self._pending is not None  # noqa: S101 - the caller checked
        (stock, app), self._pending = self._pending, None
        self._stop_timer("head")
        self._head_bytes = 0
        self._tail = b""
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and codings != [b"chunked"]:
            self.refuse(501, "not-implemented", "only the chunked transfer coding is supported")
            return
        headers = dict(self.headers)
        size = None if codings else int(headers.get(b"content-length", b"0"))
        if size != 0 or self.parser.should_upgrade():
            self._renew_parser()
        reader = SocketBody(self, size, early)
        self.cycle = self._active = cycle = BodyCycle(stock, self, reader)
        self._extend(cycle)
        if early or not reader.complete:
            self.flow.pause_reading()
        if not reader.complete:
            self._departure = Departure(self.departures, self.transport, self.flow, self.loop)
        # Who calls is not known yet: nobody has checked the key, but others have another.
        caller = (self._peer, headers.get(b"authorization"))
        self.starts.call(self.loop, caller, partial(super()._start_asgi_task, cycle, app))

    def _renew_parser(self) -> None:
        """Replace the parser, which waits for a body that it will not see."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _extend(self, cycle: BodyCycle) -> None:
        # Sending to a client that left raises an OSError, as version 2.4 specifies.
        self.scope["asgi"]["spec_version"] = "2.4"
        extensions: dict[str, Any] = {}
        cycle.add_extensions(extensions)
        if self._drain is not None:
            extensions[DRAIN_EXTENSION] = self._drain
        if self.client is not None:
            extensions[PEER_EXTENSION] = self.client[0]
        self.scope["extensions"] = extensions

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
        get = self.transport.get_extra_info
        sock = get("socket")
        if sock is None or get("sslcontext") is not None or self.transport.is_closing():
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

    def write(self, *pieces: bytes | memoryview) -> None:
        """Send bytes, which must not change until they are sent."""
        if self.watch:
            self.watch.written += sum(map(len, pieces))
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

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
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _idle(self) -> bool:
        return self._active is None and not self._head_bytes and not self._leaving

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer with a problem in place of the application, then close."""
        self._refusals[code] += 1
        body = problem(status, code, detail)
        content = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            content += [name, b": ", value, b"\r\n"]
        content.append(b"content-type: application/problem+json\r\nconnection: close\r\n")
        if status in _REFUSALS.values():
            content.append(b"retry-after: 1\r\n")
        content.append(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        self._active = self._pending = None
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

    def _end_linger(self) -> None:
        if self.transport.get_write_buffer_size():
            self._set_timer("linger", self.limits.linger_seconds, self._end_linger)
        else:
            self.transport.close()

    # Timers.

    def _set_timer(self, name: str, seconds: float, call: Any) -> None:  # noqa: ANN401
        self._stop_timer(name)
        self._timers[name] = self.loop.call_later(seconds, call)

    def _stop_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _on_slow_head(self) -> None:
        self.refuse(408, "headers-too-slow", "the headers took too long")

    def _stop_watching(self) -> None:
        if self._departure is not None:
            self._departure.stop()
            self._departure = None

    def _watch_writes(self) -> None:
        if self.watch:
            self.watch.start()

    def _on_stalled_write(self) -> None:
        """Give up on a client that does not take its answer."""
        if self._active:
            self._active.disconnect()
        self.abort_answer(reset=True)
