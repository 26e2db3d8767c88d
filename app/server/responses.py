"""Exchanges: responses that may read the request while they are sent, without losing data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette._exception_handler import wrap_app_handling_exceptions
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .body import BODY_EXTENSION, ClientDisconnected
from .flow import Flag
from .passing import MESSAGE_BYTES, Passing, Source, Start
from .reader import SocketBody

ABORT_EXTENSION = "thalweg.abort"
DISCONNECTED_EXTENSION = "thalweg.disconnected"
INFORMATIONAL_EXTENSION = "thalweg.informational"
_POSTPONED = "thalweg.postponed"
_STACKS = ("fastapi_inner_astack", "fastapi_function_astack", "fastapi_middleware_astack")
"""What the framework leaves in a scope of which it needs nothing any more."""

HeaderItems = Mapping[str, str] | Iterable[tuple[str, str]]
RawHeaders = list[tuple[bytes, bytes]]


class Exchange:
    """One request and its answer.

    One task may read ``body`` while another writes. Memory passed to :meth:`write` must
    stay unchanged until the answer has ended, because the transport refers to it.

    Attributes:
        scope: The ASGI scope of the request.
        body: The request body.
        disconnected: Set once the client is known to have left.
        started: Whether the status was sent.
        ended: Whether the whole answer was sent.
        aborted: Whether the answer was aborted.

    Raises:
        RuntimeError: The server is another than ours.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        extensions = scope.get("extensions") or {}
        if BODY_EXTENSION not in extensions:
            raise RuntimeError(
                "this is served by thalweg-server alone: other servers hold no limits"
            )
        self.scope = scope
        self.body: SocketBody = extensions[BODY_EXTENSION]
        self.disconnected: Flag = extensions[DISCONNECTED_EXTENSION]
        self.started = False
        self.ended = False
        self.aborted = False
        self._abort: Callable[[], None] = extensions[ABORT_EXTENSION]
        self._informational: Callable[[int, RawHeaders], None] = extensions[INFORMATIONAL_EXTENSION]
        self._send = send

    async def start(
        self, status: int, headers: HeaderItems = (), *, content_length: int | None = None
    ) -> None:
        """Send the status and the headers.

        Args:
            status: The status code.
            headers: Headers.
            content_length: Length of the answer in bytes, if known; chunked otherwise.

        Raises:
            ClientDisconnected: The client left, or the answer was aborted.
        """
        raw = _raw(headers)
        if content_length is not None:
            raw.append((b"content-length", b"%d" % content_length))
        self._check()
        self.started = True
        await self._pass({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, data: bytes | memoryview) -> None:
        """Send a piece of the answer; wait while too much is unsent.

        Args:
            data: The bytes, which must not change until the answer has ended.

        Raises:
            ClientDisconnected: The client left, or the answer was aborted.
        """
        self._check()
        if data:
            await self._pass({"type": "http.response.body", "body": data, "more_body": True})

    async def pass_on(self, source: Source, start: Start) -> None:
        """Send all that is left of a source, from threads; nothing to HEAD.

        Args:
            source: The bytes.
            start: Calls a function in a thread.

        Raises:
            ClientDisconnected: The client left, or the answer was aborted.
            Exception: Raised by the source; the answer is to be aborted.
        """
        if self.scope.get("method") == "HEAD":
            return
        while source.left:
            self._check()
            body = Passing(source, min(source.left, MESSAGE_BYTES), start)
            await self._pass({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, data: bytes | memoryview = b"") -> None:
        """Send the last piece of the answer; further calls do nothing."""
        if not self.ended:
            self._check()
            self.ended = True
            await self._pass({"type": "http.response.body", "body": data, "more_body": False})

    def informational(self, status: int, headers: HeaderItems = ()) -> bool:
        """Send an interim answer such as 104 before the answer; return whether it was."""
        if self.started:
            return False
        self._informational(status, _raw(headers))
        return True

    def abort(self) -> None:
        """Abort the answer, so that no client can mistake it for complete."""
        if not self.aborted and not self.ended:
            self.aborted = True
            self._abort()

    def _check(self) -> None:
        if self.aborted:
            raise ClientDisconnected("the answer was aborted")

    async def _pass(self, message: dict[str, object]) -> None:
        if self.disconnected.is_set():
            raise ClientDisconnected("the client left")
        try:
            await self._send(message)
        except OSError as error:
            self.disconnected.set()
            if isinstance(error, ClientDisconnected):
                raise
            raise ClientDisconnected("the client left") from error


def _raw(headers: HeaderItems) -> RawHeaders:
    items = headers.items() if isinstance(headers, Mapping) else headers
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in items]


class ExchangeResponse(Response):
    """A response produced by a handler that reads the request itself.

    It does not call ``receive()``, so middleware that wraps that does not see the body. A
    ``StreamingResponse`` would, listening for the disconnect, and silently lose parts of the body.

    Exceptions of the handler propagate to the application's exception handlers. If the
    answer has started by then, it is aborted as well. A client that left is no error.

    Within :func:`run_then_exchange`, calling it only leaves it to that.

    Args:
        handler: Called with the :class:`Exchange`; the answer ends when it returns.
    """

    def __init__(self, handler: Callable[[Exchange], Awaitable[None]]) -> None:
        super().__init__()
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the handler, now or once the framework has ended; an ASGI application."""
        postponed: list[ASGIApp] | None = scope.get(_POSTPONED)
        if postponed is None:
            await self._run(scope, receive, send)
        else:
            postponed.append(self._run)

    async def _run(self, scope: Scope, _receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send)
        try:
            await self._handler(exchange)
            if not exchange.started and not exchange.aborted:
                raise RuntimeError("the handler started no answer")  # noqa: TRY301
            if not exchange.aborted:
                await exchange.end()
        except ClientDisconnected:
            exchange.abort()
        except BaseException:
            if exchange.started:
                exchange.abort()
            raise


async def run_then_exchange(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run an application, and then the exchange that it answers with, in the place of all of it.

    An exchange may wait for its client for hours, and the layers of the framework around it would
    hold some 15 kB all the while, and be passed by each piece of a long answer.

    Args:
        app: The application; has to leave the exception handlers in the scope, as Starlette's do.
        scope: Of the request.
        receive: See ASGI.
        send: See ASGI.
    """
    postponed: list[ASGIApp] = []
    scope[_POSTPONED] = postponed
    await app(scope, receive, send)
    del scope[_POSTPONED]
    if postponed:
        for name in _STACKS:
            scope.pop(name, None)
        handled = wrap_app_handling_exceptions(postponed.pop(), Request(scope, receive, send))
        await handled(scope, receive, send)
