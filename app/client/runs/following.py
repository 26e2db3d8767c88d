"""The rows of a run while its streams arrive, and what happens to it meanwhile.

Both are answers that last as long as the run, and that any server continues: rows in frames,
after the token of the last one; progress in events (SSE), after the id of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ConnectionFailed, ProtocolError
from ..transport.answers import FrameAnswer, error_of
from ..transport.effects import Deliver, Finish, Receive, Steps
from ..transport.frames import Frame, FrameReader, Rows
from ..transport.resumable import ResumableStream
from ..transport.retry import Backoff
from .requests import RunRequests

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class RunRows:
    """Rows of a report of one stream.

    Attributes:
        partition: of the stream.
        stream: its id.
        set_id: the summary set; None if the streams are not of items.
        rows: structured array, shape (n,).
        token: to resume after them; where the rows of several summary sets belong together,
            only that of the last ones leads after them.
    """

    partition: int
    stream: str
    set_id: int | None
    rows: Rows
    token: str | None


class _RowFrames(FrameAnswer[list[RunRows], str]):
    """Assembles groups of frames: all of a group's rows have the token of its last frame."""

    def __init__(self) -> None:
        self._tables: dict[int | None, list[Rows]] = {}

    def _data(self, frame: Frame) -> list[RunRows] | None:
        header = frame.header
        set_id = header.get("set")
        if not isinstance(set_id, int | None):
            raise ProtocolError("a frame names no summary set")
        self._tables.setdefault(set_id, []).append(frame.array("rows"))
        if frame.more:
            return None
        token, partition, stream = (header.get(n) for n in ("token", "partition", "stream"))
        if not isinstance(token, str) or not isinstance(partition, int):
            raise ProtocolError("a frame does not say whose rows it has, and where to resume")
        tables, self._tables = self._tables, {}
        return [
            RunRows(partition, str(stream), set_id, _joined(parts), token)
            for set_id, parts in tables.items()
        ]

    def _finish(self, header: Mapping[str, Any]) -> list[RunRows]:
        self.end = str(header.get("reason"))
        self._tables.clear()
        return []


def _joined(parts: list[Rows]) -> Rows:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class RowStream(ResumableStream):
    """Delivers the rows of a run as RunRows.

    Args:
        requests: about the run.
        report: name of a report with rows of events.
        after: token to resume with; None to begin.
        stream: id of the only stream wanted, or None.
        follow: go on until the run is sealed.
        backoff: decides on further attempts.

    Attributes:
        end: why the rows ended, once they have.
    """

    def __init__(  # noqa: PLR0913 - what a stream consists of
        self,
        requests: RunRequests,
        report: str,
        after: str | None,
        stream: str | None,
        backoff: Backoff,
        *,
        follow: bool,
    ) -> None:
        super().__init__(backoff, after)
        self._requests = requests
        self._report = report
        self._stream = stream
        self._follow = follow
        self.end: str | None = None

    @property
    def done(self) -> bool:
        """Whether no row follows."""
        return self.end is not None

    def _attempt(self) -> Steps[None]:
        request = self._requests.rows(self._report, self.token, self._stream, follow=self._follow)
        yield from self._open(request)
        rows = _RowFrames()
        frames = FrameReader(rows.allocate)
        while rows.end is None:
            tables = (yield from rows.receive(frames)) or []
            for table in tables[:-1]:
                yield Deliver(replace(table, token=self.token))
            for table in tables[-1:]:
                # Before: what is delivered must not come again.
                self.token = table.token
                yield Deliver(table)
        yield Finish()
        if rows.end == "drain":
            raise ConnectionFailed("the server is stopping")
        self.end = rows.end


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened to a run.

    Attributes:
        id: token that resumes after it.
        kind: name of the event.
        data: what it says.
    """

    id: str
    kind: str
    data: Mapping[str, Any]


class EventLines:
    """Splits a stream of server-sent events. Bytes in, events out."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}
        self._id = ""

    def feed(self, data: bytes | memoryview) -> Iterator[RunEvent]:
        """The events that are complete now.

        Raises:
            ProtocolError: the data of an event is not a JSON object.
        """
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            event = self._take(line.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _take(self, line: str) -> RunEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "data" and "data" in self._fields:
            self._fields["data"] += f"\n{value}"
        elif name:  # a line that begins with a colon keeps the connection alive
            self._fields[name] = value
        return None

    def _dispatch(self) -> RunEvent | None:
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        try:
            data = json.loads(fields["data"])
        except ValueError as e:
            raise ProtocolError("an event is not JSON") from e
        if not isinstance(data, dict):
            raise ProtocolError("an event is not a JSON object")
        return RunEvent(self._id, fields.get("event", "message"), data)


class EventStream(ResumableStream):
    """Delivers what happens to a run as RunEvents, until it is done or has failed.

    Args:
        requests: about the run.
        after: id of the last event that is known; None to begin.
        backoff: decides on further attempts.
    """

    def __init__(self, requests: RunRequests, after: str | None, backoff: Backoff) -> None:
        super().__init__(backoff, after)
        self._requests = requests
        self._finished = False

    @property
    def done(self) -> bool:
        """Whether nothing more will happen."""
        return self._finished

    def _attempt(self) -> Steps[None]:
        yield from self._open(self._requests.progress(self.token))
        lines = EventLines()
        buffer = memoryview(bytearray(_PIECE))
        while True:
            # A view is filled before it is given back: an event must not wait for another.
            count: int = yield Receive(buffer[:1])
            if not count:
                break
            for event in lines.feed(buffer[:count]):
                if event.kind == "problem":
                    raise error_of({"problem": event.data})
                if event.kind == "end":
                    self._finished = event.data.get("reason") != "drain"
                    continue
                self.token = event.id or self.token
                yield Deliver(event)
        yield Finish()
        if not self._finished:
            raise ConnectionFailed("the events were cut, or the server is stopping")
