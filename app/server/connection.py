"""A connection as its request bodies and answers see it.

The protocol makes bodies and cycles, and both call back: these are the calls.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from .limits import ServerLimits


class Connection(Protocol):
    """What bodies and answers need of the protocol that owns them."""

    loop: asyncio.AbstractEventLoop
    flow: FlowControl

    @property
    def limits(self) -> ServerLimits:
        """Limits of time and size."""

    def read_body(self, reader: asyncio.BufferedProtocol) -> None:
        """Let the transport write into a body."""

    def body_over(self, rest: bytes) -> None:
        """Take note that a body was read to its end; ``rest`` came after it."""

    def write(self, *pieces: bytes | memoryview) -> None:
        """Send bytes, which must not change until they are sent."""

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer in place of the application, and leave."""

    def break_off(self, *, hard: bool) -> None:
        """End the connection in the middle of an answer."""

    def eof_received(self) -> None:
        """Take note that the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection is gone."""

    def pause_writing(self) -> None:
        """Take note that the answer is not taken as fast as it is written."""

    def resume_writing(self) -> None:
        """Take note that it is again."""
