"""The answer to a reduction: heartbeats that report progress, then the results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from app.errors import Problem
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import DRAIN, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array
from app.streams.limits import Progress
from app.streams.sender import Head
from app.streams.threads import Threads
from core.arrays import Floats

from .encoding import octets_of
from .reductions import ReductionJob

HEARTBEAT_SECONDS = 0.5
"""Short, because a person may be watching."""


@dataclass(frozen=True, slots=True)
class Result:
    """One named array of a reduction."""

    name: str
    values: Floats

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return self.values.nbytes


class RunningJob:
    """A reduction in progress.

    Attributes:
        done: tiles reduced so far.
        total: tiles to reduce; 0 until the first progress report.
        stopped: set it to cancel the job.
    """

    def __init__(self, job: ReductionJob) -> None:
        self._job = job
        self.done = 0
        self.total = 0
        self.stopped = threading.Event()

    def _update(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def results(self) -> Iterator[Result]:
        """Compute the results, then yield them one by one.

        Raises:
            CancelledError: ``stopped`` was set.
            CoreError, ServiceError: the frames cannot be read.
        """
        for name, values in self._job.run(self._update, self.stopped.is_set).items():
            yield Result(name, values)


class ResultFrames:
    """Encoder of results as frames.

    Tokens are None: a repeated request resumes from the stored results of segments.
    """

    heavy = False
    finished = False

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._writer = FrameWriter()

    def begin(self) -> Buffers:
        """Return no frames."""
        return []

    def item(self, item: Result) -> Buffers:
        """Encode a result; the payload is a view of its values."""
        array = describe_array("data", item.values)
        header = {
            "name": item.name,
            "token": None,
            "arrays": [array],
            "dtype": array["dtype"],
            "shape": array["shape"],
        }
        return self._writer.frame(FrameKind.DATA, header, octets_of(item.values))

    def heartbeat(self) -> Buffers:
        """Report how many tiles are done, and of how many."""
        header = {"token": None, "done": self._running.done, "of": self._running.total}
        return self._writer.frame(FrameKind.HEARTBEAT, header)

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """Give the reason ``complete``, or ``drain`` if the results are missing."""
        header = {"reason": reason if reason == DRAIN else "complete", "token": None}
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers:
        """Encode the problem; a failure ends the whole reduction."""
        return self._writer.frame(FrameKind.ERROR, {"problem": problem.to_json(), "token": None})


def reduction_stream(
    job: ReductionJob, *, coding: str | None, threads: Threads, reducing: Threads, drain: Drain
) -> Stream[Result]:
    """Build the answer to a reduction.

    Args:
        job: the reduction.
        coding: how the answer is compressed; None if it is not.
        threads: for calls that compute.
        reducing: other threads, in which the job waits for its engine.
        drain: cuts the answer when the server stops.
    """
    running = RunningJob(job)
    return Stream(
        Ahead(running.results(), reducing.start, running.stopped),
        ResultFrames(running),
        Head.of_stream(MEDIA_TYPES["frames"], coding),
        threads,
        drain,
        coding,
        heartbeat=HEARTBEAT_SECONDS,
    )
