"""A connection: uvicorn's protocol, with limits, and bodies read into place."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import struct
from typing import TYPE_CHECKING, Any, ClassVar

import httptools
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from .body import ClientDisconnected
from .cycle import BodyCycle, problem
from .drain import DRAIN_EXTENSION
from .limits import ServerLimits
from .reader import SocketBody
from .writing import WriteWatch

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

_logger = logging.getLogger(__name__)

_HEAD_END = b"\r\n\r\n"
_PROBE_SECONDS = 1.0
_TCP_CLOSED = 7
_DROP_BYTES = 32 << 20
# Of uvicorn's class, what is overridden or called here.
_BUILT_ON = frozenset(
    {"_start_asgi_task", "_should_upgrade", "_unset_keepalive_if_required"}
    | {"handle_websocket_upgrade", "on_headers_complete", "timeout_keep_alive_handler"}
)


class BodyProtocol(HttpToolsProtocol):
    """One connection.

    Heads are parsed by httptools, one at a time; what follows a head is read by its
    body, and what follows that is held until the answer is over.
    """

    limits: ClassVar[ServerLimits] = ServerLimits()

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
        self._active: BodyCycle | None = None
        self._pending: tuple[RequestResponseCycle, ASGI3Application] | None = None
        self._held = b""
        self._tail = b""
        self._head_bytes = 0
        self._refusal: tuple[int, str, str] | None = None
        self._leaving, self._dropped = False, 0
        self._watch: WriteWatch | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # Events of the connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        seconds = self.limits.write_idle_seconds
        self._watch = WriteWatch(transport, self.loop, seconds, self._not_taken)
        self._set_timer("head", self.limits.header_seconds, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._leaving = True
        for name in list(self._timers):
            self._stop_timer(name)
        if self._watch:
            self._watch.stop()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._active:
            self._active.lose()
            self._active = None
        self.cycle = None  # type: ignore[assignment]

    def eof_received(self) -> None:
        """The client sends no more: as for uvicorn, it is gone."""
        if self._active:
            self._active.lose()
        self._watch_writes()

    def pause_writing(self) -> None:
        """The answer is not taken as fast as it is written."""
        super().pause_writing()
        self._watch_writes()

    def shutdown(self) -> None:
        """Close once the running request is answered; now if none is."""
        super().shutdown()
        self._watch_writes()

    def timeout_keep_alive_handler(self) -> None:
        """Nobody asked for anything in time."""
        super().timeout_keep_alive_handler()
        self._watch_writes()

    def data_received(self, data: bytes) -> None:
        """Bytes came outside of a body."""
        if self._leaving:
            self._dropped += len(data)
            if self._dropped > _DROP_BYTES:
                # It may wait for the rest of the time, but not keep us busy.
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
                self._set_timer("head", self.limits.header_seconds, self._head_late)
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
        """Parse a piece of a head; False if the connection is over, or no longer ours."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._stop_timer("head")
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
        """A header was parsed."""
        if len(self.headers) >= self.limits.header_count:
            self._refusal = (431, "headers-too-large", "the request has too many headers")
            return
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Not called: bodies do not go through the parser."""
        del body

    def on_message_complete(self) -> None:
        """Nothing to do: framing is taken from the headers."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Keep for later what uvicorn would start in the middle of parsing."""
        self._pending = (cycle, app)

    def _begin(self, rest: bytes) -> None:
        """Start the application on a request whose head is complete."""
        assert self._pending is not None  # noqa: S101 - the caller looked
        (stock, app), self._pending = self._pending, None
        self._stop_timer("head")
        self._head_bytes = 0
        self._tail = b""
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and codings != [b"chunked"]:
            self.refuse(501, "not-implemented", "only the chunked transfer coding is known")
            return
        size = None if codings else int(dict(self.headers).get(b"content-length", b"0"))
        if size != 0 or self.parser.should_upgrade():
            self._renew_parser()
        reader = SocketBody(self, size, rest)
        self.cycle = self._active = cycle = BodyCycle(stock, self, reader)
        self._extend(cycle)
        if rest or not reader.complete:
            self.flow.pause_reading()
        if not reader.complete:
            self._set_timer("probe", _PROBE_SECONDS, self._probe)
        super()._start_asgi_task(cycle, app)

    def _renew_parser(self) -> None:
        """The old one still waits for a body it will not see."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _extend(self, cycle: BodyCycle) -> None:
        # Sending to a client that left raises an OSError, as version 2.4 has it.
        self.scope["asgi"]["spec_version"] = "2.4"
        extensions: dict[str, Any] = {}
        cycle.offer(extensions)
        if self._drain is not None:
            extensions[DRAIN_EXTENSION] = self._drain
        self.scope["extensions"] = extensions

    # The body of a request.

    def read_body(self, reader: asyncio.BufferedProtocol) -> None:
        """Let the transport write into a body."""
        if self._active:
            self._active.want_continue()
        if self.transport.is_closing():
            return
        if self.transport.get_protocol() is not reader:
            self.transport.set_protocol(reader)
        self.flow.resume_reading()

    def body_over(self, rest: bytes) -> None:
        """A body was read to its end; ``rest`` came after it."""
        self._stop_timer("probe")
        self._held = rest
        if self.transport.is_closing():
            return
        if self.transport.get_protocol() is not self:
            self.transport.set_protocol(self)
        if self._active and not rest:
            # Nothing is expected, but this is how the end of the connection is seen.
            self.flow.resume_reading()

    # The answer.

    def write(self, *pieces: bytes | memoryview) -> None:
        """Send bytes, which must not change until they are sent."""
        if self._watch:
            self._watch.written += sum(map(len, pieces))
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

    def on_response_complete(self) -> None:
        """An answer is over: take the next request, or leave."""
        cycle, self._active = self._active, None
        self.server_state.total_requests += 1
        if cycle is None or self.transport.is_closing():
            return
        reader = cycle.reader
        reader.drop_rest()
        if not cycle.keep_alive or not reader.complete:
            reader.fail(ClientDisconnected("the answer is over"))
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
        """Answer a request the application does not get to answer, and leave."""
        body = problem(status, code, detail)
        content = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            content += [name, b": ", value, b"\r\n"]
        content.append(b"content-type: application/problem+json\r\nconnection: close\r\n")
        content.append(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        self._active = self._pending = None
        if not self.transport.is_closing():
            self.write(b"".join(content))
            self._leave(linger=True)

    def break_off(self, *, hard: bool) -> None:
        """End the connection in the middle of an answer."""
        self._active = None
        if hard:
            sock = self.transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                # A reset, as an answer without a length could be taken for whole.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._leaving = True
            self.transport.abort()
        elif not self.transport.is_closing():
            self._leave(linger=True)

    def _leave(self, *, linger: bool) -> None:
        """Close; with ``linger`` only after a while in which what still comes is dropped.

        Closing on unread bytes would send a reset, which can overtake the answer.
        """
        self._leaving = True
        self._held = b""
        self._stop_timer("head")
        self._stop_timer("probe")
        if self.transport.get_protocol() is not self:
            self.transport.set_protocol(self)
        if not linger:
            self.transport.close()
        else:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.flow.resume_reading()
            self._set_timer("linger", self.limits.linger_seconds, self._linger_over)
        self._watch_writes()

    def _linger_over(self) -> None:
        if self.transport.get_write_buffer_size():
            self._set_timer("linger", self.limits.linger_seconds, self._linger_over)
        else:
            self.transport.close()

    # Timers.

    def _set_timer(self, name: str, seconds: float, call: Any) -> None:  # noqa: ANN401
        self._stop_timer(name)
        self._timers[name] = self.loop.call_later(seconds, call)

    def _stop_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _head_late(self) -> None:
        self.refuse(408, "headers-too-slow", "the headers took too long")

    def _probe(self) -> None:
        """Look for a reset, which nobody sees while the socket is not read."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or sock.family == socket.AF_UNIX or self.transport.is_closing():
            return
        if self.flow.read_paused:
            state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            if state[0] == _TCP_CLOSED:
                self.transport.abort()
                return
        self._set_timer("probe", _PROBE_SECONDS, self._probe)

    def _watch_writes(self) -> None:
        if self._watch:
            self._watch.start()

    def _not_taken(self) -> None:
        """The client does not take its answer."""
        if self._active:
            self._active.lose()
        self.break_off(hard=True)


def protocol_class(limits: ServerLimits) -> type[asyncio.Protocol] | str:
    """The class for ``uvicorn.Config(http=...)``, with limits.

    Returns:
        A class; or ``"auto"``, after a warning, if this uvicorn is not one it builds on.
    """
    reason = _unfit()
    if reason:
        _logger.warning("uvicorn %s: %s; serving without limits", uvicorn.__version__, reason)
        return "auto"
    return type("LimitedBodyProtocol", (BodyProtocol,), {"limits": limits})


def _unfit() -> str | None:
    """Why the installed uvicorn cannot be built on; None if it can."""
    version = tuple(int(part) for part in uvicorn.__version__.split(".")[:2] if part.isdigit())
    if not (0, 50) <= version < (0, 60):
        return "not a version this was written for"
    lost = [name for name in sorted(_BUILT_ON) if not hasattr(HttpToolsProtocol, name)]
    if lost:
        return f"HttpToolsProtocol has no {lost[0]}"
    wanted = {"scope", "transport", "flow", "message_event", "on_response", "expect_100_continue"}
    missing = wanted - set(inspect.signature(RequestResponseCycle).parameters)
    return f"its cycle takes no {', '.join(sorted(missing))}" if missing else None
