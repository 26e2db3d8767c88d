"""Rows of the streams of a run, read while they are uploaded or at any time later.

Rows are not stored: they follow from the stored bytes, which are parsed again for each reader::

    streams   |1 ......... complete|   |2 ......... durable|.. to come ..
                    ^ token                          ^ the reader waits (follow)
    rows            +---------------->   +---------->

The streams come in the order of their partitions, each to its end. A partition that does not
exist yet is waited for while the run takes streams; after that, there are no others. So every
reader gets the same rows in the same order, whenever it reads, and a token says which are next.

Rows go out once their event is known to be complete, with the token after them. So a reader that
is cut off repeats nothing and misses nothing. A digest of the streams whose rows were given is
kept, in tokens as well: rows go on, and end well, only while these are the streams of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from app.errors import DataChangedError, NotFoundError, ServiceError
from app.losses.encoding import RowEncoder
from app.losses.passes import Pass, make_pass
from app.losses.request import LossRequest
from app.losses.rows import CHUNK, Chunk, encode_item
from app.losses.spool import Item, Mark, Table
from app.losses.sums_room import Followed
from app.run_errors import RunFailedError, UploadFailedError
from app.state.blobs import BlobMissingError
from app.streams.frames import Buffers
from core.arrays import Rows
from core.budget import current
from core.errors import CoreError
from core.losses.events import Position

from ..records import RunRecord, StreamRecord
from ..results.segments import stream_header
from ..streams import Streams
from .tokens import ALONE, NONE_PASSED, RowMark, RowPlace, fingerprint_of, pass_stream, place_of

READ = 1 << 20
"""Bytes of a stream that are parsed at a time."""
_LOOKS = 64
"""Partitions at each of which those before are looked at again; later, at every so many."""
_OPEN_BYTES = 64 << 20
"""Bytes of rows of an unfinished event that wait for its end; more go out before."""


class _Collector:
    """Holds rows back until the mark after them.

    Args:
        request: what is read.
        record: the stream.
        passed: digest of the streams before.
        ready: takes what may be sent.
    """

    def __init__(
        self, request: LossRequest, record: StreamRecord, passed: int, ready: list[Item]
    ) -> None:
        self._selection = request.selection
        self.record = record
        """A version that has all bytes received."""
        self._passed = passed
        self.events = 0
        """Complete events up to the last mark, since the beginning of the stream."""
        self._ready = ready
        self._open: list[Item] = []
        self._open_bytes = 0

    def take_rows(self, set_id: int | None, report: str, rows: Rows) -> None:
        selected = self._selection(rows)
        if len(selected):
            current().hold("rows", selected.nbytes)
            copied = np.frombuffer(selected.tobytes(), selected.dtype)
            self._open.append(Table(report, copied, set_id))
            self._open_bytes += copied.nbytes
        if self._open_bytes > _OPEN_BYTES:
            self._release()

    def take_position(self, position: Position, settled: bool) -> None:
        if settled:
            self._release()
            self.events = position.events
            self._ready.append(_mark(self.record, position, self._passed))

    def _release(self) -> None:
        self._ready += self._open
        self._open.clear()
        self._open_bytes = 0


def _mark(stream: StreamRecord, position: Position, passed: int) -> RowMark:
    origin = {"stream": stream.id, "partition": stream.partition}
    return RowMark(position, origin=origin, place=place_of(stream, position, passed))


def _changed(fault: str) -> DataChangedError:
    return DataChangedError(fault, hint="Read the rows from the beginning, without after")


@dataclass(slots=True)
class _Reading:
    """A stream that is being read.

    Attributes:
        collector: takes its rows; has the version whose bytes are known.
        stream_pass: parses it.
        start: where reading began.
        at: next byte to read.
    """

    collector: _Collector
    stream_pass: Pass
    start: Position
    at: int

    @property
    def record(self) -> StreamRecord:
        """The version whose bytes are known."""
        return self.collector.record


class RowReader:
    """Reads the rows of one report, in threads, one call at a time.

    Args:
        streams: the streams of all runs.
        run: the run.
        request: one report of events or periods.
        place: where to begin; None for the beginning.
        stream: id of the only stream to read; None for all.
        follow: whether to wait for what is still to come.

    Raises:
        DataChangedError: the stream of the place, or one before it, is another by now.
        NotFoundError: the run has no such stream.
    """

    def __init__(  # noqa: PLR0913 - what is read
        self,
        streams: Streams,
        run: RunRecord,
        request: LossRequest,
        place: RowPlace | None,
        stream: str | None,
        *,
        follow: bool,
    ) -> None:
        self._runs = streams.runs
        self._streams = streams
        self._run = run
        self._request = request
        self._only = stream
        self._follow = follow
        self._reading: _Reading | None = None
        self._partition = 0
        self._passed = NONE_PASSED if stream is None else ALONE
        self._ready: list[Item] = []
        self._failure: CoreError | ServiceError | None = None
        self._memory = Followed()
        self.encoder: RowEncoder
        """Encodes the rows; set before the first step."""
        self._events = 0
        self.bytes = 0
        """Bytes read so far."""
        self.mark: Mark | None = None
        """The last mark that was encoded, or the place to begin at."""
        self.reason: str | None = None
        """Why the rows end; None while there may be more."""
        if stream is not None:
            streams.get(run, stream)
        if place is not None:
            self._resume(place)

    @property
    def ended(self) -> bool:
        """Whether there are no more rows."""
        return self.reason is not None

    @property
    def events(self) -> int:
        """Complete events read so far."""
        reading = self._reading
        if reading is None:
            return self._events
        return self._events + reading.collector.events - reading.start.events

    def _resume(self, place: RowPlace) -> None:
        record = self._streams.find(self._run, place.partition)
        if self._only is None:
            self._passed = self._digest(place.partition)
            if place.passed not in {None, ALONE, self._passed}:
                raise _changed(
                    f"a partition before {place.partition} was deleted or uploaded again since"
                )
        if not place.position.offset and self._only is None:
            # No row of the stream was given, so it may be another by now, or none yet.
            self._partition = place.partition - 1
            known = record or StreamRecord("", "", "", place.partition, 0.0)
            self.mark = _mark(known, Position(), self._passed)
            return
        if record is None or not place.fits(record):
            raise _changed(f"partition {place.partition} was deleted or uploaded again since")
        if self._only not in {None, record.id}:
            raise DataChangedError(
                "the token is of another stream of the run", hint="Name that stream, or none"
            )
        self._open(record, place)
        (mark,) = self._ready
        assert isinstance(mark, Mark)  # noqa: S101 - that of the place
        self.mark = mark
        self._ready.clear()

    def _open(self, record: StreamRecord, place: RowPlace | None = None) -> None:
        position = Position()
        if place is not None and place.position.offset:
            header = stream_header(self._streams.stored(record), self._request.policy)
            if place.position.offset > record.offset or header is None:
                raise DataChangedError("the stream has fewer bytes than the token says")
            position = replace(place.position, header=header)
        collector = _Collector(self._request, record, self._passed, self._ready)
        parsing = make_pass(self._request, collector.take_rows, collector.take_position, None)
        parsing.resume(position)
        self._partition = record.partition
        self._reading = _Reading(collector, parsing, position, position.offset)
        collector.take_position(position, True)

    # -- in threads --------------------------------------------------------------

    def step(self) -> Chunk | None:
        """Encode the next rows; None if there are none at present, or no more (``reason``).

        Raises:
            CoreError, ServiceError: a stream is faulty; all rows before it were encoded.
        """
        buffers: Buffers = []
        size = 0
        more = True
        while more and size < CHUNK and self._failure is None:
            current().check("rows")
            try:
                more = self._advance() if self._reading is None else self._read(self._reading)
            except (CoreError, ServiceError) as e:
                self._failure = e
            for encoded in map(self._encode, self._ready):
                size += sum(map(len, encoded))
                buffers += encoded
            self._ready.clear()
        if size:
            return Chunk(buffers, size, self.mark)
        if self._failure is not None:
            raise self._failure
        return None

    def _encode(self, item: Item) -> Buffers:
        if isinstance(item, Mark):
            self.mark = item
        return encode_item(self.encoder, item)

    def _advance(self) -> bool:
        """Open the next stream; return whether there is one at present."""
        run = self._run = self._runs.again(self._run)
        if self._only is not None:
            if self._partition:
                self.reason = "complete"
                return False
            self._open(self._streams.get(run, self._only))
            return True
        record = self._streams.find(run, self._partition + 1)
        if record is None and not run.is_open:
            later = [number for number in run.streams if number > self._partition]
            if not later:
                # Only the whole run shows some faults, such as an event in two streams.
                if not self._follow or run.state == "done":
                    self._check_passed()
                    self.reason = "sealed"
                return False
            record = self._streams.find(run, min(later))
        if record is not None:
            # At each of thousands, to look at all before takes longer than to read them.
            if self._partition <= _LOOKS or not self._partition % _LOOKS:
                self._check_passed()
            self._open(record)
            return True
        if not self._follow:
            self.reason = "partial"
        elif run.state == "failed":
            raise RunFailedError(
                f"the run could not be computed: {(run.problem or {}).get('detail')}",
                hint="Upload the stream at fault again, and seal the run again",
                problem=run.problem,
            )
        return False

    def _digest(self, partition: int) -> int:
        """Return the digest of the streams that there are before a partition."""
        return reduce(pass_stream, self._streams.before(self._run, partition), NONE_PASSED)

    def _check_passed(self) -> None:
        """Check that the streams whose rows were given are those of the run.

        Raises:
            DataChangedError: they are not.
        """
        if self._partition and self._digest(self._partition + 1) != self._passed:
            raise _changed("a partition was deleted or uploaded again after its rows were read")

    def _read(self, reading: _Reading) -> bool:
        """Parse the next bytes of a stream; return whether there may be more at once."""
        if reading.at == reading.record.offset and not self._refresh(reading):
            return self._reading is None or self._leave(reading)
        stop = min(reading.at + READ, reading.record.offset)
        try:
            data = self._streams.stored(reading.record).read(reading.at, stop)
        except BlobMissingError:
            self._look_again(reading)
            raise
        reading.at += len(data)
        self.bytes += len(data)
        current().renew()
        reading.stream_pass.receive(memoryview(data))
        self._memory.follow(reading.stream_pass.nbytes)
        return True

    def _refresh(self, reading: _Reading) -> bool:
        """Look at a stream again; return whether it has more bytes."""
        if reading.record.complete or reading.record.fault is not None:
            return False
        try:
            self._look_again(reading)
        except DataChangedError:
            if reading.at or self._only is not None:
                raise
            # It had no bytes, and may be created anew.
            self._partition = reading.record.partition - 1
            self._reading = None
            return False
        return reading.record.offset > reading.at

    def _look_again(self, reading: _Reading) -> None:
        """Take the present version of the stream that is read.

        Raises:
            DataChangedError: it was deleted, or is not the one whose rows were given.
        """
        self._run = self._runs.again(self._run)
        known, stop = reading.record, reading.at
        try:
            record = self._streams.get(self._run, known.id)
        except NotFoundError as e:
            raise _changed(
                f"partition {known.partition} was deleted while its rows were read"
            ) from e
        if fingerprint_of(record, stop) != fingerprint_of(known, stop):
            raise _changed(
                f"partition {known.partition} has other bytes since a backup was restored"
            )
        reading.collector.record = record

    def _leave(self, reading: _Reading) -> bool:
        """Leave a stream that has no more bytes; return whether it has ended."""
        record = reading.record
        if not record.complete and record.fault is None:
            if not self._follow:
                self.reason = "partial"
            return False
        if reading.at > reading.start.offset:
            end = reading.stream_pass.close()
            header = reading.stream_pass.stream.header
            reading.collector.take_position(Position(header, reading.at, 0, True, end.events), True)
        self._events, self._reading = self.events, None
        if self._only is None:
            self._passed = pass_stream(self._passed, record)
        if record.fault is not None:
            raise UploadFailedError(
                f"partition {record.partition} is faulty: {record.fault.get('detail')}",
                hint="Delete the stream and upload it again",
                stream=record.id,
                partition=record.partition,
                fault=dict(record.fault),
            )
        return True
