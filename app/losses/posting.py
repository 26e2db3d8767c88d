"""One post: from the bytes of its body to rows and marks in a spool.

The problem. A loss stream may be posted in parts, to a different server each time, and no
server stores anything in between. Rows can be answered for complete events only, and an
event is known to be complete only when the next one begins; so a part nearly always ends
inside an event. The token therefore points *back*, to the first byte of that event, and
the next part repeats the bytes after it:

    part 1   |header|  event 4  |  event 7  |  event 9 ..|
                                            ^<-- tail -->
                                            mark

    part 2                                  |  event 9 ......  |  event 12 ..|
                                             <- proof ->       ^<--- tail --->
                                                               mark

Client and server must agree on those bytes. If the client went on with another run of the
model, or from a wrong offset, the joined table would be a mixture that looks whole. The
first server has seen the tail, so the token of its mark carries the tail's length and
digest (xxh3-64). The second server digests as many bytes of its body, the *proof*, and
answers 412 if they differ.

The proof may come in many pieces, and its bytes are parsed before it is complete. Two
rules keep an unproven body harmless: rows may leave the spool only once the post is
``proven``; and a fault in the proof is held back until then, because the bytes of another
stream look faulty, and "data changed" is the answer that helps.

A part without a new event moves no mark: its tail is all of it. A post that is not
declared partial digests no tail; if draining stops it, the tail in its token is empty, and
the service relies on the client to resend the same stream.

All methods run in worker threads, one call at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xxhash

from app.errors import DataChangedError, DrainingError
from app.http.decompression import Decoder
from core.arrays import Rows
from core.budget import current
from core.errors import CoreError, WorkStoppedError
from core.losses.events import Completeness, Position
from core.losses.finishing import LedgerResources
from core.losses.format import ITEM_HEADER_SIZE

from .passes import make_pass
from .request import LossRequest
from .selection import Chosen
from .spool import Mark, Spool, Table
from .sums_room import Admission, Followed, StatedBound


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ends."""

    reason: str
    """``complete``, ``partial`` (more follows) or ``drain`` (the server stops)."""
    completeness: str
    """``declared``, ``undeclared`` or ``partial``."""
    mark: Mark | None
    """Where to resume; None when complete."""
    events: int
    """Number of complete events in the whole stream so far."""
    bytes: int
    """Number of bytes read of the whole stream so far."""
    reopened_check: str
    """``whole``, or ``since resume`` if events before the resume could reopen unnoticed."""
    events_without_occurrence: int | None = None
    """Number of complete events of this post without occurrence; None without occurrences."""
    events_only_in_occurrence: int | None = None
    """Number of events that occur and that the stream does not have; known once the whole stream
    has come in one post."""
    blocks_without_exposure: int = 0
    """Blocks of this post whose losses MELT or QELT lack."""
    chosen: Chosen | None = None
    """What selected the rows of this post; None if all are asked for."""
    longest_return_period: int | None = None
    """Years up to which the periods tell losses; None unless a longer return period is wanted."""
    rates: str | None = None
    """The input that event rates are from, where two have them."""
    bound: StatedBound | None = None
    """Bound of the sums of a whole run; None if there are none."""

    @property
    def remarks(self) -> dict[str, int | str]:
        """What is to be said of the rows, by name: END members, and headers after ``Thalweg-``."""
        numbers = {
            "events_without_occurrence": self.events_without_occurrence,
            "events_only_in_occurrence": self.events_only_in_occurrence,
            "blocks_without_exposure": self.blocks_without_exposure or None,
            "selected_rows": None if self.chosen is None else self.chosen.count,
            "longest_return_period": self.longest_return_period,
        }
        remarks = {name: number for name, number in numbers.items() if number is not None}
        return remarks | ({} if self.chosen is None else self.chosen.missing)


_STRETCH = 1 << 20
"""Bytes that are analysed between two checks of the budget; as many renew it."""

_LITTLE = 1 << 14
"""Bytes up to which a body is that of a slow client, for whom a long wait may follow."""


