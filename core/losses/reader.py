"""A sans-I/O reader of loss streams: bytes in, whole events out.

A loss stream is a header and then blocks, each with the losses of one item in one event. An
*event* is a run of blocks of one event id. The stream has no lengths and no end marker, so
an event is known to be whole only when a block of another event begins or the caller says
that the stream has ended::

    bytes      | header | block 7/1 | block 7/2 | block 9/1 | blo
    handed out                                  ^ event 7      ^ held back
    states     WAIT HEADER ->  IN EVENT --EVENT_DONE--> BETWEEN -> IN EVENT ... -> ENDED | FAILED

The reader opens no file and waits for nothing. :meth:`LossReader.receive` copies bytes into a
buffer, and :meth:`LossReader.next_event` parses as far as they reach: it returns an event,
``NEED_DATA``, or ``END``. So any way of cutting the bytes gives the same events, and the same
code serves files, sockets and tests that feed a byte at a time.

Parsing is the work of a :class:`~core.losses.scanner.Scanner`, which runs the kernel
``collect`` over the buffer. The kernel copies the blocks of one event into arrays that this
class owns. When an array is full, it stops *before* the block in question; the array is
enlarged and the kernel called again. A fault is remembered and raised again by every later
call, at the place among the events where it belongs.

A *boundary* is the place between two events. The state of a reader is that of its last
boundary: an unfinished event is not part of it, but is read again from its first byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import errors
from ._kernels import layout
from ._kernels.layout import Words
from ._kernels.scan import close_event, collect
from .buffer import ByteBuffer, as_octets
from .events import END, NEED_DATA, Event, Position, Signal, StreamEnd, StreamHeader
from .format import LOSS_DTYPES, SUMMARY_HEADER_SIZE
from .header import restoring
from .policy import Policy
from .scanner import Scanner
from .seen import SeenEvents

MAX_EVENT_BYTES = 1 << 30
"""Default bound on the memory of one event's blocks."""

_STATE_VERSION = 1
BLOCK_BYTES = 36
"""Memory of a block without its pairs: its id logged and hashed, exposure and start."""


