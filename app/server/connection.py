"""The interface of a connection to its request bodies and answers.

The protocol creates bodies and cycles, and they call back. This module holds the calls, so
that none of the three imports another in a circle.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from .flow import Flow
from .limits import ServerLimits
from .writing import WriteWatch

PEER_EXTENSION = "thalweg.peer"
"""Address of the other end of the connection, which proxy headers do not change."""


class Connection(Protocol):
    """What bodies and cycles need of the protocol that owns them."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: Flow
    watch: WriteWatch | None

    @property
    def limits(self) -> ServerLimits:
        """Limits of time and size."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""

    def read_body(self, reader: asyncio.BufferedProtocol) -> None:
        """Make a body the protocol of the transport, and read from the socket."""

    def duplicate_socket(self) -> socket.socket | None:
        """Return a second handle of the socket, to be closed; None if only the loop may read."""

    def body_complete(self, remainder: bytes) -> None:
        """Take the transport back at the end of a body; ``remainder`` arrived after it."""

    def write(self, *pieces: bytes | memoryview) -> None:
        """Send bytes, which must not change until they are sent."""

    def on_response_complete(self) -> None:
        """Continue with the next request, or close."""

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer with a problem in place of the application, then close."""

    def abort_answer(self, *, reset: bool) -> None:
        """End the connection in the middle of an answer, by a TCP reset if asked to."""

    def eof_received(self) -> None:
        """Handle that the client has finished sending."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the connection is closed."""

    def pause_writing(self) -> None:
        """Handle that the transport's write buffer is full."""

    def resume_writing(self) -> None:
        """Handle that the transport's write buffer has drained."""
