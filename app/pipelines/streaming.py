"""Batches encoded, each as frames, Arrow or npy, and as a resumable stream of frames."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from app.errors import NotAcceptableError, Problem
from app.http.bodies import Threads
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import EXHAUSTED, HEARTBEAT_SECONDS, Encoder, Limits, Progress, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array
from app.streams.sender import Head
from app.telemetry import Metrics
from app.tiles.encoding import arrow_bytes, npy_bytes, octets_of
from core.arrays import Array
from core.budget import Scope, current
from core.errors import PositionError
from core.iterate.arrow_sink import fixed_array
from core.iterate.base import Column, Field, Ragged, State
from core.iterate.wrapped import Profile
from core.pipelines.pipeline import Step

from .opened import OpenPipeline

ALIGNMENT = 64
"""Each array of a payload begins at a multiple of this many bytes."""
BATCH_FORMATS = ("frames", "arrow", "npy")
"""Formats of a single batch, the default first."""


@dataclass(slots=True, eq=False)  # frozen, it would take five times as long to make
class Batch:
    """A batch as a frame, without the step that it is of, whose arrays may have been copied.

    Nothing changes it.
    """

    header: dict[str, Any]
    payload: Sequence[bytes | memoryview]
    """Arrays of the batch, and the zeros between them."""
    nbytes: int
    """Size of its arrays in bytes."""
    last: bool
    """Whether it is known that no batch follows."""
    state: State
    """State after the batch."""
    ends_epoch: bool


def arrays_of(fields: tuple[Field, ...], step: Step) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a batch by name; a ragged field gives its values and its offsets."""
    for field in fields:
        column = step.block[field.name]
        if isinstance(column, Ragged):
            # Values of other ranks may follow the last offset.
            yield field.name, column.values[: column.offsets[-1]]
            yield f"{field.name}.offsets", column.offsets
        else:
            yield field.name, column


def make_batch(opened: OpenPipeline, step: Step, every: int = 1) -> Batch:
    """Build a batch with the token that continues after it; the next has a number ``every`` higher.

    The payload refers to the memory of the arrays.
    """
    arrays = list(arrays_of(opened.pipeline.schema, step))
    descriptions: list[dict[str, Any]] = []
    payload: list[bytes | memoryview] = []
    end = 0
    for name, array in arrays:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        descriptions.append(describe_array(name, array, start))
        if start > end:
            payload.append(bytes(start - end))
        payload.append(octets_of(_compact(array)))
        end = start + array.nbytes
    header = {
        "seq": step.sequence,
        "epoch": step.epoch,
        "count": step.count,
        "rows": list(step.rows),
        "token": opened.tokens.token(step.state),
        "arrays": descriptions,
    }
    if len(arrays) == 1:
        header |= {name: descriptions[0][name] for name in ("dtype", "shape")}
    batches = opened.pipeline.batches
    last = step.data_finished or (batches is not None and step.sequence + every >= batches)
    nbytes = sum(array.nbytes for _, array in arrays)
    return Batch(header, payload, nbytes, last, step.state, step.ends_epoch)


def _compact(array: Array) -> Array:
    """Return an array that keeps no other memory: one rank's rows would keep those of all."""
    whole = array.base
    is_part = isinstance(whole, np.ndarray) and whole.nbytes > 2 * array.nbytes
    if not is_part and array.flags.c_contiguous:
        return array
    current().hold("batch", array.nbytes)
    return array.copy()


def epoch_header(batch: Batch) -> dict[str, Any]:
    """Return the header of the EPOCH frame after the last batch of an epoch."""
    return {"epoch": batch.header["epoch"], "token": batch.header["token"]}


def encode_batch(opened: OpenPipeline, step: Step, batch: Batch, form: str) -> bytes:
    """Encode one batch as a whole body.

    Args:
        opened: the pipeline.
        step: what the batch is made of.
        batch: the batch.
        form: a format from ``BATCH_FORMATS``.

    Raises:
        NotAcceptableError: the batch has several arrays or types that the format lacks.
    """
    if form == "frames":
        return _frames(batch)
    if form == "arrow":
        return _arrow(opened.pipeline.schema, step, batch)
    arrays = list(arrays_of(opened.pipeline.schema, step))
    if len(arrays) > 1:
        raise NotAcceptableError(
            "the batches of this pipeline have several arrays, but npy holds one",
            hint="Request frames or arrow, or select one field in the source",
        )
    return npy_bytes(arrays[0][1])


def _frames(batch: Batch) -> bytes:
    """Encode a stream of one batch, its END frame included."""
    writer = FrameWriter()
    buffers = writer.frame(FrameKind.DATA, batch.header, *batch.payload)
    if batch.ends_epoch:
        buffers += writer.frame(FrameKind.EPOCH, epoch_header(batch))
    end = {
        "reason": "exhausted" if batch.last else "count",
        "data_finished": batch.last,
        "token": batch.header["token"],
    }
    return b"".join(buffers + writer.frame(FrameKind.END, end))


def batch_headers(batch: Batch) -> dict[str, str]:
    """Return the response headers that describe one batch."""
    header = batch.header
    first, stop = header["rows"]
    return {
        "Thalweg-Token": header["token"],
        "Thalweg-Batch": str(header["seq"]),
        "Thalweg-Epoch": str(header["epoch"]),
        "Thalweg-Count": str(header["count"]),
        "Thalweg-Rows": f"{first}-{stop}",
    }


def _arrow(fields: tuple[Field, ...], step: Step, batch: Batch) -> bytes:
    """Encode a batch as an Arrow IPC stream; its position and token are schema metadata."""
    columns = {f.name: _arrow_column(step.block[f.name], f) for f in fields}
    metadata = {name: str(batch.header[name]) for name in ("seq", "epoch", "count", "token")}
    record = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return arrow_bytes(record.replace_schema_metadata(metadata))


