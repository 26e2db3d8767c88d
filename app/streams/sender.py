"""Write the buffers of an answer: merge small ones, and compress if requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.http.bodies import Threads
from app.http.compression import Compressor, compressor
from app.server.responses import Exchange

from .frames import Buffers

TOGETHER = 64 << 10
"""Bytes of buffers to merge into one write, which costs as much as copying this many."""
CHUNK = 1 << 20
"""Bytes to collect per write when the client need not see them at once."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer."""

    headers: Mapping[str, str]
    status: int = 200
    length: int | None = None
    """Length of the uncompressed answer in bytes, None if unknown."""

    @classmethod
    def of_stream(
        cls, media_type: str, coding: str | None, headers: Mapping[str, str] | None = None
    ) -> Head:
        """Return the head of an answer that no cache stores and no proxy buffers.

        Args:
            media_type: Content-Type of the answer.
            coding: content coding of the answer, None for identity.
            headers: further headers, which take precedence.
        """
        defaults = {
            "Content-Type": media_type,
            "Cache-Control": "no-store",
            "Vary": "Accept-Encoding",
            "X-Accel-Buffering": "no",
        }
        if coding is not None:
            defaults["Content-Encoding"] = coding
        return cls(defaults | dict(headers or {}))


class Sender:
    """Sends one answer. The head goes out with the first bytes, or with ``begin``.

    Args:
        exchange: the request being answered.
        head: status and headers.
        threads: run the compressor.
        coding: content coding of the answer, None for identity.
        live: whether the client should get every buffer as soon as possible. If not, an
            answer that fits in one chunk is sent with its Content-Length.
    """

    def __init__(
        self, exchange: Exchange, head: Head, threads: Threads, coding: str | None, *, live: bool
    ) -> None:
        self._exchange = exchange
        self._head = head
        self._threads = threads
        self._compressor: Compressor | None = None if coding is None else compressor(coding)
        self._live = live
        self._waiting: Buffers = []
        self._size = 0

    async def begin(self, length: int | None = None) -> None:
        """Send the head unless it was sent before.

        Args:
            length: length of the whole answer as sent, if it has become known.
        """
        if self._exchange.started:
            return
        if length is None and self._compressor is None:
            length = self._head.length
        await self._exchange.start(self._head.status, self._head.headers, content_length=length)

    async def add(self, buffers: Buffers) -> None:
        """Send buffers, or hold small ones back for the next call."""
        self._waiting += buffers
        self._size += sum(map(len, buffers))
        if self._size >= (TOGETHER if self._live else CHUNK):
            await self._write()

    async def flush(self) -> None:
        """Send the buffers held back, if the answer is live."""
        if self._live and self._size:
            await self._write()

    async def _write(self) -> None:
        buffers, size = self._waiting, self._size
        self._waiting, self._size = [], 0
        await self.begin()
        if self._compressor is not None:
            data = await self._threads.start(_compress, self._compressor, buffers, self._live)
            await self._exchange.write(data)
        elif size < 2 * TOGETHER:
            await self._exchange.write(b"".join(buffers))
        else:
            for buffer in _merge(buffers):
                await self._exchange.write(buffer)

    async def finish(self, buffers: Buffers) -> None:
        """Send the last buffers and end the answer."""
        last = [*self._waiting, *buffers]
        if self._compressor is None:
            data = b"".join(last)
        else:
            data = await self._threads.start(_finish, self._compressor, last)
        if not self._exchange.started:
            await self.begin(None if self._live else len(data))
        await self._exchange.end(data)


def _merge(buffers: Buffers) -> Iterator[bytes | memoryview]:
    """Join neighbours that are small; large buffers pass as they are."""
    small: Buffers = []
    for buffer in buffers:
        if len(buffer) < TOGETHER:
            small.append(buffer)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield buffer
    if small:
        yield b"".join(small)


def _compress(compressor: Compressor, buffers: Buffers, flush: bool) -> bytes:
    return compressor.compress(b"".join(buffers), flush=flush)


def _finish(compressor: Compressor, buffers: Buffers) -> bytes:
    data = b"".join(buffers)
    # Even empty input would begin a compressed frame.
    return (compressor.compress(data, flush=False) if data else b"") + compressor.end()
