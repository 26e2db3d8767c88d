"""The answer to a reduction: heartbeats that tell the progress, then the results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.errors import Problem
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import DRAIN, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array
from app.streams.limits import Progress
from app.streams.sender import Head
from app.streams.threads import Threads

from .encoding import octets_of
from .reductions import ReductionJob

HEARTBEAT_SECONDS = 0.5
"""Short, because a person may be watching the progress."""


@dataclass(frozen=True, slots=True)
class Result:
    """One array a reduction gives."""

    name: str
    values: npt.NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes


class Running:
    """A job in progress: its results, once it has computed them."""

    def __init__(self, job: ReductionJob) -> None:
        self._job = job
        self.done = 0
        self.total = 0
        self.stopped = threading.Event()

    def _watch(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def results(self) -> Iterator[Result]:
        """Compute the results, then give them one by one.

        Raises:
            CancelledError: ``stopped`` was set.
            CoreError, ServiceError: the frames cannot be read.
        """
        for name, values in self._job.run(self._watch, self.stopped.is_set).items():
            yield Result(name, values)


class ResultFrames:
    """Results as frames. There is no token: a repeated request finds finished segments kept."""

    heavy = False
    finished = False

    def __init__(self, running: Running) -> None:
        self._running = running
        self._writer = FrameWriter()

    def begin(self) -> Buffers:
        """Nothing comes before the first result."""
        return []

    def item(self, item: Result) -> Buffers:
        """The frame of a result; refers to its values."""
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
        """How many tiles are done, and of how many."""
        header = {"token": None, "done": self._running.done, "of": self._running.total}
        return self._writer.frame(FrameKind.HEARTBEAT, header)

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """``complete``, or ``drain`` before the results."""
        header = {"reason": reason if reason == DRAIN else "complete", "token": None}
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers:
        """A failure ends the whole reduction."""
        return self._writer.frame(FrameKind.ERROR, {"problem": problem.to_json(), "token": None})


def reduction_stream(
    job: ReductionJob, *, coding: str | None, threads: Threads, drain: Drain
) -> Stream[Result]:
    """The answer to a reduction."""
    running = Running(job)
    return Stream(
        Ahead(running.results(), _own_thread, running.stopped),
        ResultFrames(running),
        Head.of_stream(MEDIA_TYPES["frames"], coding),
        threads,
        drain,
        coding,
        heartbeat=HEARTBEAT_SECONDS,
    )


def _own_thread(function: Callable[[], list[Result]]) -> asyncio.Future[list[Result]]:
    """Start a call that waits for the engine, while the workers serve requests."""
    return asyncio.ensure_future(asyncio.to_thread(function))
