"""Stored loss streams as items: events, or their blocks.

Opening a stream reads and checks it once, and records where an event and a block begin
about every ``SPACING`` bytes. Reading an item parses the stream again from the nearest
recorded offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.budget import check_room, current
from core.errors import FormatError, TruncatedError
from core.iterate.base import Column, Field, Ragged, Schema
from core.losses.events import StreamHeader
from core.losses.format import LOSS_DTYPES, Kind
from core.losses.indexing import LossColumns, Points, StreamIndex, read_columns
from core.losses.policy import Policy
from core.slices import slices

from ..files.file_set import FileSet
from ..files.seekable import RENEWING
from .segments import Pointed

SPACING = 64 << 10
"""Minimum number of bytes between two points of the index."""
_PIECE = 1 << 20
"""Bytes that are checked between two looks at the budget."""
_COPIES = 6
"""Times the bytes of a segment that reading it takes."""
_EVENT_BYTES = 256 << 20
"""Maximum memory for one event."""


@dataclass(slots=True)
class _Stream:
    """One file: its header and its index by unit."""

    header: StreamHeader
    points: dict[str, Points]


class LossItems(Pointed):
    """Events, or blocks, of one or more loss streams in the order of their files.

    Args:
        files: one stream per file, all of one kind.
        float_width: bytes of a loss, 4 or 8.

    Raises:
        StreamError: a stream is damaged; gives the offset.
        FormatError: the streams differ in kind or number of samples.
    """

    units = ("event", "block")

    def __init__(self, files: FileSet, float_width: int = 4) -> None:
        self._files = files
        self._policy = Policy(float_width=float_width, negative="keep", sample_order="any")
        last = len(files) - 1
        self._streams = [
            self._index(file, growing=files.growing and file == last) for file in range(len(files))
        ]
        self.header = self._streams[0].header
        for file, stream in enumerate(self._streams):
            if _comparable(stream.header) != _comparable(self.header):
                raise FormatError(
                    f"it is a {stream.header.describe()}, but the first file is a "
                    f"{self.header.describe()}",
                    hint="Register only streams of one kind and sample count together",
                    source=files.name(file),
                )

    # -- the index ----------------------------------------------------------------------

    def _index(self, file: int, *, growing: bool) -> _Stream:
        """Read and check a stream; of a growing one, only what is complete."""
        size = self._files.size(file)
        index = StreamIndex(
            self._policy, name=self._files.name(file), spacing=SPACING, max_event_bytes=_EVENT_BYTES
        )
        budget = current()
        for start, end in slices(size, "losses", _PIECE):
            if start % RENEWING == 0:
                budget.renew()
            index.receive(self._files.read(file, start, end))
        try:
            index.close()
        except TruncatedError:
            if not growing or index.header is None:
                raise
        assert index.header is not None  # noqa: S101 - an empty stream is refused
        # The last event of a growing stream may still gain blocks.
        points = {"event": index.event_points(last=not growing), "block": index.block_points()}
        return _Stream(index.header, points)

    def _read(self, unit: str, file: int, number: int) -> LossColumns:
        """Parse a segment of a file."""
        stream = self._streams[file]
        start, stop = stream.points[unit].offsets[number : number + 2]
        check_room("losses", _COPIES * (stop - start))
        octets = self._files.read(file, start, stop)
        name = self._files.name(file)
        return read_columns(octets, self._policy, stream.header, start, name=name)

    # -- items --------------------------------------------------------------------------

    def schema(self, unit: str) -> Schema:
        """Return the fields of an event or block.

        An event has its id and, ragged, one item (or summary) id, sidx and loss per pair. A
        block has its event and item (or summary) id, the exposure in summary streams, and,
        ragged, one sidx and loss per pair.
        """
        noun = self.header.kind.block_noun
        losses = LOSS_DTYPES[self._policy.float_width]
        pairs = (Field("sidx", np.dtype("<i4"), ragged=True), Field("loss", losses, ragged=True))
        event = Field("event", np.dtype("<i4"))
        if unit == "event":
            return (event, Field(noun, np.dtype("<i4"), ragged=True), *pairs)
        block: Schema = (event, Field(noun, np.dtype("<i4")))
        if self.header.kind is Kind.SUMMARY:
            block = (*block, Field("exposure", np.dtype("<f8")))
        return (*block, *pairs)

    def _points(self, unit: str) -> Sequence[Points]:
        return [stream.points[unit] for stream in self._streams]

    def _load(self, unit: str, file: int, number: int) -> Mapping[str, Column]:
        columns = self._read(unit, file, number)
        noun = self.header.kind.block_noun
        return _event_columns(columns, noun) if unit == "event" else _block_columns(columns, noun)

    def _stop(self, unit: str, file: int, number: int, more: int) -> int:
        start = self._streams[file].points[unit].offsets[number]
        if not more:
            return start
        columns = self._read(unit, file, number)
        blocks = int(columns.firsts[more]) if unit == "event" else more
        return start + int(columns.sizes[:blocks].sum())

    def describe(self) -> Mapping[str, Any]:
        """Return the kind of stream, the number of samples and the counts of items."""
        header = self.header
        return {
            "kind": header.kind.value,
            "len_sample": header.len_sample,
            "float_width": header.float_width,
            "summary_set": header.summary_set,
            "events": self.count("event"),
            "blocks": self.count("block"),
        }


def _comparable(header: StreamHeader) -> StreamHeader:
    """Blank the summary set, the one value in which the streams of a dataset may differ."""
    return replace(header, summary_set=None if header.summary_set is None else 0)


def _event_columns(columns: LossColumns, noun: str) -> dict[str, Column]:
    offsets = columns.starts[columns.firsts]
    return {
        "event": columns.event_ids,
        noun: Ragged(np.repeat(columns.block_ids, np.diff(columns.starts)), offsets),
        "sidx": Ragged(columns.sidx, offsets),
        "loss": Ragged(columns.losses, offsets),
    }


def _block_columns(columns: LossColumns, noun: str) -> dict[str, Column]:
    return {
        "event": np.repeat(columns.event_ids, np.diff(columns.firsts)),
        noun: columns.block_ids,
        "exposure": columns.exposures,
        "sidx": Ragged(columns.sidx, columns.starts),
        "loss": Ragged(columns.losses, columns.starts),
    }
