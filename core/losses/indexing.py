"""Access at random to a stream: where its events and blocks begin, and parts of it as columns.

A :class:`StreamIndex` notes places while every block is checked; :func:`read_columns` takes the
bytes between two of them to arrays of all their events, blocks and pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices
from ._kernels import layout
from ._kernels.indexing import INDEX, gather, index
from ._kernels.layout import Words
from .buffer import as_octets, is_aligned
from .events import Position, StreamEnd, StreamHeader
from .format import LOSS_DTYPES, block_header_size, pair_size
from .policy import Policy
from .reader import BLOCK_BYTES, MAX_EVENT_BYTES
from .receiver import StreamReceiver
from .scanner import Scanner


class LossColumns(NamedTuple):
    """Whole blocks of a stream, one after the other."""

    event_ids: npt.NDArray[np.int32]
    """Shape (events,)."""
    firsts: Indices
    """First block of each event, and the number of blocks; shape (events + 1,)."""
    block_ids: npt.NDArray[np.int32]
    """Item, coverage or summary ids, shape (blocks,)."""
    exposures: Floats
    """Exposure of each summary, shape (blocks,); NaN in item streams."""
    starts: Indices
    """First pair of each block, and the number of pairs; shape (blocks + 1,)."""
    sidx: npt.NDArray[np.int32]
    """Sample ids, special ones included, shape (pairs,)."""
    losses: npt.NDArray[np.floating[Any]]
    """Losses in the width of the stream, shape (pairs,)."""
    sizes: Indices
    """Bytes of each block in the stream, shape (blocks,)."""


def read_columns(
    data: bytes | memoryview,
    policy: Policy,
    header: StreamHeader,
    offset: int,
    *,
    name: str | None = None,
) -> LossColumns:
    """Check and copy whole blocks; takes up to four times their bytes.

    Args:
        data: bytes of a stream, from the first byte of a block on.
        policy: what to accept.
        header: of the stream.
        offset: of ``data`` in the stream.
        name: of the stream, for errors.

    Raises:
        TruncatedError: the bytes end inside a block.
        StreamError: a block is wrong.
    """
    octets = as_octets(data)
    if not is_aligned(octets):
        octets = octets.copy()
    pair = pair_size(header.float_width)
    fixed = block_header_size(header.kind, header.float_width) + pair
    blocks, pairs = len(octets) // fixed, len(octets) // pair
    events, firsts = np.zeros(blocks, np.int32), np.zeros(blocks + 1, np.int64)
    idents, exposures = np.zeros(blocks, np.int32), np.zeros(blocks)
    starts = np.zeros(blocks + 1, np.int64)
    sidx, losses = np.zeros(pairs, np.int32), np.zeros(pairs, LOSS_DTYPES[header.float_width])
    scanner = Scanner(policy, name)
    scanner.resume(Position(header, offset))

    def step(words: Words, stop: int) -> int:
        stream = (words, stop, scanner.rules, scanner.state, scanner.scratch, scanner.seen)
        return gather(*stream, events, firsts, idents, exposures, starts, sidx, losses)

    consumed, _ = scanner.run(octets, step)
    end = scanner.finish(octets[consumed:])
    starts = starts[: end.blocks + 1]
    return LossColumns(
        events[: end.events],
        firsts[: end.events + 1],
        idents[: end.blocks],
        exposures[: end.blocks],
        starts,
        sidx[: end.pairs],
        losses[: end.pairs],
        np.diff(starts) * pair + fixed,
    )


class Points(NamedTuple):
    """Places in a stream at which reading can begin, and its end."""

    offsets: list[int]
    """Byte offset of each point, and of the end."""
    numbers: list[int]
    """Number of the event or block that begins there, and the number of all."""


class StreamIndex(StreamReceiver):
    """Takes one stream in pieces of any size, checks every block of it, and notes places.

    It accepts and refuses what a :class:`~core.losses.reader.LossReader` does with the same
    policy and limit, without making events.

    Args:
        policy: what to accept.
        name: what errors call the stream.
        spacing: least number of bytes between two places.
        max_event_bytes: largest memory for the blocks of one event.
    """

    noun = "index"

    def __init__(
        self,
        policy: Policy,
        *,
        name: str | None = None,
        spacing: int,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        super().__init__(policy, name, None, None, None)
        self._max_event_bytes = max_event_bytes
        self._progress = np.zeros(1, INDEX)
        self._progress["spacing"] = spacing
        # The pairs of an event are held without the one that ends a block.
        self._progress["room"] = max_event_bytes // pair_size(policy.float_width)
        self._events = np.zeros((64, 2), np.int64)
        self._blocks = np.zeros((64, 2), np.int64)

    def _begin(self, header: StreamHeader) -> None:
        """Prepare nothing."""

    def _run(self, words: Words, stop: int, max_events: int) -> int:  # noqa: ARG002 - no limit
        s = self._scanner
        stream = (words, stop, s.rules, s.state, s.scratch)
        while True:
            if len(s.seen.log) * BLOCK_BYTES > self._max_event_bytes:
                raise s.too_large(self._max_event_bytes)
            status = index(*stream, s.seen, self._progress, self._events, self._blocks)
            if status != layout.FULL:
                return status
            if max(self._counts()) < len(self._blocks):
                raise s.too_large(self._max_event_bytes)
            self._events = np.concatenate([self._events, np.zeros_like(self._events)])
            self._blocks = np.concatenate([self._blocks, np.zeros_like(self._blocks)])

    def _counts(self) -> tuple[int, int]:
        progress = self._progress[0]
        return int(progress["event_points"]), int(progress["block_points"])

    def _flush(self) -> None:
        """Hand on nothing: places are asked for at the end."""

    def close(self) -> StreamEnd:
        """The stream has ended.

        Raises:
            TruncatedError: it ended inside its header or a block.
            StreamError: its last, unfinished block is wrong in itself.
        """
        with self._failing():
            self._end = self._finish()
        return self._end

    def event_points(self, *, last: bool = True) -> Points:
        """Where events begin.

        Args:
            last: whether the last event counts, which may still gain blocks if the stream does.
        """
        state = self._scanner.state[0]
        if last or not state["event"]:
            return self._points(self._events, self._counts()[0], self.offset, state["events"])
        end = state["event_offset"]
        return self._points(self._events, self._counts()[0], end, state["events"] - 1)

    def block_points(self) -> Points:
        """Where whole blocks begin."""
        count = self._scanner.state[0]["blocks"]
        return self._points(self._blocks, self._counts()[1], self.offset, count)

    @staticmethod
    def _points(points: Indices, count: int, end: int, number: int) -> Points:
        before = points[:count]
        before = before[before[:, 0] < end]
        return Points(*np.append(before, [[end, number]], axis=0).T.tolist())
