"""One request and its answer on a connection.

uvicorn's cycle is an ASGI application's view of a request: ``receive``, ``send``, and the
bookkeeping between them. We replace both calls. Bodies do not pass through ``receive`` as
copies but are read by the application where it wants them (:mod:`.reader`), and ``send``
tells the truth: uvicorn's returns silently after the client left, so that an application
could compute for hours for nobody.

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
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string

from .body import BodyStalled, ClientDisconnected, FramingError
from .connection import Connection
from .flag import Flag
from .passing import PASSING_EXTENSION, Passing, SocketPasser
from .reader import SocketBody

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent

_TURN_BYTES = 1 << 20

Headers = list[tuple[bytes, bytes]]


class BodyCycle(RequestResponseCycle):
    """A request whose body the application reads into its own memory.

    Args:
        stock: The cycle that uvicorn created for the request.
        owner: The connection.
        reader: The body.
    """

    def __init__(self, stock: RequestResponseCycle, owner: Connection, reader: SocketBody) -> None:
        super().__init__(
            scope=stock.scope,
            transport=stock.transport,
            flow=stock.flow,
            logger=stock.logger,
            access_logger=stock.access_logger,
            access_log=stock.access_log,
            default_headers=stock.default_headers,
            message_event=Flag(),
            expect_100_continue=stock.waiting_for_100_continue,
            keep_alive=stock.keep_alive,
            on_response=stock.on_response,
        )
        self.owner = owner
        self.reader = reader
        self.gone = Flag()
        self.parting = False
        """Whether the client has left, of which others will be told."""
        self._received = False
        self._until_close = False
        self._held = b""
        """The head, as long as it waits for the first bytes of the body."""
        self._sent_since_yield = 0

    def add_extensions(self, extensions: dict[str, Any]) -> None:
        """Add what applications may use to the extensions of the scope."""
        extensions["thalweg.body"] = self.reader
        extensions["thalweg.trailers"] = self.reader.trailers
        extensions["thalweg.informational"] = self.informational
        extensions["thalweg.abort"] = self.abort
        extensions["thalweg.disconnected"] = self.gone
        if self.transport.get_extra_info("sslcontext") is None:
            extensions[PASSING_EXTENSION] = True

    def disconnect(self) -> None:
        """Handle that the client left: wake everything that waits for it."""
        if not self.response_complete:
            self.disconnected = True
            self.gone.set()
        self.message_event.set()
        self.reader.fail(ClientDisconnected("the client left before the end of the body"))
        self.flow.resume_writing()

    def abort(self) -> None:
        """Abort the answer in a way that no client mistakes for its end."""
        if not self.disconnected and not self.response_complete:
            reset = self._until_close or not self.response_started
            if not self.transport.is_closing():
                self._write()
            self.disconnect()
            self.owner.abort_answer(reset=reset)

    def send_continue(self) -> None:
        """Send 100 Continue to a client that waits for it."""
        if self.waiting_for_100_continue:
            self.waiting_for_100_continue = False
            if not self.response_started and not self.transport.is_closing():
                self.owner.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def informational(self, status: int, headers: Headers) -> None:
        """Send an interim answer; does nothing under HTTP/1.0, or once the answer started."""
        if self.response_started or self.disconnected or self.scope["http_version"] == "1.0":
            return
        content = [STATUS_LINE[status]]
        for name, value in headers:
            _check_header(name, value)
            content += [name, b": ", value, b"\r\n"]
        self.owner.write(b"".join([*content, b"\r\n"]))

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application; answer in its place if it fails."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._give_up(503, "cut-off", "the server is shutting down")
        except BaseException as error:  # noqa: BLE001 - the last resort
            self._handle_failure(error)
        else:
            if not self.response_complete and not self.disconnected:
                self.logger.error("ASGI callable returned without completing its response.")
                self._give_up(500, "internal", "the application returned no answer")
        finally:
            self.on_response = lambda: None
            # They refer to this request, and thus keep all of it until garbage is collected.
            self.scope.get("extensions", {}).clear()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next ASGI message, for applications that do not use our body.

        Raises:
            BodyStalled, FramingError: See RequestBody.
        """
        if not self._received and not self.disconnected and not self.response_complete:
            try:
                data = await self.reader.read_some()
            except ClientDisconnected:
                self._received = True
                return {"type": "http.disconnect"}
            self._received = self.reader.complete
            return {"type": "http.request", "body": data, "more_body": not self._received}
        while not self.disconnected and not self.response_complete:
            await self.message_event.wait()
            self.message_event.clear()
        return {"type": "http.disconnect"}

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the application.

        Raises:
            ClientDisconnected: The client left; producing the answer can stop.
            RuntimeError: The message is out of order, or the answer does not match its
                Content-Length.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        elif self._sent_since_yield >= _TURN_BYTES:
            # A client as fast as the application would make all others wait.
            self._sent_since_yield = 0
            await asyncio.sleep(0)
        if self.transport.is_closing():
            # connection_lost is scheduled, but has not been called yet.
            self.disconnect()
        if self.disconnected:
            raise ClientDisconnected("the client left")
        if self.response_complete:
            raise RuntimeError(f"{message['type']!r} was sent after the end of the answer")
        if not self.response_started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"{message['type']!r} was sent before the start of the answer")
            self._start(message["status"], list(message.get("headers", [])))
        else:
            if message["type"] != "http.response.body":
                raise RuntimeError(f"{message['type']!r} was sent instead of a body")
            body: Any = message.get("body", b"")
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
        for name, value in [*self.default_headers, *headers]:
            _check_header(name, value)
            lower = name.lower()
            if lower == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif lower == b"transfer-encoding":
                continue
            elif lower == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                closes = True
            content += [lower, b": ", value, b"\r\n"]
        if self.chunked_encoding is None and status not in {204, 304}:
            content += self._frame_unsized()
        if not self.keep_alive and not closes:
            content.append(b"connection: close\r\n")
        content.append(b"\r\n")
        self.response_started = True
        self.waiting_for_100_continue = False
        if self.access_log:
            self._log(status)
        self._held = b"".join(content)
        if self.chunked_encoding is not False:
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
        self.chunked_encoding = True
        return [b"transfer-encoding: chunked\r\n"]

    def _continue(self, body: bytes | memoryview, *, more: bool) -> None:
        self._sent_since_yield += len(body)
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
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
            if self.expected_content_length:
                raise RuntimeError("the answer is shorter than its Content-Length")
            self._complete()

    def _count(self, size: int) -> None:
        """Count bytes of an answer whose length is known."""
        if size > self.expected_content_length:
            raise RuntimeError("the answer is longer than its Content-Length")
        self.expected_content_length -= size

    async def _pass_on(self, body: Passing) -> None:
        """Have threads send a body, which is not the last of its answer."""
        if self.chunked_encoding:
            self._write(b"%x\r\n" % len(body))
        elif not self._until_close:
            self._count(len(body))
            self._write()
        sock = self.owner.duplicate_socket()
        if sock is None:
            raise ClientDisconnected("the client left")
        passer = SocketPasser(self.transport, self.flow, self.owner.watch, sock)
        try:
            await passer.pass_on(body, self.gone)
        finally:
            passer.close()
        # A client that has all it waits for may be gone by now.
        if self.chunked_encoding and not self.transport.is_closing():
            self._write(b"\r\n")

    def _complete(self) -> None:
        self._write()
        self.response_complete = True
        self.message_event.set()
        self.on_response()

    def _handle_failure(self, error: BaseException) -> None:
        cause = self.reader.error
        expected = _is_client_fault(error)
        if self.disconnected and expected:
            self.logger.debug("client left: %s", error)
        elif isinstance(cause, BodyStalled) and expected:
            self._give_up(408, "stalled", str(cause))
        elif isinstance(cause, FramingError) and expected:
            self._give_up(400, "framing", str(cause))
        else:
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            self._give_up(500, "internal", "the server failed")

    def _give_up(self, status: int, code: str, detail: str) -> None:
        """Answer in place of the application if it has not started to, else abort."""
        if self.response_started:
            self.abort()
        elif not self.disconnected:
            self.response_started = self.response_complete = True
            self.message_event.set()
            self.reader.fail(ClientDisconnected("the answer has ended"))
            self.owner.refuse(status, code, detail)

    def _log(self, status: int) -> None:
        self.access_logger.info(
            '%s - "%s %s HTTP/%s" %d',
            get_client_addr(self.scope),
            self.scope["method"],
            get_path_with_query_string(self.scope),
            self.scope["http_version"],
            status,
        )


def problem(status: int, code: str, detail: str) -> bytes:
    """Encode an RFC 9457 problem as JSON; ``detail`` must need no escapes."""
    title = http.HTTPStatus(status).phrase
    return (
        f'{{"type":"/problems/{code}","title":"{title}","status":{status},'
        f'"code":"{code}","detail":"{detail}"}}'
    ).encode()


def _check_header(name: bytes, value: bytes) -> None:
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError("a header of the answer is invalid")


def _is_client_fault(error: BaseException) -> bool:
    """Whether an exception, or all in a group, report a fault of the body or the client."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_client_fault(inner) for inner in error.exceptions)
    return isinstance(error, (ClientDisconnected, ClientDisconnect, BodyStalled, FramingError))
