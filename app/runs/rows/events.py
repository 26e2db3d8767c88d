"""Rows as server-sent events: each event has the rows up to a token, and the token as its id.

A browser's ``EventSource`` sends the id of the last event it got when it connects again, so it
goes on after a cut without code of its own.

The first event of the progress of a run describes the run and all of its streams; each further one,
the run and the streams that have changed. Its id is a digest of all that is known by then, so that
a client that connects again is told nothing it knows.
"""

from __future__ import annotations

from typing import Any

import orjson
import xxhash

from app.errors import Problem
from app.losses.encoding import RowEncoder, Tokens
from app.losses.posting import Ending
from app.losses.spool import Item, Mark
from app.losses.tables import TableEncoder
from app.streams.driver import Encoder, Progress
from app.streams.frames import Buffers
from core.budget import current

from ..describing import describe_stream
from ..records import RunRecord
from ..sealing.jobs import Jobs
from ..streams import Streams

MEDIA_TYPE = "text/event-stream"


def server_event(name: str | None, data: bytes, ident: str | None = None) -> bytes:
    """Return one event.

    Args:
        name: its type; None for none.
        data: lines of text; without any, only the id takes effect.
        ident: its id; None to leave the last one.
    """
    lines = [] if name is None else [b"event: " + name.encode()]
    lines += [] if ident is None else [b"id: " + ident.encode()]
    if data:
        # A list of lines would take several times as much.
        lines.append(b"data: " + data.removesuffix(b"\n").replace(b"\n", b"\ndata: "))
    return b"\n".join(lines) + b"\n\n"


class RowEvents(RowEncoder):
    """Encodes rows as events ``rows``, then one ``end`` or ``problem``.

    Args:
        encoder: encodes rows as lines of JSON.
        tokens: creates tokens.
    """

    tells_end = True
    shows_marks = True

    def __init__(self, encoder: TableEncoder, tokens: Tokens) -> None:
        self._encoder = encoder
        self._tokens = tokens
        self._lines: list[bytes | bytearray | memoryview] = []

    def add(self, item: Item) -> Buffers:
        """Hold rows until the mark after them."""
        if not isinstance(item, Mark):
            # Each call for lines of JSON has a buffer of its own.
            self._lines.append(self._encoder.encode(item.rows))
            return []
        # Together, as an event, and as they are put behind each other there.
        current().hold("rows", 4 * sum(map(len, self._lines)))
        data = b"".join(self._lines)
        self._lines.clear()
        return [server_event("rows" if data else None, data, self._tokens(item))]

    def heartbeat(self) -> Buffers:
        """A comment."""
        return [b": alive\n\n"]

    def end(self, ending: Ending) -> Buffers:
        """Say how the rows ended."""
        described = {
            "reason": ending.reason,
            "completeness": ending.completeness,
            "events": ending.events,
            "bytes": ending.bytes,
        }
        return [server_event("end", orjson.dumps(described))]

    def fail(self, problem: Problem, _last: Mark | None) -> Buffers:
        """Say why there are no more rows."""
        return [server_event("problem", orjson.dumps(problem.to_json()))]


ENDED = ("done", "failed")
"""States of a run in which there is no more progress."""
PAUSE = 0.1
"""Seconds between two events at least."""


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
        self, streams: Streams, jobs: Jobs, run: RunRecord, known: str | None, *, follow: bool
    ) -> None:
        self._follow = follow
        self._runs = streams.runs
        self._streams = streams
        self._jobs = jobs
        self._run = run
        self._known = known
        self._known_streams: dict[str, dict[str, Any]] = {}
        self._has_told = False
        self.ended = False
        """Whether nothing more is to be told."""

    def step(self) -> memoryview | None:
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
        name = "change" if self._has_told else "state"
        self._known, self._known_streams, self._has_told = ident, streams, True
        data = orjson.dumps({**described, "streams": changed, "deleted": gone})
        return memoryview(server_event(name, data, ident))


class ProgressEvents(Encoder[memoryview]):
    """The form of events on the wire."""

    def item(self, item: memoryview) -> Buffers:
        """Return the event."""
        return [item]

    def heartbeat(self) -> Buffers:
        """A comment."""
        return [b": alive\n\n"]

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """Say that there are no more events."""
        return [server_event("end", orjson.dumps({"reason": reason}))]

    def fail(self, problem: Problem) -> Buffers:
        """Say why there are no more events."""
        return [server_event("problem", orjson.dumps(problem.to_json()))]
