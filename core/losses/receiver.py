"""The common part of what reads a whole stream: bytes in, place, declared size, failure, end.

:class:`~core.losses.analysis.Analysis` computes reports of a stream, and
:class:`~core.losses.summaries.summariser.Summariser` adds its items up. They differ in the
kernel that takes a block, in what they hand on and in how a stream ends for them. All else is
here, so that both accept, count, refuse and resume alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from .. import errors
from ..arrays import Octets
from ._kernels import layout
from ._kernels.layout import Words
from .buffer import ByteBuffer, as_octets, is_aligned
from .events import Position, StreamEnd, StreamHeader, certify
from .format import SUMMARY_HEADER_SIZE
from .policy import Policy
from .scanner import Scanner, Step
from .seen import SeenEvents

_BRIDGE = 1 << 14
"""First bytes copied to complete a block that was cut; doubled until it is whole. More
than most blocks have, because a second call costs more than the copy."""
_CUT = 1 << 8
"""Bytes there is room for at first: a stream that comes slowly may never need more."""
_COPY = 1 << 18
"""Bytes copied at a time where a piece cannot be read in place: a quarter of the
second-level cache, so that the copy is read while it is hot."""


class Intake:
    """Runs a scanner over pieces of any size; keeps only what a piece cut off.

    Args:
        scanner: whose stream it is.
        step: runs the consumer's kernel; it must take every whole block.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._tail = ByteBuffer(_CUT)

    @property
    def rest(self) -> Octets:
        """Bytes after the last whole block; valid until more are taken."""
        return self._tail.view

    def take_header(self, octets: Octets) -> Octets | None:
        """Take the header; return the bytes after it, or None if it is not whole yet."""
        held = len(self._tail)
        self._tail.append(octets[:SUMMARY_HEADER_SIZE])
        size = self._scanner.take_header(self._tail.view[:SUMMARY_HEADER_SIZE].tobytes())
        if size is None:
            return None
        self._tail.clear()
        return octets[size - held :]

    def take_blocks(self, octets: Octets, step: Step) -> None:
        """Take every block that is whole by now."""
        octets = self._bridge(octets, step)
        if is_aligned(octets):
            consumed, _ = self._scanner.run(octets, step)
            self._tail.append(octets[consumed:])
            return
        while len(octets):
            self._tail.append(octets[:_COPY])
            octets = octets[_COPY:]
            self._run_tail(step)

    def finish(self, step: Step) -> None:
        """Close the last block of an ended stream, if its end is missing and may be."""
        end = self._scanner.implied_end(self._tail.view)
        if end:
            self._tail.append(as_octets(end))
            self._run_tail(step)

    def _bridge(self, octets: Octets, step: Step) -> Octets:
        """Complete the block that the last piece cut; return the bytes after it."""
        size = _BRIDGE
        while len(self._tail) and len(octets):
            before = len(self._tail)
            self._tail.append(octets[:size])
            consumed = self._run_tail(step)
            if consumed >= before:
                # What the tail still holds lies in `octets` too.
                octets = octets[consumed - before :]
                self._tail.clear()
                break
            octets = octets[size:]
            size *= 2
        return octets

    def _run_tail(self, step: Step) -> int:
        consumed, _ = self._scanner.run(self._tail.view, step)
        self._tail.consume(consumed)
        return consumed


NO_LIMIT = 2**62


