"""From frames to rows that may be handed out: whole groups, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ProblemError, ProtocolError
from ..transport.frames import Frame, Kind, Rows


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream to go on from: all rows before it have been answered.

    Attributes:
        token: what to post with, or None at the beginning.
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
            ``undeclared``: a stream has no end marker, blocks may be missing;
            ``partial``.
        events: events complete so far in the whole stream.
        bytes: bytes of the stream that were read.
        reopened_check: ``whole``, or ``since resume`` where ids do not ascend and
            events before the token are unknown.
    """

    reason: str
    completeness: str
    events: int
    bytes: int
    reopened_check: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, at most one table per report, and what follows them."""

    tables: tuple[tuple[str, Rows], ...]
    position: Position | None
    """None if the stream is at its end."""


class RowReader:
    """Assembles the groups of one answer.

    Attributes:
        end: how the answer ended, once it has.
    """

    def __init__(self) -> None:
        self._tables: dict[str, list[Rows]] = {}
        self.end: End | None = None

    def take(self, frame: Frame) -> Group | None:
        """The group that a frame completes, or None.

        Raises:
            ProblemError: it is an ERROR frame.
            ProtocolError: it is a frame that may not come here.
        """
        if frame.kind is Kind.HEARTBEAT:
            return None
        if self.end is not None:
            raise ProtocolError("frames came behind the end")
        if frame.kind is Kind.ERROR:
            raise error_of(frame.header)
        if frame.kind is Kind.END:
            return self._finish(frame.header)
        if frame.kind is not Kind.DATA:
            raise ProtocolError(f"{frame.kind.name} frames are not for rows")
        self._keep(frame)
        if frame.more:
            return None
        return self._group(_position(frame.header))

    def _keep(self, frame: Frame) -> None:
        rows = frame.array("rows")
        if len(rows):
            self._tables.setdefault(str(frame.header.get("report")), []).append(rows)

    def _group(self, position: Position | None) -> Group:
        tables = tuple(
            (report, parts[0] if len(parts) == 1 else np.concatenate(parts))
            for report, parts in self._tables.items()
        )
        self._tables.clear()
        return Group(tables, position)

    def _finish(self, header: Mapping[str, Any]) -> Group:
        try:
            self.end = End(
                str(header["reason"]),
                str(header["completeness"]),
                int(header["events"]),
                int(header["bytes"]),
                str(header["reopened_check"]),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the END frame does not say how it ended: {e}") from e
        if self.end.reason == "complete":
            return self._group(None)
        # Rows of an event that is not whole: they come again behind the token.
        self._tables.clear()
        return self._group(_position(header))


def _position(header: Mapping[str, Any]) -> Position:
    token, offset = header.get("token"), header.get("offset")
    if not isinstance(token, str) or not isinstance(offset, int):
        raise ProtocolError("a frame does not say where to go on from")
    return Position(token, offset)


def error_of(header: Mapping[str, Any]) -> ProblemError:
    """The fault an ERROR frame tells of.

    Raises:
        ProtocolError: it does not.
    """
    problem = header.get("problem")
    if not isinstance(problem, dict):
        raise ProtocolError("an ERROR frame does not say what is wrong")
    known = {"token": header.get("token"), "resume_offset": header.get("offset")}
    status = problem.get("status", 500)
    if not isinstance(status, int):
        raise ProtocolError("an ERROR frame has no status")
    return ProblemError(status, known | problem)
