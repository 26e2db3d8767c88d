"""Events of several loss streams, read as one.

A model run deals its events out to partitions and writes a stream for each. A
:class:`PartitionReader` has a :class:`~core.losses.reader.LossReader` for every partition.
What the readers share is the check that no event comes in two streams; what the streams
must share is their header. Like the readers it is fed bytes and opens nothing;
:func:`read_streams` feeds it from files the caller opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from ..errors import OptionError
from .events import END, NEED_DATA, Event, Position, Signal, StreamEnd, StreamHeader
from .header import CommonHeader
from .merge import Order
from .policy import Policy
from .reader import MAX_EVENT_BYTES, LossReader
from .seen import SeenEvents

_PIECE = 1 << 18


class PartitionEvent(NamedTuple):
    """An event and the partition it came in."""

    partition: int
    """Index of the partition."""
    event: Event


class PartitionReader:
    """Reads the loss streams of several partitions, fed in any interleaving.

    Use it like a :class:`LossReader`: feed pieces to :meth:`receive`, take events with
    :meth:`next_event`, and :meth:`close` each partition when its stream has ended.

    Args:
        names: of the partitions, for errors.
        policy: what to accept.
        order: ``received`` returns events as they become whole, from each partition in
            turn; ``event`` returns them by ascending event id, which every partition must
            ascend in by itself.
        max_event_bytes: largest memory for the blocks of one event.

    Raises:
        OptionError: there are no partitions.
    """

    def __init__(
        self,
        names: Sequence[str],
        policy: Policy | None = None,
        *,
        order: Order = "received",
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        if not names:
            raise OptionError("at least one partition is required")
        policy = policy or Policy()
        if order == "event":
            policy = replace(policy, event_order="ascending")
        seen = SeenEvents()
        self._order = order
        self._readers = [
            LossReader(policy, name=name, max_event_bytes=max_event_bytes, seen=seen)
            for name in names
        ]
        self._header = CommonHeader(names)
        self._heads: list[Event | None] = [None for _ in names]
        self._before_heads = [reader.position for reader in self._readers]
        self._turn = 0

    @property
    def header(self) -> StreamHeader | None:
        """The header of all streams, once that of one is known."""
        return self._header.known

    @property
    def ends(self) -> list[StreamEnd | None]:
        """How each stream ended; None while it has not."""
        return [reader.end for reader in self._readers]

    @property
    def waiting(self) -> tuple[int, ...]:
        """Partitions whose bytes the next event waits for, after ``NEED_DATA``."""
        return tuple(
            index
            for index, reader in enumerate(self._readers)
            if reader.end is None and self._heads[index] is None
        )

    @property
    def positions(self) -> tuple[Position, ...]:
        """Where each partition's first event that was not returned begins."""
        return tuple(
            reader.position if head is None else before
            for reader, head, before in zip(
                self._readers, self._heads, self._before_heads, strict=True
            )
        )

    def resume(self, positions: Sequence[Position]) -> None:
        """Continue from :attr:`positions` of an earlier reader, before any byte is received.

        Each partition is then fed from the byte ``offset`` of its position on. Events that
        come again are noticed from there on.

        Raises:
            OptionError: not as many positions as partitions.
            StateError: a position does not fit the policy, or bytes were received.
            MismatchError: the streams have different headers.
        """
        if len(positions) != len(self._readers):
            raise OptionError(f"{len(positions)} positions for {len(self._readers)} partitions")
        for index, position in enumerate(positions):
            self._readers[index].resume(position)
            self._header.compare(index, self._readers[index].header)

    def receive(self, partition: int, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Store a copy of the next bytes of a partition.

        Raises:
            StateError: the partition was closed.
        """
        self._readers[partition].receive(data)

    def close(self, partition: int) -> None:
        """Say that the stream of a partition has ended."""
        self._readers[partition].close()

    def next_event(self) -> PartitionEvent | Signal:
        """The next whole event, ``NEED_DATA``, or ``END`` after the last one of all.

        Raises:
            MismatchError: a stream has another header than the first.
            StreamError: what is wrong with a stream; the error names it.
            LimitError: a header or event is larger than allowed.
        """
        return self._in_turn() if self._order == "received" else self._lowest()

    def drain(self) -> list[PartitionEvent]:
        """Every event that can be returned by now."""
        events = []
        while isinstance(got := self.next_event(), PartitionEvent):
            events.append(got)
        return events

    def _in_turn(self) -> PartitionEvent | Signal:
        count = len(self._readers)
        for step in range(count):
            index = (self._turn + step) % count
            got = self._take(index)
            if isinstance(got, Event):
                self._turn = (index + 1) % count
                return PartitionEvent(index, got)
        return NEED_DATA if self.waiting else END

    def _lowest(self) -> PartitionEvent | Signal:
        """The event of the lowest id, once every open partition has one to compare."""
        for index in self.waiting:
            self._before_heads[index] = self._readers[index].position
            got = self._take(index)
            if isinstance(got, Event):
                self._heads[index] = got
        if self.waiting:
            return NEED_DATA
        heads = [(head.event_id, index) for index, head in enumerate(self._heads) if head]
        if not heads:
            return END
        index = min(heads)[1]
        event, self._heads[index] = self._heads[index], None
        assert event is not None  # noqa: S101 - it was the lowest
        return PartitionEvent(index, event)

    def _take(self, index: int) -> Event | Signal:
        reader = self._readers[index]
        got = reader.next_event()
        self._header.compare(index, reader.header)
        return got


class BinaryStream(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes, and none at the end."""


def read_streams(
    streams: Sequence[BinaryStream],
    policy: Policy | None = None,
    *,
    order: Order = "received",
    max_event_bytes: int = MAX_EVENT_BYTES,
    piece: int = _PIECE,
) -> Iterator[PartitionEvent]:
    """Yield the events of several open files, such as the partitions of a run.

    Files are read in turn, a piece each, and are not closed. Errors call a file by its
    ``name``, if it has one, and else by its index.

    Args:
        streams: binary files or pipes, a loss stream each.
        policy: what to accept.
        order: ``received`` or ``event``, as of :class:`PartitionReader`.
        max_event_bytes: largest memory for the blocks of one event.
        piece: bytes read at a time.

    Raises:
        CoreError: as :meth:`PartitionReader.next_event`.
    """
    names = [str(getattr(stream, "name", index)) for index, stream in enumerate(streams)]
    reader = PartitionReader(names, policy, order=order, max_event_bytes=max_event_bytes)
    # `read1` returns what a pipe holds; `read` would wait for the whole piece.
    reads = [getattr(stream, "read1", stream.read) for stream in streams]
    while True:
        got = reader.next_event()
        if isinstance(got, PartitionEvent):
            yield got
            continue
        if got is END:
            return
        for index in reader.waiting:
            data = reads[index](piece)
            if data:
                reader.receive(index, data)
            else:
                reader.close(index)
