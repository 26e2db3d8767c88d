"""Plain bytes of a known length, without frames or tokens; a client resumes with Range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.errors import Problem, ServiceError
from app.http.bodies import Threads
from app.http.negotiation import Headers, not_modified, requested_range
from app.server.passing import Source
from app.server.responses import Exchange
from core.errors import CoreError

from .ahead import Ahead
from .driver import Encoder, Progress, Stream
from .frames import Buffers
from .sender import Head


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive bytes of the content."""

    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return len(self.data)


class PlainBytes(Encoder[Piece]):
    """Encodes bytes as they are; Content-Length shows whether the answer is whole."""

    def item(self, item: Piece) -> Buffers:
        """Return the bytes."""
        return [item.data]

    def end(self, _reason: str, _progress: Progress) -> Buffers:
        """Return nothing."""
        return []

    def fail(self, _problem: Problem) -> None:
        """Return None: a failure aborts the answer."""


class Prepared(Source, Protocol):
    """A source whose first bytes can be got at beforehand."""

    def prepare(self) -> None:
        """Get at the first bytes.

        Raises:
            CoreError, ServiceError: they cannot be had.
        """


@dataclass(frozen=True, slots=True)
class Whole:
    """Content of a known length, of which clients may request ranges.

    Args:
        size: length in bytes.
        etag: strong entity tag.
        headers: headers of every answer, whole or partial.
        pieces: returns the bytes from start to stop, in order; runs in threads.
        source: returns the same bytes to be passed on, or None if that does not pay; likewise.
    """

    size: int
    etag: str
    headers: Mapping[str, str]
    pieces: Callable[[int, int], Iterator[Piece]]
    source: Callable[[int, int], Prepared | None] | None = None


async def send_range(
    exchange: Exchange, whole: Whole, requested: Headers, threads: Threads, *, body: bool
) -> None:
    """Answer with the requested range, or with everything.

    Args:
        exchange: the request being answered.
        whole: the content.
        requested: headers of the request.
        threads: read the pieces.
        body: False to send headers only, as to HEAD.

    Raises:
        RangeError: the range lies outside the content.
        CoreError, ServiceError: the first bytes cannot be read. A later failure aborts
            the answer.
    """
    headers = {"Accept-Ranges": "bytes", "ETag": whole.etag, **whole.headers}
    if not_modified(requested, whole.etag):
        await exchange.start(304, headers)
        return
    span = requested_range(requested, whole.size, whole.etag, body=body)
    start, stop = span or (0, whole.size)
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{whole.size}"
    head = Head(headers, 200 if span is None else 206, stop - start)
    if not body:
        await exchange.start(head.status, headers, content_length=head.length)
        return
    if whole.source is not None:
        source = await threads.start(_prepared, whole.source, start, stop)
        if source is not None:
            await _pass_on(exchange, head, source, threads)
            return
    pieces = Ahead(whole.pieces(start, stop), threads.start)
    stream = Stream(pieces, PlainBytes(), head, threads, drain=None, heartbeat=None)
    await stream.send(exchange)


def _prepared(
    source: Callable[[int, int], Prepared | None], start: int, stop: int
) -> Prepared | None:
    found = source(start, stop)
    if found is not None:
        found.prepare()
    return found


async def _pass_on(exchange: Exchange, head: Head, source: Source, threads: Threads) -> None:
    """Send all bytes of a source; a failure aborts the answer."""
    await exchange.start(head.status, head.headers, content_length=head.length)
    try:
        await exchange.pass_on(source, threads.start)
    except (CoreError, ServiceError):
        exchange.abort()
