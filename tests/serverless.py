"""What our server adds to a request, for tests that call the application without a server."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.body import BODY_EXTENSION, ClientDisconnected
from app.server.drain import DRAIN_EXTENSION, Drain
from app.server.flow import Flag
from app.server.passing import Passing
from app.server.responses import (
    ABORT_EXTENSION,
    DISCONNECTED_EXTENSION,
    INFORMATIONAL_EXTENSION,
)


class AnswerAbortedError(RuntimeError):
    """The answer was aborted, for which there is no connection to break off."""


class ReceivedBody:
    """A body read through ``receive()``, which nobody else may call."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._remainder = memoryview(b"")
        self._more = True
        self._watcher: asyncio.Task[None] | None = None
        self.disconnected = Flag()

    @property
    def complete(self) -> bool:
        return not self._more and not self._remainder

    async def wait(self) -> None:
        """Wait for nothing."""

    def in_thread(self) -> None:
        """Have no socket."""

    async def read_into(self, view: memoryview) -> int:
        while not self._remainder:
            if not self._more:
                return 0
            message = await self._receive()
            if message["type"] != "http.request":
                self.disconnected.set()
                raise ClientDisconnected("the client left before the end of the body")
            self._remainder = memoryview(message.get("body", b""))
            self._more = message.get("more_body", False)
            if not self._more:
                # From here on only a disconnect can be received.
                self._watcher = asyncio.get_running_loop().create_task(self._watch())
        size = min(len(view), len(self._remainder))
        view[:size] = self._remainder[:size]
        self._remainder = self._remainder[size:]
        return size

    def close(self) -> None:
        if self._watcher:
            self._watcher.cancel()

    async def _watch(self) -> None:
        with contextlib.suppress(Exception):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self.disconnected.set()


def serverless(app: ASGIApp) -> ASGIApp:
    """Return the application with what our server adds to each request."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        body = ReceivedBody(receive)
        aborted = Flag()

        async def collect(message: Message) -> None:
            if isinstance(message.get("body"), Passing):
                message = {**message, "body": await _collected(message["body"])}
            await send(message)

        extensions = {
            BODY_EXTENSION: body,
            DISCONNECTED_EXTENSION: body.disconnected,
            ABORT_EXTENSION: aborted.set,
            INFORMATIONAL_EXTENSION: lambda *_: None,
            DRAIN_EXTENSION: Drain(),
        }
        try:
            await app({**scope, "extensions": extensions}, receive, collect)
        finally:
            body.close()
        if aborted.is_set() and not body.disconnected.is_set():
            raise AnswerAbortedError("the answer was aborted")

    return call


async def _collected(passing: Passing) -> bytes:
    pieces = bytearray()

    def keep(octets: memoryview) -> int:
        taken = octets[: passing.size - len(pieces)]
        pieces.extend(taken)
        return len(taken)

    while len(pieces) < passing.size:
        await passing.start(passing.source.pass_on, keep)
    return bytes(pieces)
