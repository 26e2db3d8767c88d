"""The files of loss sets: Arrow IPC streams, uncompressed, which every reader of Arrow reads.

Losses have a row for each block, whose samples are lists::

    EventId | SummaryId | SampleId        | Loss                  sample 0 is the numerical mean
    17      | 3         | [0, 1, 4]       | [12.5, 10.0, 40.0]
    17      | 5         | [0, 2]          | [0.25, 1.0]

Blocks lie in the order in which their events came, so that one pass writes them. Each record batch
has at most ``BATCH`` bytes and is written by itself, so that a store that keeps blobs in files has
it in one piece: what is mapped needs no copy. A batch of a block that is longer has several
pieces, and such a file is read into memory.

Nothing of a file is used before every byte of it was compared with the checksums of the store.
Then the batches say where their lists lie, and Arrow checks their offsets against their lengths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from app.datasets.files.mapped import Map, is_local
from app.engine.request_budget import keep_for_request
from app.state.base import StoreDamagedError, damaged
from app.state.blobs import GrowingBlobs
from core.arrays import Array, Octets
from core.budget import Scope, current
from core.portfolio.assembling import picked
from core.portfolio.building import Part
from core.portfolio.losses import LossTable
from core.slices import slices
from core.sorting import order_of

BATCH = (1 << 20) - (1 << 12)
"""Bytes of the columns of a batch at most: with its description it fits a piece of a file."""
_BLOCK_BYTES = 16
_READ = 16 << 20
"""Bytes that are checked at a time."""
_INDEX_BYTES = 88
"""Memory for each block while the index is made."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
STAGE = "loss set"


Append = Callable[[bytes | memoryview], object]
"""Appends bytes to a blob, as a piece if they fit one."""


def _schema(width: int, metadata: Mapping[str, str]) -> pa.Schema:
    loss = pa.float32() if width == 4 else pa.float64()  # noqa: PLR2004 - bytes of a loss
    fields = [
        pa.field("EventId", pa.int32(), nullable=False),
        pa.field("SummaryId", pa.int32(), nullable=False),
        pa.field("SampleId", _list_of(pa.int32()), nullable=False),
        pa.field("Loss", _list_of(loss), nullable=False),
    ]
    return pa.schema(fields, {name.encode(): text.encode() for name, text in metadata.items()})


def _list_of(values: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", values, nullable=False))


class LossesWriter:
    """Writes the losses of a set.

    Args:
        append: takes what is written.
        width: bytes of a loss, 4 or 8.
        metadata: what a reader of the file is told.

    Attributes:
        blocks, rows: how many were written.
    """

    def __init__(self, append: Append, width: int, metadata: Mapping[str, str]) -> None:
        self._append = append
        self._schema = _schema(width, metadata)
        self._waiting: list[Part] = []
        self._waits = 0
        self._row_bytes = 4 + width
        self.blocks = self.rows = 0
        append(self._schema.serialize().to_pybytes())

    def add(self, part: Part) -> None:
        """Write the next blocks, of which the caller may use the memory again."""
        if not len(part.event_ids):
            return
        self.blocks += len(part.event_ids)
        self.rows += len(part.samples)
        starts = np.append(0, np.cumsum(part.counts, dtype=np.int64))
        ends = starts * self._row_bytes + np.arange(len(starts)) * _BLOCK_BYTES
        first = 0
        while first < len(starts) - 1:
            room = BATCH - self._waits
            last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
            if last <= first and self._waits:
                self._flush()
                continue
            last = max(last, first + 1)
            rows = slice(starts[first], starts[last])
            of_blocks: Any = (column[first:last].copy() for column in part[:3])
            of_rows: Any = (column[rows].copy() for column in part[3:])
            self._waiting.append(Part(*of_blocks, *of_rows))
            self._waits += int(ends[last] - ends[first])
            first = last
        if self._waits > BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        current().check(STAGE)
        joined = Part(*map(np.concatenate, zip(*self._waiting, strict=True)))
        self._waiting.clear()
        self._waits = 0
        offsets: Any = np.append(0, np.cumsum(joined.counts, dtype=np.int64)).astype(np.int32)
        lists = [
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), type=kind)
            for values, kind in zip(joined[3:], self._schema.types[2:], strict=True)
        ]
        arrays = [pa.array(joined.event_ids), pa.array(joined.summary_ids), *lists]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._append(memoryview(batch.serialize()))

    def close(self) -> None:
        """Write what waits, and the end of the stream."""
        self._flush()
        self._append(_END)


@dataclass(slots=True, eq=False)
class StoredLosses:
    """The losses of a set, mapped or in memory."""

    table: LossTable
    nbytes: int
    """Memory that they take, what is mapped apart."""
    map: Map | None = field(default=None, repr=False)

    def check(self) -> None:
        """Check that no page of the map was missing so far.

        Raises:
            StoreDamagedError: one was: what was computed from it is wrong.
        """
        if self.map is not None and self.map.missing() is not None:
            raise StoreDamagedError("the disk cannot deliver a loss set", path=None)


def read_losses(blobs: GrowingBlobs, kind: str, blob: str, size: int, width: int) -> StoredLosses:
    """Open the losses of a set.

    Args:
        blobs: the store.
        kind: of the blob.
        blob: its id.
        size: its bytes.
        width: bytes of a loss.

    Raises:
        StoreDamagedError: it is not what was written.
        BlobMissingError: it was deleted.
        BudgetExceededError: it has to be in memory, and there is not enough.
    """
    try:
        found = _mapped(blobs, kind, blob, size) or _read(blobs, kind, blob, size)
        return _opened(*found, width)
    except (pa.ArrowInvalid, ValueError) as e:
        raise damaged(kind, blob) from e


