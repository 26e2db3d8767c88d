"""What every consumer of a loss stream shares: header, cursor, checks, faults, end.

A scanner runs a consumer's kernel over windows of the stream and turns what the
kernel says into memory it needs, errors, or a new position. It holds no bytes.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ..arrays import Octets
from ._kernels import layout
from ._kernels.block import inspect_tail, read_block
from ._kernels.layout import Record, Scratch, Seen, Words
from ._kernels.quantiles import STACK
from ._kernels.seen import fill_table
from .events import Completeness, StreamEnd, StreamHeader
from .faults import WIDTH_SENSITIVE, Fault, fault_error
from .format import (
    ID_MAX,
    LOSS_DTYPES,
    TYPES,
    Kind,
    block_header_size,
    header_size,
    pair_size,
)
from .header import parse_header
from .policy import Policy
from .position import Position
from .seen import SeenEvents

Step = Callable[[Words, int], int]
"""Runs a kernel on (window, words of it that hold data); returns its status."""

_NAN_CODES = {"error": layout.NAN_ERROR, "zero": layout.NAN_ZERO, "drop": layout.NAN_DROP}

_COUNTERS = ("events", "blocks", "pairs")
_SUMS = ("mean_sum", "max_sum", "has_max", "exposure_sum", "has_exposure")


_OFFSET_MAX = 2**62


def _whole(value: Any, low: int, high: int) -> int:  # noqa: ANN401 - out of a state
    """A number of a state, if it is one in this range."""
    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{value!r} is not {low} to {high}")
    return number


def make_scratch(samples: int, float_width: int, ranks: int = 0) -> Scratch:
    """Scratch memory for blocks of up to ``samples`` samples."""
    losses = np.zeros(layout.scratch_size(samples), LOSS_DTYPES[float_width])
    bits = losses.view(f"i{float_width}")
    infinity = np.array([np.inf], losses.dtype).view(bits.dtype)[0]
    return Scratch(
        block=np.zeros(1, layout.BLOCK),
        sidx=np.zeros(len(losses), np.int32),
        bits=bits,
        losses=losses,
        limits=np.array([infinity, np.iinfo(bits.dtype).max, 0], bits.dtype),
        marks=np.zeros(samples + 1, np.uint8),
        work=np.zeros(2 * samples, losses.dtype),
        lanes=np.zeros(layout.LANES),
        ranks=np.zeros(ranks, np.int64),
        picked=np.zeros(ranks, losses.dtype),
        stack=np.zeros(4 * STACK, np.int64),
    )


def make_rules(header: StreamHeader, policy: Policy) -> Record:
    """The RULES record of a stream; no report is wanted in it yet."""
    rules = np.zeros(1, layout.RULES)
    rules["samples"] = header.len_sample
    rules["width"] = header.float_width
    rules["summary"] = header.kind is Kind.SUMMARY
    rules["nan"] = _NAN_CODES[policy.nan]
    rules["keep_negative"] = policy.negative == "keep"
    rules["any_order"] = policy.sample_order == "any"
    rules["ascending"] = policy.event_order == "ascending"
    return rules


class Scanner:
    """Position in one loss stream, and everything known about it so far.

    Args:
        policy: what to accept.
        name: what errors call the stream.
        seen: shared with the other partitions, if any.
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
        """Whether events before a resume are unknown to the reopened-event check."""
        self._implied = 0
        self._unterminated = False
        self._events = SeenEvents() if seen is None else seen
        self._log = np.zeros(64, np.int32)
        self._table = np.zeros(2 * len(self._log), np.int64)
        self.rules: Record
        self.scratch: Scratch

    # -- header -----------------------------------------------------------------

    def take_header(self, octets: bytes) -> int | None:
        """Read the header from the stream's first bytes; return its size, or None."""
        header = parse_header(octets, self.policy, self.name)
        if header is None:
            return None
        self.begin(header)
        self.offset = header_size(header.kind)
        self.state["base"] = self.offset
        return self.offset

    def begin(self, header: StreamHeader) -> None:
        """Get ready for blocks of a stream with this header."""
        self.header = header
        self.rules = make_rules(header, self.policy)
        self.make_scratch(0)

    def make_scratch(self, ranks: int) -> None:
        """Make the memory blocks are unpacked into, for a consumer of order statistics."""
        assert self.header is not None  # noqa: S101 - called after the header only
        self.scratch = make_scratch(self.header.len_sample, self.header.float_width, ranks)

    # -- blocks -----------------------------------------------------------------

    @property
    def seen(self) -> Seen:
        """The arrays of the reopened-event and repeated-block checks."""
        return Seen(self._events.directory, self._events.pages, self._log, self._table)

    @property
    def log(self) -> npt.NDArray[np.int32]:
        """Block ids of the open event, in the order they came."""
        return self._log[: int(self.state["logged"][0])]

    def run(self, octets: Octets, step: Step) -> tuple[int, int]:
        """Run a kernel over bytes that begin at ``offset``, which must be 4-aligned.

        Returns:
            (bytes consumed, status), the status being MORE or EVENT_DONE.

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
                offset=int(s["base"] + 4 * s["at"]),
                event=int(s["event"]),
                hint=f"max_blocks is {self.policy.max_blocks}",
                source=self.name,
            )
        log = np.zeros(4 * len(self._log), np.int32)
        log[: len(self._log)] = self._log
        self._set_log(log, len(self._log))

    def _set_log(self, log: npt.NDArray[np.int32], count: int) -> None:
        self._log = log
        self._table = np.zeros(2 * len(log), np.int64)
        fill_table(log, count, int(self.state["serial"][0]), self._table)

    # -- faults -----------------------------------------------------------------

    def _error(self, words: Words) -> errors.StreamError:
        s = self.state[0]
        fault = Fault(
            int(s["fault"]),
            int(s["fault_offset"]),
            int(s["fault_event"]),
            int(s["fault_block"]),
            int(s["fault_sidx"]),
            float(s["fault_value"]),
        )
        assert self.header is not None  # noqa: S101 - kernels run only after a header
        hint = None
        if fault.code in WIDTH_SENSITIVE and self._fits_other_width(words):
            other = 12 - self.header.float_width
            hint = f"The losses look {other} bytes wide: read the stream with float_width={other}"
        return fault_error(fault, self.header, self.name, hint)

    def _fits_other_width(self, words: Words) -> bool:
        """Whether the first block, wrong as it is, is right with the other float width."""
        assert self.header is not None  # noqa: S101 - as above
        if self.state["blocks"][0]:
            return False
        other = 12 - self.header.float_width
        rules = self.rules.copy()
        rules["width"] = other
        state = self.state.copy()
        state["probe"] = 0  # it counts pairs of the width that is wrong
        scratch = make_scratch(self.header.len_sample, other)
        return read_block(words, len(words), rules, state, scratch) == layout.OK

    # -- end --------------------------------------------------------------------

    def implied_end(self, rest: Octets) -> bytes:
        """The end that the last block of an ended stream lacks, if the policy accepts that.

        The consumer takes these bytes as if they had come, then calls :meth:`finish`.

        Args:
            rest: the bytes after the last whole block.

        Returns:
            One pair of zeros, or nothing: no block is open, the policy wants its end, or
            the stream was cut inside the block's header or a pair.
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
        """The stream ended, with these bytes left over after the last whole block.

        Raises:
            EmptyStreamError: there was not one byte.
            TruncatedError: it ended inside its header or a block.
            StreamError: the part of a block at the end is wrong in itself.
        """
        if self.header is None:
            if len(rest) == 0:
                raise errors.EmptyStreamError(
                    "the stream is empty",
                    offset=0,
                    hint="Its writer sent nothing, or failed before its header",
                    source=self.name,
                )
            raise errors.TruncatedError(
                f"the stream ends inside its header, after {len(rest)} bytes",
                offset=len(rest),
                source=self.name,
            )
        if len(rest):
            raise self._tail_error(rest)
        s = self.state[0]
        # An end that did not come is no part of the stream.
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
        event, ident = int(block["event"][0]), int(block["id"][0])
        assert self.header is not None  # noqa: S101 - there is no tail before a header
        where = "a block's header"
        if event:
            noun = self.header.kind.block_noun
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
        """Where the open event begins or, if none is open, the next block."""
        return self.position_of(self.state)

    def position_of(self, state: Record) -> Position:
        """The same of an earlier state."""
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
        """Go on from a place between two events, in a fresh scanner.

        Raises:
            StateError: the place is of a stream with other losses or more samples.
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
        """Know no event before this one, and this one not as a whole set of blocks."""
        self.resumed = True
        if last_event:
            self._events.add(last_event)

    def getstate(self, boundary: tuple[int, Record] | None = None) -> dict[str, Any]:
        """The position as plain JSON values; bytes from ``offset`` on are to be fed again.

        Args:
            boundary: an earlier (offset, state) between two events to export instead.
        """
        offset, state = (self.offset, self.state) if boundary is None else boundary
        s = state[0]
        log = self.log if s["event"] else self.log[:0]
        header = None
        if self.header is not None:
            h = self.header
            header = [h.kind.value, h.aggregation, h.source, h.len_sample, h.summary_set]
        return {
            "offset": offset,
            "header": header,
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
        """Go on from an exported position.

        Raises:
            StateError: malformed, or made with another policy.
        """
        try:
            self._restore(state)
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise errors.StateError(f"the state is malformed: {e}", source=self.name) from e

    def _restore(self, state: dict[str, Any]) -> None:
        if state["policy"] != self.policy.to_json():
            raise errors.StateError(
                "the state was made with other options",
                hint=f"They were {state['policy']}",
                source=self.name,
            )
        if state["header"] is None:
            return
        self.begin(self._restored_header(*state["header"]))
        assert self.header is not None  # noqa: S101 - just begun
        self.offset = _whole(state["offset"], header_size(self.header.kind), _OFFSET_MAX)
        s = self.state
        s["base"] = self.offset
        event = state["event"]
        log = np.frombuffer(base64.b85decode(event["blocks"]), np.int32)
        s["ascending"] = bool(state["ascending"])
        s["last_event"] = _whole(state["last_event"], 0, ID_MAX)
        s["event"] = _whole(event["id"], 0, ID_MAX)
        if (len(log) > 0) is not bool(s["event"][0]):
            raise ValueError("it has an event without blocks, or blocks without an event")
        s["event_offset"] = _whole(event["offset"], 0, _OFFSET_MAX)
        s["closed_event"] = _whole(event["before"], 0, ID_MAX)
        s["event_blocks"] = s["logged"] = len(log)
        s["serial"] = 1
        for counter, value in zip(_COUNTERS, state["counts"], strict=True):
            s[counter] = _whole(value, 0, _OFFSET_MAX)
        for total, value in zip(_SUMS, event["sums"], strict=True):
            s[total] = s.dtype[total].type(value)
        size = max(64, 1 << len(log).bit_length())
        self._set_log(np.concatenate([log, np.zeros(size - len(log), np.int32)]), len(log))
        self._begin_after(int(state["last_event"]))

    def _restored_header(
        self, kind: str, aggregation: int, source: int, samples: int, summary_set: int | None
    ) -> StreamHeader:
        if TYPES.get((source, aggregation)) is not Kind(kind):
            raise ValueError("its header is of no stream")
        _whole(samples, 1, self.policy.max_samples)
        if Kind(kind) is Kind.SUMMARY:
            _whole(summary_set, -ID_MAX - 1, ID_MAX)
        return StreamHeader(
            Kind(kind), aggregation, source, samples, summary_set, self.policy.float_width
        )
