"""Whether a connection reads, and whether the application may write."""

from __future__ import annotations

import asyncio

from .flag import Flag


class Flow:
    """Pauses reading from a transport, and those who write to it.

    Args:
        transport: the transport.

    Attributes:
        read_paused: whether the transport reads nothing.
        write_paused: whether its buffer is full.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._writable = Flag()
        self._writable.set()

    async def drain(self) -> None:
        """Wait until there is room in the buffer of the transport."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Read nothing more from the socket."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the buffer of the transport is full."""
        if not self.write_paused:
            self.write_paused = True
            self._writable.clear()

    def resume_writing(self) -> None:
        """Note that there is room again, or that nobody will need it."""
        if self.write_paused:
            self.write_paused = False
            self._writable.set()
