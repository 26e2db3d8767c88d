"""Bytes of an item stream in, streams of summaries of every requested set out, in one pass.

The peer runs ``summarypy`` between the loss sampler (gul) or the financial module (il, ri, rl)
and everything that reports. Here it is a stage by itself, which takes and returns bytes::

    item stream --receive--> Summariser --sink--> set 1: header, blocks, blocks, ...
                                        --sink--> set 2: header, blocks, blocks, ...

The blocks are the peer's: of an event by ascending summary, with the exposure (the sum of
sidx -3), then sidx -5, -4, -1 and the samples that are not 0. Three things differ, on purpose.
Sums are exact before they are rounded to the width of the stream, so the order of items cannot
change a digit; sidx -4 counts the risks of a summary that have a block in the event, whatever
order they come in; and a summary without exposure and mean is left out only if it has no sample
with a loss either.

An event is written when the next one begins, or at the end of the stream: one that was cut or
is faulty is in no stream of summaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ... import errors
from ...arrays import Array, Floats, Octets, Rows
from ...budget import check_room, current
from .._kernels import layout
from .._kernels.layout import Words
from .._kernels.scan import close_event
from .._kernels.summary_blocks import OVERFLOW, WIDE, Written, summarise, write_summaries
from .._kernels.summary_sums import GROW_ROWS, PROGRESS, SPECIAL_COLUMNS, WORD_BITS, Sums
from ..buffer import as_octets
from ..events import Position, StreamEnd, StreamHeader
from ..format import LOSS_DTYPES, SOURCE_GUL, SOURCE_SUMMARY, SUMMARY_HEADER_SIZE, Kind, beyond
from ..header import header_bytes
from ..parameters import scratch_bytes
from ..policy import Policy
from ..receiver import StreamReceiver
from ..seen import SeenEvents
from .sets import SummarySets

INDEX = np.dtype([("summary_id", "<i4"), ("offset", "<i8")])
"""A row of the peer's ``.idx``: a summary, and the byte at which a block of it begins."""

_FIRST_ROWS_BYTES = 1 << 20
"""Memory of the rows to begin with, as far as the sets can fill it."""
_WRITTEN_BYTES = 1 << 18
"""Memory of the blocks of a set that wait to be handed on: within the second-level cache."""
_SHORTEST_BLOCK = 8
"""Words of the shortest block, about."""


