"""Request bodies as applications read them: into memory of their own."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from starlette.types import Receive, Scope

BODY_EXTENSION = "thalweg.body"


class ClientDisconnected(ConnectionError):  # noqa: N818 - says what happened
    """The client is gone, or the connection was broken off."""


class BodyStalled(Exception):  # noqa: N818 - says what happened
    """The body did not go on within the time allowed."""


class FramingError(Exception):
    """The body is not framed as its headers announced, e.g. a bad chunk size."""


class RequestBody(Protocol):
    """The body of one request, with a single reader."""

    async def read_into(self, view: memoryview) -> int:
        """Fill as much of a writable view of bytes as is there, waiting for one byte.

        Args:
            view: Contiguous bytes, at least one. Must not be used elsewhere meanwhile.

        Returns:
            Bytes filled; 0 at the end of the body only.

        Raises:
            ClientDisconnected: The connection ended before the body.
            BodyStalled: No byte came for too long, or the body as a whole took too long.
            FramingError: The body is not framed as HTTP.
        """
        ...

    @property
    def complete(self) -> bool:
        """Whether the end of the body was reached by the reader."""
        ...


class ReceiveBody:
    """A body taken from ``receive()``: works with every ASGI server.

    Args:
        receive: Must have no other reader.
        idle_seconds: Longest wait for a message, in seconds; None for no limit.
        total_seconds: Longest time from the first read to the end; None for no limit.
    """

    def __init__(
        self, receive: Receive, idle_seconds: float | None, total_seconds: float | None
    ) -> None:
        self._receive = receive
        self._idle_seconds = idle_seconds
        self._total_seconds = total_seconds
        self._deadline: float | None = None
        self._rest = memoryview(b"")
        self._more = True
        self._error: Exception | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.disconnected = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether the end of the body was reached by the reader."""
        return not self._more and not self._rest

    async def read_into(self, view: memoryview) -> int:
        """See :class:`RequestBody`."""
        if not view:
            raise ValueError("read_into needs room for a byte")
        while not self._rest:
            if self._error:
                raise self._error
            if not self._more:
                return 0
            await self._next()
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        """Stop watching for the end of the connection."""
        if self._watcher:
            self._watcher.cancel()

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(self._patience()):
                message = await self._receive()
        except TimeoutError:
            self._error = BodyStalled("the body did not go on")
            raise self._error from None
        if message["type"] != "http.request":
            self._error = ClientDisconnected("the client left before the end of the body")
            self.disconnected.set()
            raise self._error
        self._rest = memoryview(message.get("body", b""))
        self._more = message.get("more_body", False)
        if not self._more:
            # Nothing but the end of the connection can be received from here on.
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def _patience(self) -> float | None:
        if self._total_seconds is None:
            return self._idle_seconds
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._total_seconds
        left = max(self._deadline - now, 0)
        return left if self._idle_seconds is None else min(left, self._idle_seconds)

    async def _watch(self) -> None:
        with contextlib.suppress(Exception):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self.disconnected.set()


def open_body(
    scope: Scope,
    receive: Receive,
    *,
    idle_seconds: float | None = 30.0,
    total_seconds: float | None = None,
) -> RequestBody:
    """The body of a request: from our protocol where it serves, else from ``receive()``.

    Args:
        scope: Of an HTTP request.
        receive: Its ``receive``; must not be called by anyone else from here on.
        idle_seconds: Longest wait for bytes, in seconds; None for no limit. Our
            protocol has its own limit instead.
        total_seconds: Longest time for the whole body; likewise.
    """
    body: RequestBody | None = (scope.get("extensions") or {}).get(BODY_EXTENSION)
    return body or ReceiveBody(receive, idle_seconds, total_seconds)
