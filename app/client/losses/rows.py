"""From frames to rows that may be handed out: whole groups, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

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
        events_only_in_occurrence: events that occur and that the stream lacks; None without
            occurrences, or where the stream came in several requests.
        ledger_bound: of reports of whole runs, from frames: the most that their sums can take,
            as ``state_bytes`` and ``memory_bytes``, with ``samples`` and ``summaries`` (None if
            their number is not known; the bound is then that of one).
    """

    reason: str
    completeness: str
    events: int
    bytes: int
    reopened_check: str
    events_without_occurrence: int | None = None
    events_only_in_occurrence: int | None = None
    ledger_bound: Mapping[str, int | None] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, at most one table per report and summary set.

    Attributes:
        tables: report and rows.
        set_ids: the summary set of each table; None where the stream is not of items.
        position: that follows them; None at the end of the stream.
    """

    tables: tuple[tuple[str, Rows], ...]
    position: Position | None
    set_ids: tuple[int | None, ...] = ()


class RowReader(FrameAnswer[Group, End]):
    """Assembles the groups of one answer.

    A group is the rows of some complete events in all reports. All of its frames but the
    last say that more follows; until then its rows wait, and are dropped if it never comes.

    Attributes:
        dtypes: of the rows of each report, those without rows included; known at the end.
        set_ids: summary sets of a stream of items, known at the end; none of other streams.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int | None], list[Rows]] = {}
        self.set_ids: tuple[int, ...] = ()
        self.dtypes: dict[str, np.dtype[Any]] = {}

    def _data(self, frame: Frame) -> Group | None:
        rows = frame.array("rows")
        if len(rows):
            set_id = frame.header.get("set")
            if not isinstance(set_id, int | None):
                raise ProtocolError("a frame names no summary set")
            key = str(frame.header.get("report")), set_id
            self._tables.setdefault(key, []).append(rows)
        return None if frame.more else self._group(_position(frame.header))

    def _group(self, position: Position | None) -> Group:
        tables = tuple(
            (report, parts[0] if len(parts) == 1 else np.concatenate(parts))
            for (report, _), parts in self._tables.items()
        )
        set_ids = tuple(set_id for _, set_id in self._tables)
        self._tables.clear()
        return Group(tables, position, set_ids)

    def _finish(self, header: Mapping[str, Any]) -> Group:
        absent = header.get("events_without_occurrence")
        unused = header.get("events_only_in_occurrence")
        try:
            self.set_ids = tuple(map(int, header.get("sets", ())))
            self.dtypes = {str(k): dtype_of(v) for k, v in header.get("dtypes", {}).items()}
            self.end = End(
                str(header["reason"]),
                str(header["completeness"]),
                int(header["events"]),
                int(header["bytes"]),
                str(header["reopened_check"]),
                None if absent is None else int(absent),
                None if unused is None else int(unused),
                header.get("ledger_bound"),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the END frame does not say how it ended: {e}") from e
        if self.end.reason == "complete":
            return self._group(None)
        # Rows of an unfinished event come again after the token.
        self._tables.clear()
        return self._group(_position(header))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one report."""

    report: str
    rows: Rows
    set_id: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a table that are not settled yet; valid until the next item."""

    data: memoryview | bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """What came since the last Settled is complete.

    Attributes:
        position: where the stream resumes after it; None at its end.
    """

    position: Position | None


@dataclass(frozen=True, slots=True)
class Undone:
    """What came since the last Settled comes again: forget it."""


Item: TypeAlias = Table | Piece | Settled | Undone
"""What comes of a post."""


def _position(header: Mapping[str, Any]) -> Position:
    token, offset = header.get("token"), header.get("offset")
    if not isinstance(token, str) or not isinstance(offset, int):
        raise ProtocolError("a frame does not say where to resume")
    return Position(token, offset)
