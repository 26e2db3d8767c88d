"""Batches as the bytes of an answer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from app.errors import NotAcceptableError
from app.streams.frames import FrameKind, FrameWriter, describe_array
from app.tiles.encoding import npy_bytes, octets_of
from core.arrays import Array
from core.iterate.base import Column, Field, Ragged
from core.pipelines.pipeline import Step

from .opened import OpenPipeline

ALIGNMENT = 64
"""Arrays of a payload begin at multiples of this."""
BATCH_FORMATS = ("frames", "arrow", "npy")
"""What one batch comes as, the default first."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch ready to be framed."""

    step: Step
    header: dict[str, Any]
    payload: bytes | memoryview
    nbytes: int
    """Of its arrays."""
    last: bool
    """Whether no batch follows it."""


def arrays_of(fields: tuple[Field, ...], step: Step) -> Iterator[tuple[str, Array]]:
    """Arrays of a batch by name: a ragged field is its values and its offsets."""
    for field in fields:
        column = step.block[field.name]
        if isinstance(column, Ragged):
            # Behind the last offset there may be values of other ranks.
            yield field.name, column.values[: column.offsets[-1]]
            yield f"{field.name}.offsets", column.offsets
        else:
            yield field.name, column


def make_batch(opened: OpenPipeline, step: Step) -> Batch:
    """A batch with its token; of a single array the payload is its memory."""
    arrays = list(arrays_of(opened.pipeline.schema, step))
    described, at = [], 0
    for name, array in arrays:
        at = -(-at // ALIGNMENT) * ALIGNMENT
        described.append(describe_array(name, array, at))
        at += array.nbytes
    if len(arrays) == 1:
        payload = octets_of(arrays[0][1])
    else:
        joined = np.zeros(at, np.uint8)
        for about, (_, array) in zip(described, arrays, strict=True):
            start = about["offset"]
            joined[start : start + array.nbytes] = np.frombuffer(octets_of(array), np.uint8)
        payload = joined.data
    header = {
        "seq": step.sequence,
        "epoch": step.epoch,
        "count": step.count,
        "rows": list(step.rows),
        "token": opened.tokens.token(step.state),
        "arrays": described,
    }
    if len(arrays) == 1:
        header |= {name: described[0][name] for name in ("dtype", "shape")}
    over = step.data_finished or opened.is_over(step.state)
    return Batch(step, header, payload, sum(array.nbytes for _, array in arrays), over)


def epoch_header(batch: Batch) -> dict[str, Any]:
    """Header of the EPOCH frame after the last batch of an epoch."""
    return {"epoch": batch.step.epoch, "token": batch.header["token"]}


def encode_batch(opened: OpenPipeline, batch: Batch, form: str) -> bytes:
    """One batch as a whole body.

    Raises:
        NotAcceptableError: it has several arrays, and is wanted as one.
    """
    if form == "frames":
        return _frames(batch)
    if form == "arrow":
        return _arrow(opened.pipeline.schema, batch)
    arrays = list(arrays_of(opened.pipeline.schema, batch.step))
    if len(arrays) > 1:
        raise NotAcceptableError(
            "the batches of this pipeline are several arrays, and npy has one",
            hint="Ask for frames or arrow, or have the source give one field",
        )
    return npy_bytes(arrays[0][1])


def _frames(batch: Batch) -> bytes:
    """A stream of one batch."""
    writer = FrameWriter()
    buffers = writer.frame(FrameKind.DATA, batch.header, batch.payload)
    if batch.step.ends_epoch:
        buffers += writer.frame(FrameKind.EPOCH, epoch_header(batch))
    end = {
        "reason": "exhausted" if batch.last else "count",
        "data_finished": batch.last,
        "token": batch.header["token"],
    }
    return b"".join(buffers + writer.frame(FrameKind.END, end))


def batch_headers(batch: Batch) -> dict[str, str]:
    """What the headers of an answer of one batch say."""
    step = batch.step
    return {
        "Thalweg-Token": batch.header["token"],
        "Thalweg-Batch": str(step.sequence),
        "Thalweg-Epoch": str(step.epoch),
        "Thalweg-Count": str(step.count),
        "Thalweg-Rows": f"{step.rows[0]}-{step.rows[1]}",
    }


def _arrow(fields: tuple[Field, ...], batch: Batch) -> bytes:
    """A batch as an Arrow IPC stream; what belongs to it is metadata of its schema."""
    columns = {f.name: _arrow_column(batch.step.block[f.name], f) for f in fields}
    metadata = {name: str(batch.header[name]) for name in ("seq", "epoch", "count", "token")}
    record = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    record = record.replace_schema_metadata(metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return sink.getvalue()


def _arrow_column(column: Column, field: Field) -> Any:  # noqa: ANN401 - pyarrow's
    if isinstance(column, Ragged):
        values = _arrow_values(column.values[: column.offsets[-1]], field)
        offsets: Any = pa.array(column.offsets)
        return pa.LargeListArray.from_arrays(offsets, values)
    return _arrow_values(column, field)


def _arrow_values(values: Array, field: Field) -> Any:  # noqa: ANN401 - pyarrow's
    """Values of any shape: axes behind the first are lists of fixed size."""
    if values.dtype.names is not None or values.dtype.kind == "c":
        raise NotAcceptableError(
            f"Arrow has no type for {field.name!r}, which is {values.dtype}", hint="Ask for frames"
        )
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    array: Any = pa.array(native.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array
