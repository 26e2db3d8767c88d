"""One request and its answer on a connection.

A cycle is an ASGI application's view of a request: ``receive``, ``send``, and the bookkeeping
between them. Bodies do not pass through ``receive`` as copies but are read by the application
where it wants them (:mod:`.reader`), and ``send`` raises once the client has left: an application
that was not told could compute for hours for nobody.

The answer goes through these states; the body is read independently of them.

    waiting ──http.response.start──▶ started ──last body message──▶ complete
       │                                │
       │ application fails:             │ application fails, or calls abort:
       │ 408, 400, 500 or 503           │ aborted, in a way no client mistakes
       │ in its place, then close       │ for the end of the answer
       ▼                                ▼
    complete                         client gone
                                        ▲
       client leaves, in any state ─────┘  ``gone`` is set, ``send`` raises ClientDisconnected

How an answer ends on the wire follows from its framing, and so does how to abort it:

    framing          used for                    end             abort
    Content-Length   known length                last byte       close early
    chunked          HTTP/1.1, unknown length    empty chunk     close without it
    until close      HTTP/1.0, unknown length    FIN             RST: FIN would be its end

The head of an answer of known length is held until its first bytes follow, which most do at once:
one system call sends both, and wakes the client once. Other heads leave at once, as nobody knows
when something will follow.

An answer may start before the body has arrived. The connection cannot be reused then, as
nobody knows whether the application will read the rest: it says ``connection: close``.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message

from app.errors import problem

from .body import BodyStalled, ClientDisconnected, FramingError
from .flow import Flag
from .head import Head
from .passing import Passing, SocketPasser
from .reader import SocketBody

if TYPE_CHECKING:
    from .protocol import BodyProtocol


_logger = logging.getLogger(__name__)

_NO_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
"""A byte that the name of a header cannot have."""
_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""A byte that its value cannot have."""
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
_PHRASES[412] += " (the data changed, or the protocol version is unknown)"
"""Some clients, such as zarr's over HTTP, show nothing else of a problem."""
STATUS_LINE = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(100, 600)
}
"""The first line of an answer by its status."""
_HINTS = {
    "stalled": "Send the whole body without long pauses, and again from its beginning",
    "framing": "Send each chunk with its size in hexadecimal, or the body with Content-Length",
    "cut-off": "Send the request again",
    "internal": "Have the operator read the log",
}
_TURN_BYTES = 1 << 20

Headers = list[tuple[bytes, bytes]]


