"""Request bodies, read by applications into memory they provide."""

from __future__ import annotations

from typing import Protocol

from .thread_reader import ThreadReader

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

    async def wait(self) -> None:
        """Wait until bytes are there to be read, or the body has ended or failed."""
        ...

    def in_thread(self) -> ThreadReader | None:
        """Return a reader for another thread; None if the connection has none to offer."""
        ...
