"""The body of one post, fed as it comes, turned into rows and marks in a spool.

Runs in worker threads, one call at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from app.errors import DataChangedError
from app.http.decompression import Decoder
from core.errors import CoreError
from core.losses.analysis import Analysis
from core.losses.events import Completeness
from core.losses.position import Position

from .request import LossRequest, keep_rows
from .spool import Item, Mark, Rows, Spool, Table


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ends."""

    reason: str
    """``complete``, ``partial`` (more follows) or ``drain`` (the server stops)."""
    completeness: str
    """``declared``, ``undeclared`` or ``partial``."""
    mark: Mark | None
    """Where to go on; None when complete."""
    events: int
    """Complete events of the whole stream so far."""
    bytes: int
    """Bytes of the whole stream that were read."""
    reopened_check: str
    """``whole``, or ``since resume`` where earlier events are unknown."""


class _Made:
    """What an analysis has made; apart, so that it does not know the posting, nor keep it."""

    def __init__(self, request: LossRequest, last: Mark) -> None:
        self.last = last
        self.items: list[Item] = []
        self._ids = request.summary_ids

    def take_rows(self, report: str, rows: Rows) -> None:
        kept = rows.copy() if self._ids is None else keep_rows(rows, self._ids)
        if len(kept):
            self.items.append(Table(report, kept))

    def take_position(self, position: Position) -> None:
        self.last = Mark(position)
        self.items.append(self.last)


class Posting:
    """One stream, or one part of it, on its way into a spool.

    Args:
        request: what is wanted.
        decoder: undoes the body's compression.
        spool: receives rows and marks.
        after: where the stream goes on; None for its beginning.

    Raises:
        CoreError: ``after`` and the request do not fit each other.
    """

    def __init__(
        self, request: LossRequest, decoder: Decoder, spool: Spool, after: Mark | None = None
    ) -> None:
        self._request = request
        self._decoder = decoder
        self._spool = spool
        self._after = Mark(Position()) if after is None else after
        self._made = _Made(request, self._after)
        self._analysis = Analysis(
            request.reports,
            self._made.take_rows,
            policy=request.policy,
            quantiles=request.quantiles,
            event_rates=request.event_rates,
            expect_events=request.expect_events,
            expect_bytes=request.expect_bytes,
            at_event=self._made.take_position,
        )
        self._analysis.resume(self._after.position)
        self._unproven = self._after.tail
        self._proof = xxhash.xxh3_64()
        self._tail = xxhash.xxh3_64()
        self._fault: CoreError | None = None

    @property
    def last(self) -> Mark:
        """The last place whose rows, all of them, are in the spool."""
        return self._made.last

    @property
    def start(self) -> Mark:
        """Where this post began."""
        return self._after

    @property
    def proven(self) -> bool:
        """Whether the body began with the bytes the token stands for."""
        return self._unproven == 0

    @property
    def offset(self) -> int:
        """Bytes of the whole stream that were read."""
        return self._analysis.received

    # -- bytes in ----------------------------------------------------------------

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the body.

        Raises:
            CoreError: what is wrong with the stream.
            ServiceError: what is wrong with the body, or with the rows' storage.
        """
        for piece in self._decoder.decode(data):
            self._take(memoryview(piece))

    def _take(self, piece: memoryview) -> None:
        if self._unproven:
            self._prove(piece)
        if self._fault is None:
            try:
                self._analyse(piece)
            except CoreError as e:
                self._fault = e
        if self._fault is not None and self.proven:
            raise self._fault

    def _prove(self, piece: memoryview) -> None:
        """Compare with what was seen before the cut; it comes before any other fault."""
        part = piece[: self._unproven]
        self._proof.update(part)
        self._unproven -= len(part)
        if not self._unproven and self._proof.intdigest() != self._after.digest:
            raise DataChangedError(
                f"the {self._after.tail} bytes from offset {self._after.position.offset} are not"
                " those the token was made from",
                hint="Post the same stream from Thalweg-Offset on, or begin anew without after",
                offset=self._after.position.offset,
            )

    def _analyse(self, piece: memoryview) -> None:
        begin, before = self._analysis.offset, self._made.last
        rest = bytes(self._analysis.rest) if self._request.partial else b""
        try:
            self._analysis.receive(piece)
        finally:
            if self._request.partial:
                self._add_tail(rest, piece, begin, before)
            self._publish()

    def _add_tail(self, rest: bytes, piece: memoryview, begin: int, before: Mark) -> None:
        """Digest the unfinished event's bytes, which the next part must begin with.

        Args:
            rest: bytes of a block that the piece before cut off; ``begin`` is the
                offset of the first of them, or of the piece.
            piece: the bytes behind them.
            begin: see ``rest``.
            before: the last mark before this piece.
        """
        if self._made.last is not before:
            self._tail = xxhash.xxh3_64()
            skip = self._made.last.position.offset - begin
            self._tail.update(rest[skip:])
            piece = piece[max(skip - len(rest), 0) :]
        self._tail.update(piece)

    def _publish(self) -> None:
        items, self._made.items = self._made.items, []
        self._spool.put(items)

    # -- end ---------------------------------------------------------------------

    def finish(self) -> Ending:
        """The body ended.

        Raises:
            CoreError: the stream is not whole, or not what was declared.
            ServiceError: the body is not.
        """
        self._decoder.end()
        if not self.proven:
            raise DataChangedError(
                f"the body ends {self._unproven} bytes before what the token was made from",
                hint="A part begins with the unfinished event, from Thalweg-Offset on",
                offset=self.offset,
            )
        if self._request.partial:
            return self._suspend("partial")
        try:
            end = self._analysis.close()
        finally:
            self._publish()
        declared = end.completeness is Completeness.DECLARED
        events, size = end.events, end.bytes
        known = "declared" if declared else "undeclared"
        return Ending("complete", known, None, events, size, end.reopened_check)

    def suspend(self) -> Ending:
        """The server stops: end at the last place between two events."""
        return self._suspend("drain")

    def _suspend(self, reason: str) -> Ending:
        self._spool.drop_open()
        mark = self._made.last
        position = mark.position
        if self._request.partial and self.proven:
            mark = Mark(position, self.offset - position.offset, self._tail.intdigest())
            self._made.last = mark
        resumed = self._after.position.offset > 0 and not position.ascending
        check = "since resume" if resumed else "whole"
        return Ending(reason, "partial", mark, position.events, self.offset, check)