class BodyCycle:
    """A request whose body the application reads into its own memory.

    Args:
        owner: The connection.
        reader: The body.
        head: The head of the request.
        scope: The scope, whose extensions get those of the request.
    """

    def __init__(
        self, owner: BodyProtocol, reader: SocketBody, head: Head, scope: dict[str, Any]
    ) -> None:
        self.owner = owner
        self.reader = reader
        self.scope = scope
        self.keep_alive = head.keep_alive
        self.gone = Flag()
        self._transport = owner.transport
        self._flow = owner.flow
        self._message = Flag()
        """Set when ``receive`` has something to tell."""
        self._expects_continue = head.expects_continue
        self._disconnected = False
        self._started = False
        self._complete = False
        self._received = False
        self._chunked: bool | None = None
        """Whether the answer is chunked; None while nobody knows."""
        self._until_close = False
        self._left = 0
        """Bytes that are missing from an answer of known length."""
        self._held = b""
        """The head, as long as it waits for the first bytes of the body."""
        self._sent_since_yield = 0
        scope["extensions"] |= {
            "thalweg.body": reader,
            "thalweg.informational": self.informational,
            "thalweg.abort": self.abort,
            "thalweg.disconnected": self.gone,
        }

    def disconnect(self) -> None:
        """Handle that the client left: wake everything that waits for it."""
        if not self._complete:
            self._disconnected = True
            self.gone.set()
        self._message.set()
        self.reader.fail(ClientDisconnected("the client left before the end of the body"))
        self._flow.resume_writing()

    def abort(self) -> None:
        """Abort the answer in a way that no client mistakes for its end."""
        if not self._disconnected and not self._complete:
            reset = self._until_close or not self._started
            if not self._transport.is_closing():
                self._write()
            self.disconnect()
            self.owner.abort_answer(reset=reset)

    def send_continue(self) -> None:
        """Send 100 Continue to a client that waits for it."""
        if self._expects_continue:
            self._expects_continue = False
            if not self._started and not self._transport.is_closing():
                self.owner.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def informational(self, status: int, headers: Headers) -> None:
        """Send an interim answer; does nothing under HTTP/1.0, or once the answer started."""
        if self._started or self._disconnected or self.scope["http_version"] == "1.0":
            return
        content = [STATUS_LINE[status]]
        for name, value in headers:
            _check_header(name, value)
            content += [name, b": ", value, b"\r\n"]
        self.owner.write(b"".join([*content, b"\r\n"]))

    async def run_asgi(self, app: ASGIApp) -> None:
        """Run the application; answer in its place if it fails."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._give_up("cut-off", "the server is shutting down")
        except BaseException as error:  # noqa: BLE001 - the last resort
            self._handle_failure(error)
        else:
            if not self._complete and not self._disconnected:
                _logger.error("ASGI callable returned without completing its response.")
                self._give_up("internal", "the application returned no answer")
        finally:
            # They refer to this request, and thus keep all of it until garbage is collected.
            self.scope.get("extensions", {}).clear()

    async def receive(self) -> Message:
        """Return the next ASGI message, for applications that do not use our body.

        Raises:
            BodyStalled, FramingError: See SocketBody.
        """
        if not self._received and not self._disconnected and not self._complete:
            try:
                data = await self.reader.read_some()
            except ClientDisconnected:
                self._received = True
                return {"type": "http.disconnect"}
            self._received = self.reader.complete
            return {"type": "http.request", "body": data, "more_body": not self._received}
        while not self._disconnected and not self._complete:
            await self._message.wait()
            self._message.clear()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a message of the application.

        Raises:
            ClientDisconnected: The client left; producing the answer can stop.
            RuntimeError: The message is out of order, or the answer does not match its
                Content-Length.
        """
        if self._flow.write_paused and not self._disconnected:
            await self._flow.drain()
        elif self._sent_since_yield >= _TURN_BYTES:
            # A client as fast as the application would make all others wait.
            self._sent_since_yield = 0
            await asyncio.sleep(0)
        if self._transport.is_closing():
            # connection_lost is scheduled, but has not been called yet.
            self.disconnect()
        if self._disconnected:
            raise ClientDisconnected("the client left")
        if self._complete:
            raise RuntimeError(f"{message['type']!r} was sent after the end of the answer")
        if not self._started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"{message['type']!r} was sent before the start of the answer")
            self._start(message["status"], list(message.get("headers", [])))
        else:
            if message["type"] != "http.response.body":
                raise RuntimeError(f"{message['type']!r} was sent instead of a body")
            body = message.get("body", b"")
            if isinstance(body, Passing):
                await self._pass_on(body)
            else:
                self._continue(body, more=message.get("more_body", False))

    def _start(self, status: int, headers: Headers) -> None:
        if not self.reader.received:
            # It is unknown whether the rest of the body will be read.
            self.keep_alive = False
        content = [STATUS_LINE[status]]
        closes = False
        for name, value in [*self.owner.default_headers, *headers]:
            _check_header(name, value)
            lower = name.lower()
            if lower == b"content-length" and self._chunked is None:
                self._left = int(value)
                self._chunked = False
            elif lower == b"transfer-encoding":
                continue
            elif lower == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                closes = True
            content += [lower, b": ", value, b"\r\n"]
        if self._chunked is None and status not in {204, 304}:
            content += self._frame_unsized()
        if not self.keep_alive and not closes:
            content.append(b"connection: close\r\n")
        content.append(b"\r\n")
        self._started = True
        self._expects_continue = False
        self._held = b"".join(content)
        if self._chunked is not False:
            self._write()

    def _write(self, *pieces: bytes | memoryview) -> None:
        """Send the head if it is held, and pieces of the body."""
        if self._held:
            pieces = (self._held, *pieces)
            self._held = b""
        if pieces:
            self.owner.write(*pieces)

    def _frame_unsized(self) -> list[bytes]:
        """Choose the framing of an answer of unknown length; return its header."""
        if self.scope["method"] == "HEAD":
            return []
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
            self._until_close = True
            return []
        self._chunked = True
        return [b"transfer-encoding: chunked\r\n"]

    def _continue(self, body: bytes | memoryview, *, more: bool) -> None:
        self._sent_since_yield += len(body)
        if self.scope["method"] == "HEAD":
            self._left = 0
        elif self._chunked:
            if body:
                self._write(b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                self._write(b"0\r\n\r\n")
        elif self._until_close:
            self._write(body)
        else:
            self._count(len(body))
            self._write(body)
        if not more:
            if self._left:
                raise RuntimeError("the answer is shorter than its Content-Length")
            self._end()

    def _count(self, size: int) -> None:
        """Count bytes of an answer whose length is known."""
        if size > self._left:
            raise RuntimeError("the answer is longer than its Content-Length")
        self._left -= size

    async def _pass_on(self, body: Passing) -> None:
        """Have threads send a body, which is not the last of its answer."""
        if self._chunked:
            self._write(b"%x\r\n" % len(body))
        elif not self._until_close:
            self._count(len(body))
            self._write()
        sock = self.owner.duplicate_socket()
        if sock is None:
            raise ClientDisconnected("the client left")
        with closing(SocketPasser(self._transport, self._flow, self.owner.watch, sock)) as passer:
            await passer.pass_on(body, self.gone)
        # A client that has all it waits for may be gone by now.
        if self._chunked and not self._transport.is_closing():
            self._write(b"\r\n")

    def _end(self) -> None:
        self._write()
        self._complete = True
        self._message.set()
        self.owner.on_response_complete()

    def _handle_failure(self, error: BaseException) -> None:
        cause = self.reader.error
        expected = _is_client_fault(error)
        if self._disconnected and expected:
            _logger.debug("client left: %s", error)
        elif isinstance(cause, BodyStalled) and expected:
            self._give_up("stalled", str(cause))
        elif isinstance(cause, FramingError) and expected:
            self._give_up("framing", str(cause))
        else:
            _logger.error("Exception in ASGI application\n", exc_info=error)
            self._give_up("internal", "the server failed")

    def _give_up(self, code: str, detail: str) -> None:
        """Answer in place of the application if it has not started to, else abort."""
        if self._started:
            self.abort()
        elif not self._disconnected:
            self._started = self._complete = True
            self._message.set()
            self.reader.fail(ClientDisconnected("the answer has ended"))
            ident = self.scope.get("thalweg.request_id")
            self.owner.refuse(problem(code, detail, hint=_HINTS[code]), ident)


def _check_header(name: bytes, value: bytes) -> None:
    if _NO_NAME.search(name) or _NO_VALUE.search(value):
        raise RuntimeError("a header of the answer is invalid")


def _is_client_fault(error: BaseException) -> bool:
    """Whether an exception, or all in a group, report a fault of the body or the client."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_client_fault(inner) for inner in error.exceptions)
    return isinstance(error, (ClientDisconnected, ClientDisconnect, BodyStalled, FramingError))
