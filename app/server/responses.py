"""A response that may read its request while it is sent, and loses nothing of either."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .body import ClientDisconnected, ReceiveBody, RequestBody, open_body

ABORT_EXTENSION = "thalweg.abort"
DISCONNECTED_EXTENSION = "thalweg.disconnected"
INFORMATIONAL_EXTENSION = "thalweg.informational"

HeaderItems = Mapping[str, str] | Iterable[tuple[str, str]]


class AnswerAbortedError(RuntimeError):
    """Raised through other servers than ours, to make them break the connection off."""


class Exchange:
    """One request and its answer.

    ``body`` may be read by one task while another writes. Memory given to
    :meth:`write` must stay unchanged until the answer is over: the transport keeps it.

    Attributes:
        body: The request body.
        disconnected: Set once the client is known to be gone. Under other servers that
            is only known after the body was read to its end.
        started: Whether the status was sent.
        ended: Whether the whole answer was sent.
        aborted: Whether the answer was broken off.
    """

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        extensions = scope.get("extensions") or {}
        self.body: RequestBody = open_body(scope, receive)
        self.disconnected: asyncio.Event = extensions.get(DISCONNECTED_EXTENSION) or (
            self.body.disconnected if isinstance(self.body, ReceiveBody) else asyncio.Event()
        )
        self.started = False
        self.ended = False
        self.aborted = False
        self._abort: Callable[[], None] | None = extensions.get(ABORT_EXTENSION)
        self._informational: Callable[[int, list[tuple[bytes, bytes]]], None] | None = (
            extensions.get(INFORMATIONAL_EXTENSION)
        )
        self._send = send
        self._headers = headers

    async def start(
        self, status: int, headers: HeaderItems = (), *, content_length: int | None = None
    ) -> None:
        """Send the status and the headers.

        Args:
            status: Final status code.
            headers: Take the place of headers of the same name set on the response
                object; ``set-cookie`` is added.
            content_length: Bytes of the answer where known; chunked otherwise.

        Raises:
            ClientDisconnected: Nobody listens any more.
        """
        items = headers.items() if isinstance(headers, Mapping) else headers
        own = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in items]
        if content_length is not None:
            own.append((b"content-length", b"%d" % content_length))
        names = {name for name, _ in own} - {b"set-cookie"}
        kept = [item for item in self._headers if item[0] not in names]
        self._check()
        self.started = True
        await self._pass({"type": "http.response.start", "status": status, "headers": kept + own})

    async def write(self, data: bytes | memoryview) -> None:
        """Send a piece of the answer, waiting while too much is on its way.

        Args:
            data: Bytes; must not change until the answer is over.

        Raises:
            ClientDisconnected: Nobody listens any more.
        """
        self._check()
        if data:
            await self._pass({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes | memoryview = b"") -> None:
        """Send the last piece of the answer. Does nothing the second time."""
        if not self.ended:
            self._check()
            self.ended = True
            await self._pass({"type": "http.response.body", "body": data, "more_body": False})

    def informational(self, status: int, headers: HeaderItems = ()) -> bool:
        """Send an interim answer such as 104; only where the server can. Says if it did."""
        if self._informational is None or self.started:
            return False
        items = headers.items() if isinstance(headers, Mapping) else headers
        self._informational(
            status, [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in items]
        )
        return True

    def abort(self) -> None:
        """Break the answer off, so that it cannot be taken for whole."""
        if not self.aborted and not self.ended:
            self.aborted = True
            if self._abort:
                self._abort()

    @property
    def must_raise(self) -> bool:
        """Whether only an exception can break this answer off."""
        return self.aborted and self._abort is None

    def _check(self) -> None:
        if self.aborted:
            raise ClientDisconnected("the answer was broken off")

    async def _pass(self, message: dict[str, object]) -> None:
        if self.disconnected.is_set():
            raise ClientDisconnected("the client is gone")
        try:
            await self._send(message)
        except OSError as error:
            self.disconnected.set()
            if isinstance(error, ClientDisconnected):
                raise
            raise ClientDisconnected("the client is gone") from error


class ExchangeResponse(Response):
    """An answer made by a handler that reads the request itself.

    It is the only reader of ``receive()``, which no ``StreamingResponse`` is. Under our
    protocol it does not use ``receive()`` at all, so that middleware which wraps it
    sees nothing of the body.

    The handler's exceptions pass on to the application's exception handlers while
    nothing was sent; afterwards the answer is broken off, and they pass on too. That
    the client left is no error.

    Args:
        handler: Called with the :class:`Exchange`. The answer is ended when it returns.
        headers: Sent with the answer unless ``start`` has others of the same name.
        background: Run after the answer.
    """

    def __init__(
        self,
        handler: Callable[[Exchange], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
        background: BackgroundTask | None = None,
    ) -> None:
        super().__init__(headers=headers, background=background)
        self._handler = handler
        if headers is None or "content-length" not in {name.lower() for name in headers}:
            # The base class announces an answer of no bytes.
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the handler; an ASGI application."""
        exchange = Exchange(scope, receive, send, self.raw_headers)
        try:
            await self._handler(exchange)
            if not exchange.started and not exchange.aborted:
                raise RuntimeError("the handler did not start an answer")  # noqa: TRY301
            if not exchange.aborted:
                await exchange.end()
        except ClientDisconnected:
            exchange.abort()
        except BaseException:
            if exchange.started:
                exchange.abort()
            raise
        finally:
            if isinstance(exchange.body, ReceiveBody):
                exchange.body.close()
        if exchange.must_raise and not exchange.disconnected.is_set():
            raise AnswerAbortedError("the answer was broken off")
        if self.background is not None and not exchange.aborted:
            await self.background()
