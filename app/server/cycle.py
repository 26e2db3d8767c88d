"""One request and its answer on a connection."""

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
from .reader import SocketBody

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent

_TURN_BYTES = 1 << 20

Headers = list[tuple[bytes, bytes]]


class BodyCycle(RequestResponseCycle):
    """uvicorn's cycle, with a body that is read where the application wants it.

    Args:
        stock: The cycle uvicorn made.
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
            message_event=stock.message_event,
            expect_100_continue=stock.waiting_for_100_continue,
            keep_alive=stock.keep_alive,
            on_response=stock.on_response,
        )
        self.owner = owner
        self.reader = reader
        self.gone = asyncio.Event()
        self._received = False
        self._until_close = False
        self._unyielded = 0

    def offer(self, extensions: dict[str, Any]) -> None:
        """Add what applications may use to the extensions of the scope."""
        extensions["thalweg.body"] = self.reader
        extensions["thalweg.trailers"] = self.reader.trailers
        extensions["thalweg.informational"] = self.informational
        extensions["thalweg.abort"] = self.abort
        extensions["thalweg.disconnected"] = self.gone

    def lose(self) -> None:
        """The client is gone: wake whoever waits for it."""
        if not self.response_complete:
            self.disconnected = True
            self.gone.set()
        self.message_event.set()
        self.reader.fail(ClientDisconnected("the client is gone"))
        self.flow.resume_writing()

    def abort(self) -> None:
        """Break the answer off, in a way no client takes for its end."""
        if not self.disconnected and not self.response_complete:
            hard = self._until_close or not self.response_started
            self.lose()
            self.owner.break_off(hard=hard)

    def want_continue(self) -> None:
        """Tell a client that waits for it to send the body."""
        if self.waiting_for_100_continue:
            self.waiting_for_100_continue = False
            if not self.response_started and not self.transport.is_closing():
                self.owner.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def informational(self, status: int, headers: Headers) -> None:
        """Send an interim answer; nothing to clients of HTTP/1.0, or once it is too late."""
        if self.response_started or self.disconnected or self.scope["http_version"] == "1.0":
            return
        content = [STATUS_LINE[status]]
        for name, value in headers:
            _check_header(name, value)
            content += [name, b": ", value, b"\r\n"]
        self.owner.write(b"".join([*content, b"\r\n"]))

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application; answers for it where it fails."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._give_up(503, "cut-off", "the server is shutting down")
        except BaseException as error:  # noqa: BLE001 - the last resort
            self._failed(error)
        else:
            if not self.response_complete and not self.disconnected:
                self.logger.error("ASGI callable returned without completing its response.")
                self._give_up(500, "internal", "no answer was made")
        finally:
            self.on_response = lambda: None

    async def receive(self) -> ASGIReceiveEvent:
        """The next message for applications that know nothing of ours.

        Raises:
            BodyStalled: As the body would raise it.
            FramingError: Likewise.
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
            ClientDisconnected: The client is gone: whoever makes the answer may stop.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        elif self._unyielded >= _TURN_BYTES:
            # A client as fast as the application would have all others wait.
            self._unyielded = 0
            await asyncio.sleep(0)
        if self.transport.is_closing():
            # The loop has not told us yet.
            self.lose()
        if self.disconnected:
            raise ClientDisconnected("the client is gone")
        if self.response_complete:
            raise RuntimeError(f"{message['type']!r} was sent after the end of the answer")
        if not self.response_started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"{message['type']!r} was sent before the start of the answer")
            self._start(message["status"], list(message.get("headers", [])))
        else:
            if message["type"] != "http.response.body":
                raise RuntimeError(f"{message['type']!r} was sent instead of a body")
            self._continue(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: Headers) -> None:
        if not self.reader.at_hand:
            # Nobody knows yet whether the body will be read to its end.
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
            content += self._unsized()
        if not self.keep_alive and not closes:
            content.append(b"connection: close\r\n")
        content.append(b"\r\n")
        self.response_started = True
        self.waiting_for_100_continue = False
        if self.access_log:
            self._log(status)
        self.owner.write(b"".join(content))

    def _unsized(self) -> list[bytes]:
        if self.scope["method"] == "HEAD":
            return []
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
            self._until_close = True
            return []
        self.chunked_encoding = True
        return [b"transfer-encoding: chunked\r\n"]

    def _continue(self, body: bytes | memoryview, *, more: bool) -> None:
        self._unyielded += len(body)
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            if body:
                self.owner.write(b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                self.owner.write(b"0\r\n\r\n")
        elif self._until_close:
            self.owner.write(body)
        else:
            if len(body) > self.expected_content_length:
                raise RuntimeError("the answer is longer than its Content-Length")
            self.expected_content_length -= len(body)
            self.owner.write(body)
        if not more:
            if self.expected_content_length:
                raise RuntimeError("the answer is shorter than its Content-Length")
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        self.on_response()

    def _failed(self, error: BaseException) -> None:
        cause = self.reader.error
        if self.disconnected and _left(error):
            self.logger.debug("client left: %s", error)
        elif isinstance(cause, BodyStalled) and _left(error):
            self._give_up(408, "stalled", str(cause))
        elif isinstance(cause, FramingError) and _left(error):
            self._give_up(400, "framing", str(cause))
        else:
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            self._give_up(500, "internal", "the server failed")

    def _give_up(self, status: int, code: str, detail: str) -> None:
        """Answer for the application if it has not begun to, else break off."""
        if self.response_started:
            self.abort()
        elif not self.disconnected:
            self.response_started = self.response_complete = True
            self.message_event.set()
            self.reader.fail(ClientDisconnected("the answer is over"))
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
    """The JSON of an RFC 9457 problem; ``detail`` must need no escapes."""
    title = http.HTTPStatus(status).phrase
    return (
        f'{{"type":"/problems/{code}","title":"{title}","status":{status},'
        f'"code":"{code}","detail":"{detail}"}}'
    ).encode()


def _check_header(name: bytes, value: bytes) -> None:
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError("an invalid header")


def _left(error: BaseException) -> bool:
    """Whether an exception, or all in a group, say that the body or the client ended."""
    if isinstance(error, BaseExceptionGroup):
        return all(_left(inner) for inner in error.exceptions)
    return isinstance(error, (ClientDisconnected, ClientDisconnect, BodyStalled, FramingError))