def make_sums(sets: SummarySets, samples: int) -> Sums:
    """Sums of an event without a loss."""
    columns = SPECIAL_COLUMNS + samples
    capacity = max(1, min(sets.summaries, _FIRST_ROWS_BYTES // (8 * columns)))
    progress = np.zeros(1, PROGRESS)
    progress["chain"] = -1
    return Sums(
        rows=np.zeros((capacity, columns)),
        above=np.zeros(capacity, np.int32),
        risks=np.zeros(capacity, np.int32),
        bounds=np.zeros((capacity, 2)),
        slots=np.full(sets.summaries, -1, np.int32),
        touched=np.zeros(-(-sets.summaries // WORD_BITS), np.int64),
        stamps=np.zeros(sets.pair_count, np.int64),
        values=np.zeros(columns),
        extremes=np.zeros(2),
        columns=np.arange(columns, dtype=np.int32),
        errors=np.zeros((2, columns)),
        progress=progress,
    )


def grow_sums(sums: Sums, capacity: int) -> Sums:
    """The same sums with room for so many rows."""
    used = int(sums.progress["used"][0])

    def grown(array: Array) -> Array:
        target = np.empty((capacity, *array.shape[1:]), array.dtype)
        target[:used] = array[:used]
        return target

    names = ("rows", "above", "risks", "bounds")
    return sums._replace(**{name: grown(getattr(sums, name)) for name in names})


def collapse(sums: Sums, row: int) -> None:
    """Add up a chain of any length exactly, into its first row."""
    chain = [row]
    while (above := int(sums.above[chain[-1]])) >= 0:
        chain.append(above)
    sums.rows[row] = [_sum(column) for column in sums.rows[chain].T]
    sums.above[row] = -1


def _sum(column: Floats) -> float:
    # What is infinite has overflown already, and the errors with it are nothing.
    return math.fsum(column) if np.isfinite(column[0]) else float(column[0])


def make_written(sets: int, samples: int, float_width: int, least: int = 0) -> Written:
    """Room for blocks, with ``least`` words at least for each set."""
    capacity = max(_WRITTEN_BYTES // 4, least)
    blocks = capacity // _SHORTEST_BLOCK
    losses = np.zeros(SPECIAL_COLUMNS + samples + 1, LOSS_DTYPES[float_width])
    return Written(
        words=np.zeros((sets, capacity), np.int32),
        ends=np.zeros(sets, np.int64),
        blocks=np.zeros(sets, np.int64),
        starts=np.zeros((sets, blocks), np.int64),
        ids=np.zeros((sets, blocks), np.int32),
        losses=losses,
        bits=losses.view(f"i{float_width}"),
    )


def grow_written(written: Written, needed: int) -> Written:
    """The same blocks with at least twice as much room, and ``needed`` words more."""
    sets, capacity = written.words.shape
    grown = make_written(sets, 0, written.losses.itemsize, 2 * capacity + needed)
    grown.ends[:] = written.ends
    grown.blocks[:] = written.blocks
    for index in range(sets):
        end, blocks = int(written.ends[index]), int(written.blocks[index])
        grown.words[index, :end] = written.words[index, :end]
        grown.starts[index, :blocks] = written.starts[index, :blocks]
        grown.ids[index, :blocks] = written.ids[index, :blocks]
    return grown._replace(losses=written.losses, bits=written.bits)


def clear_written(written: Written) -> None:
    """Forget the blocks."""
    written.ends[:] = 0
    written.blocks[:] = 0


StreamSink = Callable[[int, Octets], None]
"""Takes (set id, the next bytes of its stream); they are valid only during the call."""
IndexSink = Callable[[int, Rows], None]
"""Takes (set id, rows of :data:`INDEX`); the rows are valid only during the call."""


class SetStreams:
    """The streams of some sets: a header each, then blocks as they are written.

    Args:
        set_ids: the sets.
        sink: receives the streams.
        index: receives where in the streams each block begins, before the blocks.
    """

    def __init__(
        self, set_ids: Sequence[int], sink: StreamSink, index: IndexSink | None = None
    ) -> None:
        self._set_ids = set_ids
        self._sink = sink
        self._index = index
        self._offset = np.zeros(len(set_ids), np.int64)
        self.begun = False
        """Whether headers were handed on."""

    def begin(self, header: Callable[[int], StreamHeader]) -> None:
        """Hand on the header of each set."""
        self.begun = True
        self._offset[:] = SUMMARY_HEADER_SIZE
        for set_id in self._set_ids:
            self._sink(set_id, as_octets(header_bytes(header(set_id))))

    def add(self, written: Written) -> None:
        """Hand on blocks."""
        for number, set_id in enumerate(self._set_ids):
            octets: Octets = written.words[number, : written.ends[number]].view(np.uint8)
            if not len(octets):
                continue
            if self._index is not None:
                blocks = int(written.blocks[number])
                rows = np.zeros(blocks, INDEX)
                rows["summary_id"] = written.ids[number, :blocks]
                rows["offset"] = 4 * written.starts[number, :blocks] + self._offset[number]
                self._index(set_id, rows)
            self._offset[number] += len(octets)
            self._sink(set_id, octets)


MAX_EVENT_BYTES = 1 << 31
"""Default bound on the memory of the sums of one event."""

_OF_COVERAGES = 2


class Summariser(StreamReceiver):
    """Adds the items of one stream up into the summaries of several sets.

    Feed pieces of any size to :meth:`receive`, and :meth:`close` it when the stream has ended.

    Args:
        sets: the requested sets.
        sink: receives the streams, headers first; see :data:`StreamSink`. An exception it
            raises passes through, and the summariser cannot be used any more.
        policy: what to accept; ``float_width`` is that of the summaries, too.
        zeros: whether to write samples without a loss, and summaries without any, as the
            peer's option ``-z``.
        name: what errors call the stream.
        seen: shared among the partitions of one run, so that an event which is in two of them
            is noticed.
        index: receives where each block begins; see :data:`IndexSink`.
        expect_events: number of events the stream is declared to have.
        expect_bytes: number of bytes the stream is declared to have.
        max_event_bytes: largest memory for the sums of one event.
    """

    noun = "summariser"

    def __init__(  # noqa: PLR0913 - all optional, each documented
        self,
        sets: SummarySets,
        sink: StreamSink,
        *,
        policy: Policy | None = None,
        zeros: bool = False,
        name: str | None = None,
        seen: SeenEvents | None = None,
        index: IndexSink | None = None,
        expect_events: int | None = None,
        expect_bytes: int | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        super().__init__(policy, name, seen, expect_events, expect_bytes)
        self._sets = sets
        self._streams = SetStreams(sets.set_ids, sink, index)
        self._zeros = int(zeros)
        self._max_event_bytes = max_event_bytes
        self._sums: Sums
        self._written: Written
        self._held = 0

    # -- what is known -----------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with the rows of an event that touches every summary."""
        return self._scanner.nbytes + self._held

    def _rows_bytes(self) -> int:
        """Bytes of the rows of an event that touches every summary, as many as it may have."""
        columns = SPECIAL_COLUMNS + self._scanner.known_header.len_sample
        return min(8 * columns * self._sets.summaries, self._max_event_bytes)

    def _count(self) -> None:
        arrays = (*self._sums[1:], *self._written)
        held = sum(array.nbytes for array in arrays if array.base is None)
        self._held = held + max(self._sums.rows.nbytes, self._rows_bytes())

    def set_header(self, set_id: int) -> StreamHeader:
        """The header of the stream of a set, once that of the item stream is known."""
        header = self._scanner.known_header
        return replace(
            header, kind=Kind.SUMMARY, aggregation=1, source=SOURCE_SUMMARY, summary_set=set_id
        )

    # -- end ---------------------------------------------------------------------

    def close(self) -> StreamEnd:
        """The item stream has ended; its last event goes to the sink.

        Raises:
            TruncatedError: it ended inside its header or a block.
            IncompleteError: it has fewer events or bytes than declared.
            StreamError: its last, unfinished block is wrong in itself.
        """
        with self._failing():
            end = self._certified(self._finish())
            self._close_event()
            self._flush()
            self._end = end
        return end

    def _close_event(self) -> None:
        if self.open_event:
            self._repeat(self._write)
            close_event(self._scanner.state)

    def resume(self, position: Position) -> None:
        """Continue from a position of an earlier summariser; before any byte is received.

        The next byte received is that at ``position.offset``. Streams go on without headers,
        and their index with the offsets of blocks in what is written from here on.

        Raises:
            StateError: it does not fit the policy, or bytes were received.
        """
        self._check_fresh("position")
        self._scanner.resume(position)
        if self.header is not None:
            self._make_room()

    # -- the pass ----------------------------------------------------------------

    def _begin(self, header: StreamHeader) -> None:
        self._check_kind(header)
        self._make_room()
        self._streams.begin(self.set_header)

    def _check_kind(self, header: StreamHeader) -> None:
        source = self._scanner.name
        if header.kind is Kind.SUMMARY:
            raise errors.UnsupportedStreamError(
                "this is a stream of summaries already",
                offset=0,
                hint="Leave the summary xref out, or send a stream of items",
                source=source,
            )
        if header.aggregation == _OF_COVERAGES:
            raise errors.UnsupportedStreamError(
                "this is a stream of coverages, but the summary xref is of items",
                offset=0,
                hint="Send the stream of items",
                source=source,
            )
        if header.source == SOURCE_GUL and self._sets.id_column == "output":
            raise errors.UnsupportedStreamError(
                "this is a gul stream, but the summary xref is of outputs",
                offset=0,
                hint="Use gulsummaryxref, or send the stream of the financial module",
                source=source,
            )

    def _make_room(self) -> None:
        header = self._scanner.known_header
        samples, width = header.len_sample, header.float_width
        # Of sums without rows, about.
        nbytes = (SPECIAL_COLUMNS + samples) * (28 + width)
        nbytes += 4 * self._sets.summaries + 8 * self._sets.pair_count
        # Who reads the streams that are written unpacks blocks as large.
        of_set = _WRITTEN_BYTES + 3 * (_WRITTEN_BYTES // _SHORTEST_BLOCK)
        nbytes += len(self._sets.set_ids) * (of_set + scratch_bytes(samples, width))
        check_room("summaries", self._scanner.nbytes + nbytes + self._rows_bytes())
        self._sums = make_sums(self._sets, samples)
        self._make_written(0)

    def _make_written(self, least: int) -> None:
        header = self._scanner.known_header
        sets = len(self._sets.set_ids)
        self._written = make_written(sets, header.len_sample, header.float_width, least)
        self._count()

    def _run(self, words: Words, stop: int, max_events: int) -> int:
        s = self._scanner

        def step() -> int:
            stream = (words, stop, s.rules, s.state, s.scratch, s.seen)
            sums = (self._sets.places, self._sums, self._written)
            return summarise(*stream, *sums, self._zeros, max_events)

        return self._repeat(step)

    def _write(self) -> int:
        s = self._scanner
        places = self._sets.places
        return write_summaries(s.rules, s.state, places, self._sums, self._written, self._zeros)

    def _repeat(self, step: Callable[[], int]) -> int:
        """Run a kernel until it asks for what only its caller can give it."""
        while True:
            status = step()
            progress = self._sums.progress[0]
            if status == layout.FULL:
                self._make_space(int(progress["needed"]))
            elif status == GROW_ROWS:
                self._grow()
            elif status == WIDE:
                collapse(self._sums, int(progress["row"]))
            elif status == OVERFLOW:
                raise self._overflow(int(progress["summary"]))
            else:
                return status

    def _make_space(self, needed: int) -> None:
        """Make room for ``needed`` more words in each stream."""
        current().check("summaries")
        self._flush()
        if needed > self._written.words.shape[1]:
            self._make_written(2 * needed)

    def _grow(self) -> None:
        capacity, columns = self._sums.rows.shape
        most = self._max_event_bytes // (8 * columns)
        if capacity >= most:
            raise errors.LimitError(
                f"the sums of the event take more than {self._max_event_bytes} bytes",
                limit="event",
                allowed=self._max_event_bytes,
                offset=self._scanner.offset,
                event=self.open_event,
                hint=f"It touches more than {capacity} summaries, of {columns} columns each",
                source=self._scanner.name,
            )
        grown = min(2 * capacity, most)
        if capacity < self._sets.summaries:
            # Only what errors of rounding need is beyond a row for each.
            grown = min(grown, self._sets.summaries)
        held = self._sums.rows.nbytes
        # The rows that all summaries need are counted already, but not those that are copied.
        beyond = max(8 * columns * grown - max(held, self._rows_bytes()), 0)
        check_room("summaries", held + beyond)
        self._sums = grow_sums(self._sums, grown)
        self._count()

    def _overflow(self, number: int) -> errors.LimitError:
        set_id, summary = self._sets.summary(number)
        subject = f"the losses of summary {summary} of set {set_id} add up to"
        place = {"event": self.open_event, "source": self._scanner.name}
        return beyond(subject, self._scanner.policy.float_width, **place)

    def _flush(self) -> None:
        """Hand on what has been written."""
        if self.header is not None:
            self._streams.add(self._written)
            clear_written(self._written)
