"""From frames to rows that may be handed out: whole groups, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ProtocolError
from ..transport.answers import FrameAnswer
from ..transport.frames import Frame, Rows, dtype_of


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a stream to resume from: all rows before it have been answered.

    Attributes:
        token: to post with, or None at the beginning.
        offset: stream offset of the first byte to post.
    """

    token: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """How an answer ended.

    Attributes:
        reason: ``complete``; ``partial`` if more was announced; ``drain`` if the
            server stops.
        completeness: ``declared``: as many events or bytes as were declared;
            ``undeclared``: a stream has no end marker, so blocks may be missing;
            ``partial``.
        events: complete events of the whole stream so far.
        bytes: bytes of the stream that were read.
        reopened_check: ``whole``, or ``since resume`` where ids do not ascend and
            events before the token are unknown.
        events_without_occurrence: complete events of the last request that never occur, and so
            have no rows in reports of periods; None without occurrences.
    """

    reason: str
    completeness: str
    events: int
    bytes: int
    reopened_check: str
    events_without_occurrence: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, at most one table per report.

    Attributes:
        tables: report and rows.
        position: that follows them; None at the end of the stream.
    """

    tables: tuple[tuple[str, Rows], ...]
    position: Position | None


class RowReader(FrameAnswer[Group, End]):
    """Assembles the groups of one answer.

    A group is the rows of some complete events in all reports. All of its frames but the
    last say that more follows; until then its rows wait, and are dropped if it never comes.

    Attributes:
        dtypes: of the rows of each report, those without rows included; known at the end.
    """

    def __init__(self) -> None:
        self._tables: dict[str, list[Rows]] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}

    def _data(self, frame: Frame) -> Group | None:
        rows = frame.array("rows")
        if len(rows):
            self._tables.setdefault(str(frame.header.get("report")), []).append(rows)
        return None if frame.more else self._group(_position(frame.header))

    def _group(self, position: Position | None) -> Group:
        tables = tuple(
            (report, parts[0] if len(parts) == 1 else np.concatenate(parts))
            for report, parts in self._tables.items()
        )
        self._tables.clear()
        return Group(tables, position)

    def _finish(self, header: Mapping[str, Any]) -> Group:
        absent = header.get("events_without_occurrence")
        try:
            self.dtypes = {str(k): dtype_of(v) for k, v in header.get("dtypes", {}).items()}
            self.end = End(
                str(header["reason"]),
                str(header["completeness"]),
                int(header["events"]),
                int(header["bytes"]),
                str(header["reopened_check"]),
                None if absent is None else int(absent),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the END frame does not say how it ended: {e}") from e
        if self.end.reason == "complete":
            return self._group(None)
        # Rows of an unfinished event come again after the token.
        self._tables.clear()
        return self._group(_position(header))


def _position(header: Mapping[str, Any]) -> Position:
    token, offset = header.get("token"), header.get("offset")
    if not isinstance(token, str) or not isinstance(offset, int):
        raise ProtocolError("a frame does not say where to resume")
    return Position(token, offset)
