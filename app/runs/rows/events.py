"""Rows as server-sent events: each event has the rows up to a token, and the token as its id.

A browser's ``EventSource`` sends the id of the last event it got when it connects again, so it
goes on after a cut without code of its own.
"""

from __future__ import annotations

import orjson

from app.errors import Problem
from app.losses.encoding import RowEncoder, Tokens
from app.losses.posting import Ending
from app.losses.spool import Item, Mark
from app.losses.tables import TableEncoder
from app.streams.frames import Buffers
from core.budget import current

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
