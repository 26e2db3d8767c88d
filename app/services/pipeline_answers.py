"""Batches as the bytes of an answer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from app.errors import NotAcceptableError, Problem
from app.services.pipelines import OpenPipeline
from app.services.tile_answers import Buffers, npy_bytes, octets_of
from app.wire import FrameKind, FrameWriter, describe_array
from core.arrays import Array
from core.iterate.base import Column, Field, Ragged, State
from core.pipelines.pipeline import Step

ALIGNMENT = 64
"""Arrays of a payload begin at multiples of this."""
BATCH_FORMATS = ("frames", "arrow", "npy")
"""What one batch comes as, the default first."""


@dataclass(frozen=True, slots=True)
class Made:
    """A batch ready to be framed."""

    step: Step
    header: dict[str, Any]
    payload: bytes | memoryview
    nbytes: int
    """Of its arrays."""
    over: bool
    """Whether no batch comes behind it."""


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


def make_batch(opened: OpenPipeline, step: Step) -> Made:
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
    return Made(step, header, payload, sum(array.nbytes for _, array in arrays), over)


class BatchFrames:
    """A stream of batches in frames, each with the token behind it.

    Args:
        opened: whose batches they are.
    """

    def __init__(self, opened: OpenPipeline) -> None:
        self._opened = opened
        self._writer = FrameWriter()

    def batch(self, made: Made) -> Buffers:
        """The frame of a batch, and of the end of its epoch if it is the last of one."""
        buffers = self._writer.frame(FrameKind.DATA, made.header, made.payload)
        if made.step.ends_epoch:
            about = {"epoch": made.step.epoch, "token": made.header["token"]}
            buffers += self._writer.frame(FrameKind.EPOCH, about)
        return buffers

    def beat(self, state: State) -> Buffers:
        """The server is alive, and works on the batch behind a state."""
        token = self._opened.tokens.token(state)
        return self._writer.frame(FrameKind.HEARTBEAT, {"token": token})

    def end(
        self, reason: str, state: State, *, finished: bool, profile: dict[str, Any] | None = None
    ) -> Buffers:
        """The end.

        Args:
            reason: exhausted, count, bytes, time, epoch or drain.
            state: what goes on behind it.
            finished: whether nothing does.
            profile: seconds, by what they were used for.
        """
        header = {
            "reason": reason,
            "data_finished": finished,
            "token": self._opened.tokens.token(state),
        }
        if profile is not None:
            header["profile"] = profile
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem, state: State) -> Buffers:
        """What went wrong with the batch behind a state; the token goes on with it."""
        token = self._opened.tokens.token(state)
        return self._writer.frame(FrameKind.ERROR, {"problem": problem.to_json(), "token": token})


def encode_batch(opened: OpenPipeline, made: Made, form: str) -> bytes:
    """One batch as a whole body.

    Raises:
        NotAcceptableError: it has several arrays, and is wanted as one.
    """
    if form == "frames":
        frames = BatchFrames(opened)
        buffers = frames.batch(made)
        reason = "exhausted" if made.over else "count"
        buffers += frames.end(reason, made.step.state, finished=made.over)
        return b"".join(buffers)
    if form == "arrow":
        return _arrow(opened.pipeline.schema, made)
    arrays = list(arrays_of(opened.pipeline.schema, made.step))
    if len(arrays) > 1:
        raise NotAcceptableError(
            "the batches of this pipeline are several arrays, and npy has one",
            hint="Ask for frames or arrow, or have the source give one field",
        )
    return npy_bytes(arrays[0][1])


def batch_headers(made: Made) -> dict[str, str]:
    """What the headers of an answer of one batch say."""
    step = made.step
    return {
        "Thalweg-Token": made.header["token"],
        "Thalweg-Batch": str(step.sequence),
        "Thalweg-Epoch": str(step.epoch),
        "Thalweg-Count": str(step.count),
        "Thalweg-Rows": f"{step.rows[0]}-{step.rows[1]}",
    }


def _arrow(fields: tuple[Field, ...], made: Made) -> bytes:
    """A batch as an Arrow IPC stream; what belongs to it is metadata of its schema."""
    columns = {f.name: _arrow_column(made.step.block[f.name], f) for f in fields}
    about = {name: str(made.header[name]) for name in ("seq", "epoch", "count", "token")}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata(about)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
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
    made: Any = pa.array(native.reshape(-1))
    for size in reversed(values.shape[1:]):
        made = pa.FixedSizeListArray.from_arrays(made, size)
    return made
