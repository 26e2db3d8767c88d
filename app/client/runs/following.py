"""The rows of a run while its streams arrive, and what happens to it meanwhile.

Both are answers that last as long as the run, and that any server continues: rows in frames,
after the token of the last one; progress in events (SSE), after the id of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ProtocolError
from ..transport.frames import Frame, FrameAnswer, Rows


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


class RowFrames(FrameAnswer[list[RunRows], str]):
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
