"""The common part of all consumers of a loss stream: cursor, checks, faults, end.

Two classes read loss streams: ``LossReader`` returns events, ``Analysis`` computes reports.
Both hand a :class:`Scanner` windows of bytes and a *step*, the function that runs their
kernel. The kernel parses, checks and consumes block after block without touching Python. All
it cannot do itself, such as allocating memory or raising an error, it asks for by a status
code. The scanner is the loop around it::

    window of bytes --> step(words, count) --> status
         ^                                        |
         |    GROW_SEEN   another page of event ids has to exist: add it, call again
         |    GROW_LOG    the log of block ids is full: enlarge it, call again
         |    FULL        the consumer's tables are full: the step itself empties them
         |    FAULT       a block is wrong: raise the error the fault record describes
         |    MORE        the next block is not whole: the caller needs more bytes
         +--- EVENT_DONE  the next block begins another event (reader only)

Any status is about the block at the cursor, to which nothing has happened yet. That is what
makes it safe to call again, and what keeps a block that was cut out of every result.

Kernels see the stream as little-endian int32 words, since all fields and both widths of
losses are multiples of four bytes. A window must be aligned, and begins at a block. The record
``state`` is the cursor (``base + 4 * at`` is a byte offset) together with the open event and
counts; it belongs to the scanner and survives from window to window. Bytes do not: the
consumers keep the unfinished block at the end of a window and pass it again.

Why not parse with numpy? The length of a block is known only at its end, so blocks cannot be
split without a sequential pass, and that pass can just as well check them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ..arrays import Octets
from ..budget import check_room
from ._kernels import layout
from ._kernels.block import inspect_tail, read_block
from ._kernels.layout import Record, Scratch, Seen, Words
from ._kernels.seen import fill_table
from .events import Completeness, Position, StreamEnd, StreamHeader
from .faults import WIDTH_SENSITIVE, Fault, fault_error, second_stream
from .format import BEGINNINGS, ID_MAX, block_header_size, header_size, pair_size
from .header import parse_header, restored_header, restoring, saved_header, whole
from .parameters import make_rules, make_scratch, scratch_bytes
from .policy import Policy
from .seen import SeenEvents

Step = Callable[[Words, int], int]
"""Runs a kernel on (window, number of words with data); returns its status."""


_COUNTERS = ("events", "blocks", "pairs")
_SUMS = ("mean_sum", "max_sum", "has_max", "exposure_sum", "has_exposure")


_OFFSET_MAX = 2**62


class Scanner:
    """Position in one loss stream, and all that is known about the stream so far.

    Args:
        policy: what to accept.
        name: of the stream, for errors.
        seen: events met; shared by the partitions of one run.
    """

    def __init__(
        self, policy: Policy, name: str | None = None, seen: SeenEvents | None = None
    ) -> None:
        self.policy = policy
        self.name = name
        self.header: StreamHeader | None = None
        self.state: Record = np.zeros(1, layout.STATE)
        self.state["ascending"] = 1
        self.offset = 0
        """Byte offset of the next block, or of the header."""
        self.resumed = False
        """Whether the check of reopened events does not know the events before a resume."""
        self._implied = 0
        self._unterminated = False
        self._events = SeenEvents() if seen is None else seen
        self._log = np.zeros(16, np.int32)
        self._table = np.zeros(2 * len(self._log), np.int64)
        self.rules: Record
        self.scratch: Scratch
        self._scratch_bytes = 0

    # -- header -----------------------------------------------------------------

    @property
    def known_header(self) -> StreamHeader:
        """The header, where it must have come: no kernel runs before."""
        assert self.header is not None  # noqa: S101 - see above
        return self.header

    def take_header(self, octets: bytes) -> int | None:
        """Parse the header from the first bytes; return its size, or None if it is cut."""
        header = parse_header(octets, self.policy, self.name)
        if header is None:
            return None
        self.begin(header)
        self.offset = header_size(header.kind)
        self.state["base"] = self.offset
        return self.offset

    def begin(self, header: StreamHeader) -> None:
        """Prepare for the blocks of a stream with this header."""
        self.header = header
        self.rules = make_rules(header, self.policy)
        self.make_scratch(0)

    def make_scratch(self, ranks: int) -> None:
        """Allocate the memory blocks are unpacked into, with room for order statistics."""
        sizes = self.known_header.len_sample, self.known_header.float_width
        check_room("samples", scratch_bytes(*sizes))
        self.scratch = make_scratch(*sizes, ranks)
        # Some of its arrays are views of others.
        self._scratch_bytes = sum(array.nbytes for array in self.scratch if array.base is None)

    # -- blocks -----------------------------------------------------------------

    @property
    def seen(self) -> Seen:
        """The arrays of the reopened-event and repeated-block checks."""
        return Seen(self._events.directory, self._events.pages, self._log, self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, which follow the samples, the spread of event ids and the blocks."""
        # Hardly anything of the directory of events is ever touched.
        return self._scratch_bytes + sum(array.nbytes for array in self.seen[1:])

    @property
    def log(self) -> npt.NDArray[np.int32]:
        """Block ids of the open event, in the order received."""
        return self._log[: int(self.state["logged"][0])]

    def run(self, octets: Octets, step: Step) -> tuple[int, int]:
        """Run a kernel over the bytes from ``offset`` on, which must be 4-aligned.

        Returns:
            Bytes consumed, and the status MORE or EVENT_DONE.

        Raises:
            StreamError: the kernel found a fault.
        """
        words = octets[: len(octets) & ~3].view(np.int32)
        words.flags.writeable = False
        state = self.state
        state["base"] = self.offset
        state["at"] = 0
        while True:
            status = step(words, len(words))
            if status == layout.GROW_SEEN:
                self._events.make_page(int(self.scratch.block["event"][0]))
            elif status == layout.GROW_LOG:
                self._grow_log()
            elif status == layout.FAULT:
                raise self._error(words)
            else:
                break
        consumed = 4 * int(state["at"][0])
        self.offset += consumed
        return consumed, status

    def _grow_log(self) -> None:
        if len(self._log) >= self.policy.max_blocks:
            s = self.state[0]
            raise errors.LimitError(
                f"the event has more than {len(self._log)} items or summaries",
                limit="max_blocks",
                allowed=self.policy.max_blocks,
                offset=int(s["base"] + 4 * s["at"]),
                event=int(s["event"]),
                hint=f"max_blocks is {self.policy.max_blocks}",
                source=self.name,
            )
        check_room("blocks", 4 * (self._log.nbytes + self._table.nbytes))
        self._set_log(np.pad(self._log, (0, 3 * len(self._log))), len(self._log))

    def _set_log(self, log: npt.NDArray[np.int32], count: int) -> None:
        self._log = log
        self._table = np.zeros(2 * len(log), np.int64)
        fill_table(log, count, int(self.state["serial"][0]), self._table)

    # -- faults -----------------------------------------------------------------

    def too_large(self, limit: int) -> errors.LimitError:
        """The error of an open event that needs more than so many bytes of memory."""
        return errors.LimitError(
            f"the event needs more than {limit} bytes of memory",
            limit="event",
            allowed=limit,
            event=int(self.state["event"][0]),
            offset=int(self.state["event_offset"][0]),
            hint="Raise max_event_bytes, or use an analysis, which holds one block at a time",
            source=self.name,
        )

    def _error(self, words: Words) -> errors.StreamError:
        s = self.state[0]
        at = int(s["at"])
        if s["fault"] in WIDTH_SENSITIVE and words[at : at + 1].tobytes() in BEGINNINGS:
            return second_stream(int(s["base"] + 4 * at), self.name)
        fault = Fault(
            int(s["fault"]),
            int(s["fault_offset"]),
            int(s["fault_event"]),
            int(s["fault_block"]),
            int(s["fault_sidx"]),
            float(s["fault_value"]),
        )
        hint = None
        if fault.code in WIDTH_SENSITIVE and self._fits_other_width(words):
            other = 12 - self.known_header.float_width
            hint = f"The losses look {other} bytes wide: read the stream with float_width={other}"
        return fault_error(fault, self.known_header, self.name, hint)

    def _fits_other_width(self, words: Words) -> bool:
        """Whether the first block is correct if read with the other float width."""
        if self.state["blocks"][0]:
            return False
        other = 12 - self.known_header.float_width
        rules = self.rules.copy()
        rules["width"] = other
        state = self.state.copy()
        state["probe"] = 0  # counts pairs of the wrong width
        scratch = make_scratch(self.known_header.len_sample, other)
        return read_block(words, len(words), rules, state, scratch) == layout.OK

    # -- end --------------------------------------------------------------------

    def implied_end(self, rest: Octets) -> bytes:
        """The end that the last block of the stream lacks, if the policy accepts that.

        The consumer takes these bytes as if they had been received, then calls
        :meth:`finish`.

        Args:
            rest: the bytes after the last whole block.

        Returns:
            A pair of zeros; nothing if no block is open, the policy requires its end, or
            the stream is cut inside the header of the block or a pair.
        """
        if self.header is None or self.policy.missing_end == "error":
            return b""
        head = block_header_size(self.header.kind, self.header.float_width)
        pair = pair_size(self.header.float_width)
        if len(rest) < head or (len(rest) - head) % pair:
            return b""
        self._implied = pair
        self._unterminated = True
        return bytes(pair)

    def finish(self, rest: Octets) -> StreamEnd:
        """End the stream.

        Args:
            rest: the bytes after the last whole block.

        Raises:
            EmptyStreamError: no byte was received.
            TruncatedError: the stream ends inside its header or a block.
            StreamError: the part of a block at the end is wrong in itself.
        """
        if self.header is None:
            if len(rest) == 0:
                fault = "the stream is empty"
                hint = "Its writer sent nothing, or failed before its header"
                raise errors.EmptyStreamError(fault, offset=0, hint=hint, source=self.name)
            fault = f"the stream ends inside its header, after {len(rest)} bytes"
            raise errors.TruncatedError(fault, offset=len(rest), source=self.name)
        if len(rest):
            raise self._tail_error(rest)
        s = self.state[0]
        # An implied end is not part of the stream.
        self.offset -= self._implied
        s["base"] -= self._implied
        self._implied = 0
        return StreamEnd(
            Completeness.UNTERMINATED if self._unterminated else Completeness.UNDECLARED,
            self.offset,
            int(s["events"]),
            int(s["blocks"]),
            int(s["pairs"]),
            ascending=bool(s["ascending"]),
            reopened_check="since resume" if self.resumed and not s["ascending"] else "whole",
            blocks_without_exposure=int(s["unexposed"]),
        )

    def _tail_error(self, rest: Octets) -> errors.StreamError:
        words = np.zeros(len(rest) // 4, np.int32)
        words.view(np.uint8)[:] = rest[: 4 * len(words)]
        words.flags.writeable = False
        self.state["base"] = self.offset
        self.state["at"] = 0
        block = self.scratch.block
        block["event"] = block["id"] = 0
        pairs = inspect_tail(words, len(words), self.rules, self.state, self.scratch)
        if pairs == -layout.FAULT:
            return self._error(words)
        if words[:1].tobytes() in BEGINNINGS:
            return second_stream(self.offset, self.name)
        event, ident = int(block["event"][0]), int(block["id"][0])
        where = "a block's header"
        if event:
            noun = self.known_header.kind.block_noun
            where = f"the block of {noun} {ident}, after {pairs} whole pairs"
        return errors.TruncatedError(
            f"the stream ends inside {where}",
            offset=self.offset + len(rest),
            event=event or None,
            block=ident or None,
            hint=f"It is complete up to byte {self.offset}: its writer or the connection failed",
            source=self.name,
        )

    # -- state ------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where the open event begins, or the next block if no event is open."""
        return self.position_of(self.state)

    def position_of(self, state: Record) -> Position:
        """The position of an earlier state."""
        s = state[0]
        is_open = bool(s["event"])
        return Position(
            self.header,
            int(s["event_offset"] if is_open else s["base"] + 4 * s["at"]),
            int(s["closed_event"] if is_open else s["last_event"]),
            bool(s["ascending"]),
            int(s["events"]) - is_open,
        )

    def resume(self, position: Position) -> None:
        """Continue from a place between two events, in a fresh scanner.

        Raises:
            StateError: the losses have another width, or there are more samples than the
                policy accepts.
        """
        header = position.header
        if header is None:
            return
        if header.float_width != self.policy.float_width:
            raise errors.StateError(
                f"the losses were read as {header.float_width} bytes wide before",
                hint=f"Use float_width={header.float_width}",
                source=self.name,
            )
        if header.len_sample > self.policy.max_samples:
            raise errors.StateError("the stream has more samples than accepted", source=self.name)
        self.begin(header)
        self.offset = position.offset
        s = self.state
        s["base"] = position.offset
        s["ascending"] = position.ascending
        s["last_event"] = position.last_event
        s["events"] = position.events
        self._begin_after(position.last_event)

    def _begin_after(self, last_event: int) -> None:
        """Forget earlier events except the last, so that no event is reopened there."""
        self.resumed = True
        if last_event:
            self._events.add(last_event)

    def getstate(self, boundary: tuple[int, Record] | None = None) -> dict[str, Any]:
        """The position as JSON values; bytes from ``offset`` on have to be fed again.

        Args:
            boundary: offset and state of an earlier place between two events, to be
                returned instead.
        """
        offset, state = (self.offset, self.state) if boundary is None else boundary
        s = state[0]
        log = self.log if s["event"] else self.log[:0]
        return {
            "offset": offset,
            "header": None if self.header is None else saved_header(self.header),
            "policy": self.policy.to_json(),
            "ascending": bool(s["ascending"]),
            "resumed": self.resumed,
            "last_event": int(s["last_event"]),
            "counts": [int(s[name]) for name in _COUNTERS],
            "event": {
                "id": int(s["event"]),
                "offset": int(s["event_offset"]),
                "before": int(s["closed_event"]),
                "blocks": base64.b85encode(log.tobytes()).decode(),
                "sums": [float(s[name]) for name in _SUMS],
            },
        }

    def setstate(self, state: dict[str, Any]) -> None:
        """Continue from a position of :meth:`getstate`.

        Raises:
            StateError: it is malformed, or of another policy.
        """
        with restoring(self.name):
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        if state["policy"] != self.policy.to_json():
            raise errors.StateError(
                "the state was made with other options",
                hint=f"They were {state['policy']}",
                source=self.name,
            )
        if state["header"] is None:
            return
        header = restored_header(self.policy, *state["header"])
        self.begin(header)
        self.offset = whole(state["offset"], header_size(header.kind), _OFFSET_MAX)
        s = self.state
        s["base"] = self.offset
        event = state["event"]
        log = np.frombuffer(base64.b85decode(event["blocks"]), np.int32)
        s["ascending"] = bool(state["ascending"])
        s["last_event"] = whole(state["last_event"], 0, ID_MAX)
        s["event"] = whole(event["id"], 0, ID_MAX)
        if (len(log) > 0) is not bool(s["event"][0]):
            raise ValueError("it has an event without blocks, or blocks without an event")
        s["event_offset"] = whole(event["offset"], 0, _OFFSET_MAX)
        s["closed_event"] = whole(event["before"], 0, ID_MAX)
        s["event_blocks"] = s["logged"] = len(log)
        s["serial"] = 1
        for counter, value in zip(_COUNTERS, state["counts"], strict=True):
            s[counter] = whole(value, 0, _OFFSET_MAX)
        for total, value in zip(_SUMS, event["sums"], strict=True):
            s[total] = s.dtype[total].type(value)
        size = max(64, 1 << len(log).bit_length())
        self._set_log(np.concatenate([log, np.zeros(size - len(log), np.int32)]), len(log))
        self._begin_after(int(state["last_event"]))
