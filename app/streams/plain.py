"""Plain bytes of a known length: no frames and no tokens; a client resumes with Range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from app.errors import Problem
from app.http.ranges import Fields, not_modified, requested_range
from app.server.responses import Exchange

from .ahead import Ahead
from .driver import Stream
from .frames import Buffers
from .limits import Progress
from .sender import Head
from .threads import Threads


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the bytes, in order."""

    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """How many."""
        return len(self.data)


class PlainBytes:
    """Bytes as they are. Content-Length tells whether the answer is whole."""

    heavy = False
    finished = False

    def begin(self) -> Buffers:
        """Nothing comes before the first byte."""
        return []

    def item(self, item: Piece) -> Buffers:
        """The bytes."""
        return [item.data]

    def heartbeat(self) -> Buffers:
        """There is no room for one."""
        return []

    def end(self, _reason: str, _progress: Progress) -> Buffers:
        """Nothing comes after the last byte."""
        return []

    def fail(self, _problem: Problem) -> None:
        """A failure can only break the answer off."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Something of a known length that may be asked for in ranges.

    Args:
        size: bytes of it.
        etag: strong entity tag of its content.
        headers: of an answer with any part of it.
        pieces: give bytes start to stop, in order; run in threads.
    """

    size: int
    etag: str
    headers: Mapping[str, str]
    pieces: Callable[[int, int], Iterator[Piece]]


async def send_range(
    exchange: Exchange,
    whole: Whole,
    requested: Fields,
    threads: Threads,
    *,
    body: bool,
) -> None:
    """Answer with the range that a request asks for, or with everything.

    Args:
        exchange: the request.
        whole: what it is a request for.
        requested: headers of the request, names in any case.
        threads: read the pieces.
        body: whether the bytes themselves are asked for, not only the headers.

    Raises:
        RangeError: nothing of the range is there.
        CoreError, ServiceError: the first bytes cannot be read. A later failure breaks
            the answer off.
    """
    headers = {"Accept-Ranges": "bytes", "ETag": whole.etag, **whole.headers}
    if not_modified(requested, whole.etag):
        await exchange.start(304, headers)
        return
    span = requested_range(requested, whole.size, whole.etag)
    start, stop = span or (0, whole.size)
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{whole.size}"
    head = Head(headers, 200 if span is None else 206, stop - start)
    if not body:
        await exchange.start(head.status, headers, content_length=head.length)
        return
    pieces = Ahead(whole.pieces(start, stop), threads.start)
    stream = Stream(pieces, PlainBytes(), head, threads, drain=None, heartbeat=None)
    await stream.send(exchange)
