"""Batches as a resumable stream of frames."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from app.errors import Problem
from app.http.bodies import Threads
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import EXHAUSTED, HEARTBEAT_SECONDS, Encoder, Limits, Progress, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter
from app.streams.sender import Head
from app.telemetry import Metrics
from core.budget import Scope
from core.errors import PositionError
from core.iterate.base import State
from core.iterate.wrapped import Profile

from .encoding import Batch, epoch_header, make_batch
from .opened import OpenPipeline

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
    """

    def __init__(self, opened: OpenPipeline, times: Times) -> None:
        self._opened = opened
        self._times = times
        self._writer = FrameWriter()
        self._state: State = opened.start
        self.finished = opened.is_over(opened.start)

    def item(self, item: Batch) -> Buffers:
        """Encode a batch; an EPOCH frame follows the last of an epoch."""
        buffers = self._writer.frame(FrameKind.DATA, item.header, *item.payload)
        if item.ends_epoch:
            buffers += self._writer.frame(FrameKind.EPOCH, epoch_header(item))
        self._state = item.state
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

    def count(batch: Batch) -> None:
        progress.epochs += batch.ends_epoch
        metrics.batches.inc()

    batches = make_batches(opened, selection, limits.count, times)
    times.ahead = Ahead(batches, threads.start)
    return Stream(
        times.ahead,
        BatchFrames(opened, times),
        Head.of_stream(MEDIA_TYPES["frames"], coding),
        threads,
        drain,
        coding,
        limits,
        heartbeat,
        sent=count,
        progress=progress,
        over_budget=OVER_BUDGET,
    )