class _Collector:
    """Passes the output of an analysis to the spool.

    Separate from the posting, so that the analysis holds no reference to it: the cycle
    would keep megabytes alive until the garbage collector runs.
    """

    def __init__(self, request: LossRequest, spool: Spool, last: Mark) -> None:
        self.last = last
        self._spool = spool
        self.chosen = Chosen(request.selection) if request.selection else None
        self._resumes = not request.needs_whole_stream

    def take_rows(self, set_id: int | None, report: str, rows: Rows) -> None:
        current().check(report)
        selected = self.chosen(rows) if self.chosen else _copy(rows)
        if len(selected):
            # At once: a buffer of blocks may become gigabytes of quantiles.
            self._spool.put([Table(report, selected, set_id)])

    def take_position(self, position: Position, settled: bool) -> None:
        self.last = Mark(position)
        if self._resumes and settled:
            self._spool.put([self.last])


def _copy(rows: Rows) -> Rows:
    """Return a copy of contiguous rows; numpy's own copies field by field, in ten times as long."""
    return np.frombuffer(rows.tobytes(), rows.dtype)


class Posting:
    """The analysis of one stream, or of one part of it; see the module.

    Args:
        request: the requested analysis.
        decoder: undoes the body's compression.
        spool: receives rows and marks.
        after: the mark at which the body begins; None for the beginning of the stream.
        resources: what reports of whole runs may use.
        admission: refuses a stream whose sums may need too much, once its header has come.

    Raises:
        CoreError: ``after`` contradicts the request.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a post consists of
        self,
        request: LossRequest,
        decoder: Decoder,
        spool: Spool,
        after: Mark | None = None,
        resources: LedgerResources | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._request = request
        self._admission = admission
        self._bound: StatedBound | None = None
        self._decoder = decoder
        self._spool = spool
        self.start = Mark(Position()) if after is None else after
        """The mark at which this post began."""
        self._output = _Collector(request, spool, self.start)
        self._pass = make_pass(
            request, self._output.take_rows, self._output.take_position, resources
        )
        if not request.needs_whole_stream:
            self._pass.resume(self.start.position)
        self._unproven = self.start.tail
        self._proof = xxhash.xxh3_64()
        self._tail = xxhash.xxh3_64()
        self._fault: CoreError | None = None
        self._unpaid = 0
        self._memory = Followed()

    @property
    def last(self) -> Mark:
        """The last mark; the rows of all events before it are in the spool."""
        return self._output.last

    @property
    def proven(self) -> bool:
        """Whether the body has begun with the bytes that the token stands for."""
        return self._unproven == 0

    @property
    def offset(self) -> int:
        """Number of bytes read of the whole stream."""
        return self._pass.stream.received

    # -- bytes in ----------------------------------------------------------------

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the body.

        Raises:
            CoreError: the stream is faulty.
            ServiceError: the body is faulty, is not what the token stands for, or the
                rows cannot be stored.
        """
        self._unpaid += len(data)
        if self._unpaid >= _STRETCH:
            current().renew()
            self._unpaid = 0
        for piece in self._decoder.decode(data):
            view = memoryview(piece)
            while view:
                current().check("losses")
                # The header tells how large sums are: they are counted before they grow.
                waits = self._pass.stream.header is None and self._fault is None
                size = ITEM_HEADER_SIZE if waits else _STRETCH
                self._take(view[:size])
                view = view[size:]
        if max(len(data), self._unpaid) <= _LITTLE:
            self._pass.release()

    def _take(self, piece: memoryview) -> None:
        if self._unproven:
            self._prove(piece)
        if self._fault is None:
            try:
                self._analyse(piece)
            except WorkStoppedError:
                raise
            except CoreError as e:
                self._fault = e
        if self._fault is not None and self.proven:
            raise self._fault

    def _prove(self, piece: memoryview) -> None:
        """Digest the proof, and compare it with the token's digest once it is complete."""
        part = piece[: self._unproven]
        self._proof.update(part)
        self._unproven -= len(part)
        if not self._unproven and self._proof.intdigest() != self.start.digest:
            raise DataChangedError(
                f"the {self.start.tail} bytes from offset {self.start.position.offset} differ"
                " from those that the token was issued for",
                hint="Post the same stream from Thalweg-Offset on, or start over without after",
                offset=self.start.position.offset,
            )

    def _analyse(self, piece: memoryview) -> None:
        begin, before = self._pass.stream.offset, self._output.last
        rest = bytes(self._pass.stream.rest) if self._request.partial else b""
        try:
            self._pass.receive(piece)
        finally:
            if self._request.partial:
                self._add_tail(rest, piece, begin, before)
        self._memory.follow(self._pass.nbytes)
        if self._admission is not None and self._pass.stream.header is not None:
            self._bound = self._admission.admit(self._request, self._pass.stream.header)
            self._admission = None

    def _add_tail(self, rest: bytes, piece: memoryview, begin: int, before: Mark) -> None:
        """Digest the bytes of the unfinished event.

        Args:
            rest: bytes of an incomplete block, left over from earlier pieces.
            piece: the bytes after them.
            begin: offset in the stream of ``rest``, or of ``piece`` if that is empty.
            before: the last mark before this piece.
        """
        if self._output.last is not before:
            self._tail = xxhash.xxh3_64()
            skip = self._output.last.position.offset - begin
            self._tail.update(rest[skip:])
            piece = piece[max(skip - len(rest), 0) :]
        self._tail.update(piece)

    # -- end ---------------------------------------------------------------------

    def finish(self) -> Ending:
        """End the post after the last byte of its body.

        Raises:
            CoreError: the stream is truncated, or not as declared.
            ServiceError: the body is truncated, or shorter than the token's tail.
        """
        self._decoder.end()
        if not self.proven:
            raise DataChangedError(
                f"the body ends {self._unproven} bytes short of those that the token was"
                " issued for",
                hint="Begin each part at Thalweg-Offset, the first byte of the unfinished event",
                offset=self.offset,
            )
        if self._request.partial:
            return self._suspend("partial")
        end = self._pass.close()
        declared = end.completeness is Completeness.DECLARED
        occurrence = self._request.inputs.occurrence
        unused = None
        if occurrence is not None and self.start.position.offset == 0:
            unused = len(occurrence.events()) - self._pass.placed_events
        return Ending(
            "complete",
            "declared" if declared else "undeclared",
            None,
            end.events,
            end.bytes,
            end.reopened_check,
            events_without_occurrence=end.events_without_occurrence,
            events_only_in_occurrence=unused,
            blocks_without_exposure=end.blocks_without_exposure,
            chosen=self._output.chosen,
            longest_return_period=self._request.inputs.longest_return_period,
            rates=self._request.rates,
            bound=self._bound,
        )

    @property
    def summary_set(self) -> int | None:
        """Set of a summary stream, once its header has come, or the only one of an item stream."""
        if self._request.sets is not None:
            return self._request.sets.set_ids[0]
        header = self._pass.stream.header
        return None if header is None else header.summary_set

    def suspend(self) -> Ending:
        """End the post at its last mark, because the server stops.

        Raises:
            DrainingError: a report needs the whole stream, so there is no such mark.
        """
        if self._request.needs_whole_stream:
            raise DrainingError(
                "the server is shutting down and has not read the whole stream",
                hint="Post it again: another server will answer",
                retry_after=1,
            )
        return self._suspend("drain")

    def _suspend(self, reason: str) -> Ending:
        self._pass.suspend()
        self._spool.drop_open()
        mark = self._output.last
        position = mark.position
        if self._request.partial and self.proven:
            mark = Mark(position, self.offset - position.offset, self._tail.intdigest())
            self._output.last = mark
        resumed = self.start.position.offset > 0 and not position.ascending
        check = "since resume" if resumed else "whole"
        has_occurrence = self._request.inputs.occurrence is not None
        return Ending(
            reason,
            "partial",
            mark,
            position.events,
            self.offset,
            check,
            events_without_occurrence=self._pass.unplaced_events if has_occurrence else None,
            blocks_without_exposure=self._pass.unexposed,
            chosen=self._output.chosen,
            rates=self._request.rates,
        )