def _arrow_column(column: Column, field: Field) -> Any:  # noqa: ANN401 - pyarrow's
    if field.dtype.names is not None or field.dtype.kind == "c":
        raise NotAcceptableError(
            f"Arrow has no type for {field.name!r}, which is {field.dtype}", hint="Request frames"
        )
    if not isinstance(column, Ragged):
        return fixed_array(column)
    values = fixed_array(column.values[: column.offsets[-1]])
    offsets: Any = pa.array(column.offsets)
    return pa.LargeListArray.from_arrays(offsets, values)


OVER_BUDGET = {"memory": "bytes", "cpu": "time", "items": "time"}
"""Reason to end with, by the budget that the next batch exceeds."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which batches to send: those ``offset``, ``offset + every``, ... after the start.

    Attributes:
        rank: rank whose rows of each batch to take.
        world: number of ranks that share each batch.
        offset: batches to pass over first.
        every: distance from one batch to the next.
    """

    rank: int = 0
    world: int = 1
    offset: int = 0
    every: int = 1


def make_batches(
    opened: OpenPipeline, selection: Selection, limit: int, times: Times
) -> Iterator[Batch]:
    """Build batches in order, beginning with the first the request asks for.

    The iterator may move between threads, but only one at a time may advance it.

    Args:
        opened: the pipeline.
        selection: which batches.
        limit: maximum number of batches.
        times: receives the times of the stages, and why there is no batch at all.
    """
    state, skipped, every = opened.start, selection.offset, selection.every
    pipeline = opened.pipeline
    pipeline.check(state)
    reader = pipeline.reader(selection.rank, selection.world, time.perf_counter, every)
    for _ in range(limit):
        with Scope():
            with opened.profiles.into(times.profile):
                try:
                    state = pipeline.skip(state, skipped) if skipped else state
                except PositionError:
                    return
                step = reader.step(state)
            if step is None:
                times.notes = opened.notes(state)
                return
            batch = make_batch(opened, step, every)
        # While the batch is sent and the next is made, only what the frame needs is kept.
        del step
        yield batch
        if batch.last:
            times.notes = pipeline.notes
            return
        state, skipped = batch.state, every - 1


class BatchFrames(Encoder[Batch]):
    """Encoder of batches as frames, each with the token that continues after it.

    Args:
        opened: the pipeline.
        times: reported in the END frame.
        progress: of the answer, whose epochs are counted here.
    """

    def __init__(self, opened: OpenPipeline, times: Times, progress: Progress) -> None:
        self._opened = opened
        self._times = times
        self._progress = progress
        self._writer = FrameWriter()
        self._state: State = opened.start
        self.finished = opened.is_over(opened.start)

    def item(self, item: Batch) -> Buffers:
        """Encode a batch; an EPOCH frame follows the last of an epoch."""
        buffers = self._writer.frame(FrameKind.DATA, item.header, *item.payload)
        if item.ends_epoch:
            buffers += self._writer.frame(FrameKind.EPOCH, epoch_header(item))
        self._state = item.state
        self._progress.epochs += item.ends_epoch
        self.finished = item.last
        return buffers

    def heartbeat(self) -> Buffers:
        """Repeat the token of the batch the client is waiting for."""
        return self._writer.frame(FrameKind.HEARTBEAT, {"token": self._token()})

    def end(self, reason: str, progress: Progress) -> Buffers:
        """Give the reason, whether the data is finished, the times of the answer, and notes."""
        header = {
            "reason": reason,
            "data_finished": self.finished or reason == EXHAUSTED,
            "token": self._token(),
            "profile": self._times.describe(progress),
        }
        if reason == EXHAUSTED and self._times.notes:
            header["notes"] = self._times.notes
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers:
        """Encode the problem with the token that retries the batch."""
        header = {"problem": problem.to_json(), "token": self._token()}
        return self._writer.frame(FrameKind.ERROR, header)

    def _token(self) -> str:
        return self._opened.tokens.token(self._state)


class Times:
    """Where the time of an answer was spent."""

    def __init__(self) -> None:
        self.profile = Profile(time.perf_counter)
        self.ahead: Ahead[Batch] | None = None
        self.notes: list[str] = []

    def describe(self, progress: Progress) -> dict[str, object]:
        """Return the times in seconds, as JSON values."""
        return {
            "seconds": progress.seconds,
            "made": 0.0 if self.ahead is None else self.ahead.seconds,
            "waited": progress.waited,
            "batches": progress.count,
            "bytes": progress.nbytes,
            "stages": self.profile.report(),
        }


def batch_stream(
    opened: OpenPipeline,
    selection: Selection,
    limits: Limits,
    *,
    coding: str | None,
    threads: Threads,
    drain: Drain,
    metrics: Metrics,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> Stream[Batch]:
    """Build the answer that streams the batches of a pipeline.

    Args:
        opened: the pipeline; stays open until the answer has ended.
        selection: which batches to send.
        limits: how much the answer may carry.
        coding: compression of the whole answer.
        threads: build the batches.
        drain: ends the stream early.
        metrics: count the batches.
        heartbeat: seconds between signs of life.
    """
    times, progress = Times(), Progress()
    batches = make_batches(opened, selection, limits.count, times)
    times.ahead = Ahead(batches, threads.start)
    return Stream(
        times.ahead,
        BatchFrames(opened, times, progress),
        Head.of_stream(MEDIA_TYPES["frames"], coding),
        threads,
        drain,
        coding,
        limits,
        heartbeat,
        sent=metrics.batches.inc,
        progress=progress,
        over_budget=OVER_BUDGET,
    )