class LossReader:
    """Reads one loss stream event by event.

    Feed pieces of any size to :meth:`receive` and take events with :meth:`next_event` until
    it returns ``NEED_DATA``, or after :meth:`close` until it returns ``END``. Every block is
    checked before its event is returned.

    Args:
        policy: what to accept.
        name: of the stream, for errors.
        max_event_bytes: largest memory for the blocks of one event; for larger ones
            use :class:`~core.losses.analysis.Analysis`, which holds one block.
        seen: shared with the readers of other partitions, so that an event in two of
            them is noticed.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        seen: SeenEvents | None = None,
    ) -> None:
        self._scanner = Scanner(policy or Policy(), name, seen)
        self._buffer = ByteBuffer()
        self._max_event_bytes = max_event_bytes
        self._failure: errors.CoreError | None = None
        self._closed = False
        self.end: StreamEnd | None = None
        """How the stream ended, once :meth:`next_event` has returned ``END``."""
        self._losses = np.zeros(0, LOSS_DTYPES[self._scanner.policy.float_width])
        self._sidx = np.zeros(0, np.int32)
        self._exposures = np.zeros(0)
        self._starts = np.zeros(1, np.int64)
        self._remember_boundary()

    @property
    def header(self) -> StreamHeader | None:
        """The header of the stream, once it was received."""
        return self._scanner.header

    @property
    def position(self) -> Position:
        """Where the first event that was not returned begins; see :meth:`resume`."""
        return self._scanner.position_of(self._boundary[1])

    def receive(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Store a copy of the next bytes.

        Raises:
            StateError: the stream was closed.
        """
        if self._closed:
            raise errors.StateError("the stream is already closed", source=self._scanner.name)
        self._buffer.append(as_octets(data))

    def close(self) -> None:
        """Say that the stream has ended; :meth:`next_event` raises if it ended badly."""
        self._closed = True

    def next_event(self) -> Event | Signal:
        """The next whole event, ``NEED_DATA``, or ``END`` after the last event.

        An event is whole when the next one begins or the stream was closed.

        Raises:
            StreamError: a fault of the stream, at its place among the events.
            LimitError: a header or event is larger than allowed.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._next_event()
        except errors.CoreError as e:
            self._failure = e
            raise

    def drain(self) -> list[Event]:
        """All events that are whole by now."""
        events = []
        while isinstance(event := self.next_event(), Event):
            events.append(event)
        return events

    def _next_event(self) -> Event | Signal:
        if self.end is not None:
            return END
        if self.header is None:
            size = self._scanner.take_header(self._buffer.view[:SUMMARY_HEADER_SIZE].tobytes())
            if size is not None:
                self._buffer.consume(size)
                self._remember_boundary()
        status = self._run()
        if status == layout.MORE and self._closed:
            implied = self._scanner.implied_end(self._buffer.view)
            if implied:
                self._buffer.append(as_octets(implied))
                status = self._run()
        if status == layout.EVENT_DONE:
            return self._take_event()
        if not self._closed:
            return NEED_DATA
        end = self._scanner.finish(self._buffer.view)
        if self._scanner.state["event"][0]:
            return self._take_event()
        self.end = end
        return END

    def _run(self) -> int:
        """Take the blocks that are whole, up to the end of the event."""
        if self.header is None:
            return layout.MORE
        consumed, status = self._scanner.run(self._buffer.view, self._step)
        self._buffer.consume(consumed)
        return status

    def _step(self, words: Words, stop: int) -> int:
        scanner = self._scanner
        while True:
            seen = scanner.seen
            self._match(len(seen.log))
            stream = (words, stop, scanner.rules, scanner.state, scanner.scratch, seen)
            event = (self._exposures, self._starts, self._sidx, self._losses)
            status = collect(*stream, *event)
            if status != layout.FULL:
                return status
            self._make_room(int(scanner.state["needed"][0]))

    def _match(self, blocks: int) -> None:
        """Enlarge the arrays of blocks to the length of the log of block ids."""
        if len(self._exposures) < blocks:
            if len(self._exposures):
                self._check_size(blocks * BLOCK_BYTES)
            more = blocks - len(self._exposures)
            self._exposures = np.concatenate([self._exposures, np.zeros(more)])
            self._starts = np.concatenate([self._starts, np.zeros(more, np.int64)])

    def _make_room(self, pairs: int) -> None:
        pair = 4 + self._losses.itemsize
        self._check_size(pairs * pair)
        # Never more room than allowed, so that the limit does not depend on earlier events.
        capacity = min(max(2 * pairs, 1 << 12), self._max_event_bytes // pair)
        held = len(self._sidx)
        sidx, losses = np.zeros(capacity, np.int32), np.zeros(capacity, self._losses.dtype)
        sidx[:held], losses[:held] = self._sidx, self._losses
        self._sidx, self._losses = sidx, losses

    def _check_size(self, size: int) -> None:
        if size > self._max_event_bytes:
            raise self._scanner.too_large(self._max_event_bytes)

    def _take_event(self) -> Event:
        state = self._scanner.state
        blocks = int(state["logged"][0])
        pairs = int(self._starts[blocks])
        event = Event(
            int(state["event"][0]),
            int(state["event_offset"][0]),
            self._scanner.log.copy(),
            self._exposures[:blocks].copy(),
            self._starts[: blocks + 1].copy(),
            self._sidx[:pairs].copy(),
            self._losses[:pairs].copy(),
        )
        state["logged"] = 0
        close_event(state)
        self._remember_boundary()
        return event

    # -- state ------------------------------------------------------------------

    def _remember_boundary(self) -> None:
        self._boundary = (self._scanner.offset, self._scanner.state.copy())

    def getstate(self) -> dict[str, Any]:
        """The place of the reader as JSON values.

        Feed a fresh reader with this state from byte ``state["stream"]["offset"]`` on, where
        the first event that was not returned begins.
        """
        if self._failure is not None:
            raise self._failure
        return {"version": _STATE_VERSION, "stream": self._scanner.getstate(self._boundary)}

    def resume(self, position: Position) -> None:
        """Continue from a place between two events, before any byte is received.

        The next byte to receive is the one at ``position.offset``. Of the earlier events,
        only the last is known to the check that no event comes twice. A position may also
        lie between two blocks: then the remaining blocks of their event are read as an
        event.

        Raises:
            StateError: the position does not fit the policy, or bytes were received.
        """
        if self._scanner.offset or len(self._buffer):
            raise errors.StateError("a position can only be set before bytes are received")
        self._scanner.resume(position)
        self._remember_boundary()

    def setstate(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of :meth:`getstate`, before any byte is received.

        Raises:
            StateError: it is malformed, or of another version or policy.
        """
        if self._scanner.offset or len(self._buffer):
            raise errors.StateError("a state can only be set before bytes are received")
        try:
            with restoring():
                self._restore(state)
        except errors.StateError as e:
            self._failure = e
            raise

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != _STATE_VERSION:
            raise errors.StateError(f"state version {state.get('version')!r} is not known")
        self._scanner.setstate(state["stream"])
        if self._scanner.state["event"][0]:
            raise errors.StateError("the state is of an analysis: it is inside an event")
        self._remember_boundary()
