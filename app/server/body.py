"""Request bodies, read by applications into memory they provide."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol, runtime_checkable

from starlette.types import Receive, Scope

BODY_EXTENSION = "thalweg.body"


class ClientDisconnected(ConnectionError):  # noqa: N818 - an event rather than a mistake
    """The client left, or the answer was aborted."""


class BodyStalled(Exception):  # noqa: N818 - an event rather than a mistake
    """The body did not continue within the time allowed."""


class FramingError(Exception):
    """The body violates the framing its headers declare, for example by a bad chunk size."""


class RequestBody(Protocol):
    """The body of one request, with a single reader."""

    async def read_into(self, view: memoryview) -> int:
        """Read what has arrived into a view, waiting for at least one byte.

        Args:
            view: Writable contiguous bytes, at least one. Must not be used until the call
                returns.

        Returns:
            Number of bytes read; 0 only at the end of the body.

        Raises:
            ClientDisconnected: The connection ended before the body.
            BodyStalled: No byte arrived for too long, or the whole body took too long.
            FramingError: The body is not valid HTTP.
        """
        ...

    @property
    def complete(self) -> bool:
        """Whether the whole body has been read."""
        ...


@runtime_checkable
class _Waiting(Protocol):
    """A body that can be waited for without memory to read into."""

    async def wait(self) -> None:
        """Wait until bytes are there to be read, or the body has ended or failed."""


async def wait(body: object) -> None:
    """Wait until bytes of a body are there, or its end, where that can be told beforehand."""
    if isinstance(body, _Waiting):
        await body.wait()


class ReceiveBody:
    """A body read through ``receive()``, under any ASGI server.

    Args:
        receive: The ASGI callable, which must have no other caller.
        idle_seconds: Maximum wait for a message in seconds; None for no limit.
        total_seconds: Maximum time from the first read to the end; None for no limit.
    """

    def __init__(
        self, receive: Receive, idle_seconds: float | None, total_seconds: float | None
    ) -> None:
        self._receive = receive
        self._idle_seconds = idle_seconds
        self._total_seconds = total_seconds
        self._deadline: float | None = None
        self._remainder = memoryview(b"")
        self._more = True
        self._error: Exception | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.disconnected = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether the whole body has been read."""
        return not self._more and not self._remainder

    async def read_into(self, view: memoryview) -> int:
        """See :class:`RequestBody`."""
        if not view:
            raise ValueError("the view is empty")
        while not self._remainder:
            if self._error:
                raise self._error
            if not self._more:
                return 0
            await self._next()
        size = min(len(view), len(self._remainder))
        view[:size] = self._remainder[:size]
        self._remainder = self._remainder[size:]
        return size

    def close(self) -> None:
        """Stop watching for a disconnect."""
        if self._watcher:
            self._watcher.cancel()

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(self._timeout()):
                message = await self._receive()
        except TimeoutError:
            self._error = BodyStalled("the body did not continue in time")
            raise self._error from None
        if message["type"] != "http.request":
            self._error = ClientDisconnected("the client left before the end of the body")
            self.disconnected.set()
            raise self._error
        self._remainder = memoryview(message.get("body", b""))
        self._more = message.get("more_body", False)
        if not self._more:
            # From here on only a disconnect can be received.
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def _timeout(self) -> float | None:
        if self._total_seconds is None:
            return self._idle_seconds
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._total_seconds
        remaining = max(self._deadline - now, 0)
        return remaining if self._idle_seconds is None else min(remaining, self._idle_seconds)

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
    """Return the body of a request: that of our protocol, or one over ``receive()``.

    Args:
        scope: Scope of the HTTP request.
        receive: Its ``receive``, which nobody else may call from now on.
        idle_seconds: Maximum wait for bytes in seconds; None for no limit. Our protocol
            applies its own limit instead.
        total_seconds: Maximum time for the whole body; likewise.
    """
    body: RequestBody | None = (scope.get("extensions") or {}).get(BODY_EXTENSION)
    return body or ReceiveBody(receive, idle_seconds, total_seconds)
