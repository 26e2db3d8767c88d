"""The progress of a run, as events.

The first event describes the run and all of its streams; each further one, the run and the
streams that have changed. The id of an event is a digest of all that is known by then, so that a
client that connects again is told nothing it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

from app.errors import Problem
from app.streams.frames import Buffers
from app.streams.limits import Progress

from ..describing import describe_stream
from ..records import RunRecord
from ..sealing.jobs import Jobs
from ..streams import Streams
from .events import server_event

ENDED = ("done", "failed")
"""States of a run in which there is no more progress."""
PAUSE = 0.1
"""Seconds between two events at least."""


@dataclass(frozen=True, slots=True)
class Report:
    """One event."""

    buffer: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the event."""
        return len(self.buffer)


class ProgressReader:
    """Describes a run whenever it has changed; in threads, one call at a time.

    Args:
        streams: the streams of all runs.
        jobs: of sealing.
        run: the run.
        known: id of the last event that the client got; None for none.
        follow: whether to wait for changes.
    """

    def __init__(
        self,
        streams: Streams,
        jobs: Jobs,
        run: RunRecord,
        known: str | None,
        *,
        follow: bool,
    ) -> None:
        self._follow = follow
        self._runs = streams.runs
        self._streams = streams
        self._jobs = jobs
        self._run = run
        self._known = known
        self._known_streams: dict[str, dict[str, Any]] = {}
        self._told = False
        self.ended = False
        """Whether nothing more is to be told."""

    def step(self) -> Report | None:
        """Return the next event; None if nothing has changed.

        Raises:
            NotFoundError: the run was deleted.
        """
        run = self._run = self._runs.again(self._run)
        streams = {s.id: describe_stream(s) for s in self._streams.of(run)}
        described: dict[str, Any] = {
            "run": run.id,
            "state": run.state,
            "bytes": sum(stream["offset"] for stream in streams.values()),
            "events": sum(stream["events"] for stream in streams.values()),
            "problem": run.problem,
        }
        for job in self._jobs.of_run(run.owner, run.id):
            if job.seals:
                described["sealing"] = {"done": job.done, "total": job.total}
        self.ended = run.state in ENDED or not self._follow
        ident = xxhash.xxh3_64_hexdigest(orjson.dumps([described, list(streams.values())]))
        if ident == self._known:
            return None
        changed = [s for key, s in streams.items() if self._known_streams.get(key) != s]
        gone = [key for key in self._known_streams if key not in streams]
        name = "change" if self._told else "state"
        self._known, self._known_streams, self._told = ident, streams, True
        data = orjson.dumps({**described, "streams": changed, "deleted": gone})
        return Report(server_event(name, data, ident))


class ProgressEvents:
    """The form of events on the wire."""

    heavy = False
    finished = False

    def begin(self) -> Buffers:
        """Nothing."""
        return []

    def item(self, item: Report) -> Buffers:
        """Return the event."""
        return [item.buffer]

    def heartbeat(self) -> Buffers:
        """A comment."""
        return [b": alive\n\n"]

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """Say that there are no more events."""
        return [server_event("end", orjson.dumps({"reason": reason}))]

    def fail(self, problem: Problem) -> Buffers:
        """Say why there are no more events."""
        return [server_event("problem", orjson.dumps(problem.to_json()))]