_Content = tuple[Octets, Sequence[pa.Buffer], Map | None]
"""A file, the messages in it, and its map if it is mapped."""


def _mapped(blobs: GrowingBlobs, kind: str, blob: str, size: int) -> _Content | None:
    """Map a file whose pieces are batches; None if it is none, or not on this machine."""
    found = blobs.pieces(kind, blob)
    if found is None:
        return None
    try:
        if not is_local(found.descriptor) or os.fstat(found.descriptor).st_size < found.size:
            return None
        whole = Map(found.descriptor, found.size)
    except OSError:
        return None
    finally:
        os.close(found.descriptor)
    if not whole.is_watched() or sum(length for _, length in found.places) != size:
        return None
    # The store compares every byte with its checksum; the map shows the same file.
    for begin, end in slices(size, STAGE, _READ):
        blobs.range(kind, blob, begin, end)
    pieces = [whole.octets[place : place + length] for place, length in found.places]
    messages = [pa.py_buffer(piece.data) for piece in pieces]
    if not all(_is_message(piece) for piece in pieces[:-1]):
        return None
    return whole.octets, messages, whole


def _is_message(piece: Octets) -> bool:
    """Whether a piece is an Arrow message, which says how long it is."""
    if bytes(piece[:4]) != _END[:4] or len(piece) % 8:
        return False
    try:
        return pa.ipc.read_message(pa.py_buffer(piece.data)) is not None
    except (pa.ArrowInvalid, OSError, EOFError):
        return False


def _read(blobs: GrowingBlobs, kind: str, blob: str, size: int) -> _Content:
    keep_for_request(STAGE, size)
    octets = np.empty(size, np.uint8)
    for begin, end in slices(size, STAGE, _READ):
        octets[begin:end] = np.frombuffer(blobs.range(kind, blob, begin, end), np.uint8)
    whole = pa.py_buffer(octets.data)
    return octets, list(_messages(whole)), None


def _messages(whole: pa.Buffer) -> Iterator[pa.Buffer]:
    """Cut a stream into its messages."""
    source = pa.BufferReader(whole)
    begin = 0
    while begin < whole.size - len(_END):
        pa.ipc.read_message(source)
        end = source.tell()
        yield whole.slice(begin, end - begin)
        begin = end
    yield whole.slice(begin)


def _opened(
    octets: Octets, messages: Sequence[pa.Buffer], whole: Map | None, width: int
) -> StoredLosses:
    """Index the batches of a file; the first message is its schema, the last its end."""
    schema = pa.ipc.read_schema(pa.ipc.read_message(messages[0]))
    base = octets.ctypes.data
    parts: list[Sequence[Array]] = []
    for message in messages[1:-1]:
        current().check(STAGE)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(message), schema)
        batch.validate(full=True)
        parts.append(_blocks_of(batch, base, width))
    rows = sum(len(part[0]) for part in parts)
    with Scope(STAGE, _INDEX_BYTES * rows):
        table = _table(parts, octets, width)
    index = sum(column.nbytes for column in table[:6])
    keep_for_request(STAGE, index)
    return StoredLosses(table, index + (len(octets) if whole is None else 0), whole)


def _blocks_of(batch: pa.RecordBatch, base: int, width: int) -> Sequence[Array]:
    """Event, summary, rows and places of samples and losses of each block of a batch."""
    columns: list[Any] = batch.columns
    events, summaries, samples, losses = columns
    starts = samples.offsets.to_numpy()
    if not np.array_equal(starts, losses.offsets.to_numpy()):
        raise ValueError("samples and losses have other lengths")
    ids = (events.to_numpy(), summaries.to_numpy(), np.diff(starts))
    places = (
        (values.values.buffers()[1].address - base) // size + starts[:-1].astype(np.int64)
        for values, size in ((samples, 4), (losses, width))
    )
    return *ids, *places


def _table(parts: Sequence[Sequence[Array]], octets: Octets, width: int) -> LossTable:
    """Return the table whose blocks are in order of event and summary, wherever they lie."""
    kinds = (np.int32, np.int32, np.int32, np.int64, np.int64)
    columns = [
        np.concatenate([np.zeros(0, kind), *(part[i] for part in parts)]).astype(kind, copy=False)
        for i, kind in enumerate(kinds)
    ]
    keys = columns[0].astype(np.int64) << 32 | columns[1]
    if len(keys) and not (keys[1:] > keys[:-1]).all():
        _, order = order_of(keys, STAGE)
        columns = [picked(column, order, STAGE) for column in columns]
    events, summaries, counts, samples_at, losses_at = columns
    first = np.flatnonzero(np.append(True, events[1:] != events[:-1])[: len(events)])
    return LossTable(
        event_ids=events[first],
        event_starts=np.append(first, len(events)),
        summary_ids=summaries,
        samples_at=samples_at,
        losses_at=losses_at,
        counts=counts,
        samples=octets[: len(octets) // 4 * 4].view(np.int32),
        losses=octets[: len(octets) // width * width].view(f"<f{width}"),
    )


def encode_table(columns: Mapping[str, Array | Sequence[Any]]) -> bytes:
    """Return columns as an Arrow stream of one batch."""
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in columns.values()], list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_table(data: bytes) -> dict[str, Array]:
    """Return the columns of such a stream: numbers without a copy, texts as texts."""
    batch = pa.ipc.open_stream(data).read_next_batch()
    return {
        name: np.array(column.to_pylist(), np.str_)
        if pa.types.is_string(column.type)
        else column.to_numpy()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