class StreamReceiver(ABC):
    """Takes one stream in pieces of any size; a subclass says what becomes of its blocks.

    Args:
        policy: what to accept.
        name: what errors call the stream.
        seen: shared among the partitions of one run, so that an event which is in two of them
            is noticed.
        expect_events: number of events the stream is declared to have.
        expect_bytes: number of bytes the stream is declared to have.
    """

    noun: ClassVar[str]
    """What errors call the receiver."""

    def __init__(
        self,
        policy: Policy | None,
        name: str | None,
        seen: SeenEvents | None,
        expect_events: int | None,
        expect_bytes: int | None,
    ) -> None:
        self._expect_events = expect_events
        self._expect_bytes = expect_bytes
        self._scanner = Scanner(policy or Policy(), name, seen)
        self._intake = Intake(self._scanner)
        self._failure: BaseException | None = None
        self._end: StreamEnd | None = None

    # -- what a subclass does ----------------------------------------------------

    @abstractmethod
    def _begin(self, header: StreamHeader) -> None:
        """Prepare for the blocks of a stream whose header has come."""

    @abstractmethod
    def _run(self, words: Words, stop: int, max_events: int) -> int:
        """Run the kernel over a window until it needs what only the scanner can give it.

        Args:
            words: the window.
            stop: words of the window that hold data.
            max_events: most events the stream may have.

        Returns:
            The status of the kernel: any but FULL and those of the subclass's own memory.
        """

    @abstractmethod
    def _flush(self) -> None:
        """Hand on what is complete."""

    # -- what is known -----------------------------------------------------------

    @property
    def header(self) -> StreamHeader | None:
        """The stream's header, once its bytes have come."""
        return self._scanner.header

    @property
    def offset(self) -> int:
        """Byte offset up to which whole blocks have been taken."""
        s = self._scanner.state[0]
        return int(s["base"] + 4 * s["at"])

    @property
    def rest(self) -> Octets:
        """Bytes after the last whole block; valid until more are received."""
        return self._intake.rest

    @property
    def received(self) -> int:
        """Bytes received so far, or skipped by a resume."""
        return self._scanner.offset + len(self._intake.rest)

    @property
    def position(self) -> Position:
        """Where the open event begins: all that is needed to resume without a state."""
        return self._scanner.position

    @property
    def nbytes(self) -> int:
        """Bytes of memory that what was received has taken; rows and sums are apart."""
        return self._scanner.nbytes

    @property
    def open_event(self) -> int:
        """Id of the event whose blocks are being received; 0 before the first."""
        return int(self._scanner.state["event"][0])

    @property
    def events(self) -> int:
        """Events begun so far."""
        return int(self._scanner.state["events"][0])

    # -- bytes in ----------------------------------------------------------------

    def receive(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Take the next bytes of the stream; what is complete goes to the sink at once.

        ``data`` is read in place where possible and not kept.

        Raises:
            CoreError: what is wrong with the stream, or why the receiver cannot take it. What
                comes before has gone to the sink, and every later call raises the same error.
        """
        with self._failing():
            self._take(as_octets(data))

    def _take(self, octets: Octets) -> None:
        excess = 0
        if self._expect_bytes is not None:
            excess = min(max(self.received + len(octets) - self._expect_bytes, 0), len(octets))
        rest: Octets | None = octets[: len(octets) - excess]
        if self.header is None:
            rest = self._intake.take_header(octets[: len(octets) - excess])
            if rest is not None:
                self._begin(self._scanner.known_header)
        if rest is not None and len(rest):
            self._intake.take_blocks(rest, self._step)
        self._flush()
        if excess:
            raise self._excess("bytes", self._expect_bytes, self._expect_bytes)

    def _step(self, words: Words, stop: int) -> int:
        limit = NO_LIMIT if self._expect_events is None else self._expect_events
        status = self._run(words, stop, limit)
        if status in {layout.FAULT, layout.EVENT_DONE}:
            # What comes before is right, and part of the answer.
            self._flush()
        if status == layout.EVENT_DONE:
            state = self._scanner.state[0]
            event = int(self._scanner.scratch.block["event"][0])
            offset = int(state["base"] + 4 * state["at"])
            raise self._excess("events", self._expect_events, offset, event)
        return status

    def _excess(
        self, noun: str, declared: int | None, offset: int | None, event: int | None = None
    ) -> errors.ExcessError:
        return errors.ExcessError(
            f"the stream has more than the {declared} {noun} declared",
            offset=offset,
            event=event,
            source=self._scanner.name,
        )

    def _finish(self) -> StreamEnd:
        """Take the end of the last block, if it may be missing; return how the stream ended.

        Raises:
            TruncatedError: it ended inside its header or a block.
            StreamError: its last, unfinished block is wrong in itself.
        """
        self._intake.finish(self._step)
        return self._scanner.finish(self._intake.rest)

    def _certified(self, end: StreamEnd) -> StreamEnd:
        """The end, compared with what is declared.

        Raises:
            IncompleteError: the stream has fewer events or bytes.
        """
        return certify(end, self._expect_events, self._expect_bytes, self._scanner.name)

    # -- failures and places -----------------------------------------------------

    def _check_usable(self) -> None:
        if self._failure is not None:
            if isinstance(self._failure, errors.CoreError):
                raise self._failure
            raise errors.StateError(f"the {self.noun} has failed", source=self._scanner.name)
        if self._end is not None:
            raise errors.StateError("the stream is already closed", source=self._scanner.name)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Let nothing follow an exception, whether a fault of the stream or of a sink."""
        self._check_usable()
        try:
            yield
        except BaseException as e:
            self._failure = e
            raise

    def _check_fresh(self, noun: str) -> None:
        """Check that a state or position can still be set."""
        self._check_usable()
        if self.received:
            raise errors.StateError(f"a {noun} can only be set before bytes are received")
