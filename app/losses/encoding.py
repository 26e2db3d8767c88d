"""Rows and marks out of a spool as the bytes of an answer, in every format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from app.errors import Problem
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array

from .posting import Ending
from .request import LossRequest
from .spool import Item, Mark, Table
from .tables import ArrowEncoder, TableEncoder, table_encoder

Tokens = Callable[[Mark], str]
"""Makes the token of a mark."""


class RowEncoder(Protocol):
    """Encodes the rows of one answer. The buffers stay unchanged by later calls."""

    tells_end: bool
    """Whether the end has a reason; otherwise an end means that the answer is whole."""

    def begin(self) -> Buffers:
        """What comes before the first row."""

    def add(self, item: Item) -> Buffers:
        """The next rows or mark."""

    def end(self, ending: Ending) -> Buffers:
        """What comes behind the last row."""

    def fail(self, problem: Problem, last: Mark) -> Buffers | None:
        """The end of an answer that went wrong; None if it can only be broken off.

        Args:
            problem: what went wrong.
            last: the last mark whose rows were all answered.
        """


def place(mark: Mark | None, tokens: Tokens) -> dict[str, object]:
    """A mark as answers have it."""
    if mark is None:
        return {"token": None, "offset": None}
    return {"token": tokens(mark), "offset": mark.position.offset}


def _ending(ending: Ending, tokens: Tokens) -> dict[str, object]:
    return {
        "reason": ending.reason,
        "completeness": ending.completeness,
        "events": ending.events,
        "bytes": ending.bytes,
        "reopened_check": ending.reopened_check,
        **place(ending.mark, tokens),
    }


class _TableAnswer:
    """Csv, bin and parquet: rows and nothing else."""

    tells_end = False

    def __init__(self, encoder: TableEncoder, *, titled: bool) -> None:
        self._encoder = encoder
        self._titled = titled

    def begin(self) -> Buffers:
        first = self._encoder.begin()
        return [first] if self._titled else []

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Mark):
            return []
        # The encoder's buffer is used again for the next rows.
        return [bytes(self._encoder.encode(item.rows))]

    def end(self, _ending: Ending) -> Buffers:
        return [self._encoder.end()]

    def fail(self, _problem: Problem, _last: Mark) -> Buffers | None:
        return None


class _NdjsonAnswer:
    """Rows with checkpoints between them, and an end."""

    tells_end = True

    def __init__(self, encoder: TableEncoder, tokens: Tokens) -> None:
        self._encoder = encoder
        self._tokens = tokens

    def begin(self) -> Buffers:
        return []

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Mark):
            return [_line({"checkpoint": place(item, self._tokens)})]
        return [bytes(self._encoder.encode(item.rows))]

    def end(self, ending: Ending) -> Buffers:
        return [_line({"end": _ending(ending, self._tokens)})]

    def fail(self, problem: Problem, last: Mark) -> Buffers | None:
        return [_line({"error": problem.to_json(), **place(last, self._tokens)})]


def _line(value: object) -> bytes:
    return orjson.dumps(value) + b"\n"


class _ArrowAnswer:
    """Record batches; the last one before a mark has its token."""

    tells_end = False

    def __init__(self, encoder: ArrowEncoder, tokens: Tokens) -> None:
        self._encoder = encoder
        self._tokens = tokens
        self._held: Table | None = None

    def begin(self) -> Buffers:
        return [self._encoder.begin()]

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Table):
            made = self._release(None)
            self._held = item
            return made
        return self._release(item)

    def _release(self, mark: Mark | None) -> Buffers:
        held, self._held = self._held, None
        if held is None:
            return []
        about = None
        if mark is not None:
            about = {"token": self._tokens(mark), "offset": str(mark.position.offset)}
        return [self._encoder.encode(held.rows, about)]

    def end(self, ending: Ending) -> Buffers:
        return [*self._release(ending.mark), self._encoder.end()]

    def fail(self, _problem: Problem, _last: Mark) -> Buffers | None:
        return None


class _FramesAnswer:
    """Frames; the last one before a mark has its token, those before it have MORE."""

    tells_end = True

    def __init__(self, tokens: Tokens, start: Mark, *, heartbeats: bool) -> None:
        self._tokens = tokens
        self._writer = FrameWriter()
        self._heartbeats = heartbeats
        self._before = place(start, tokens)
        self._held: Table | None = None

    def begin(self) -> Buffers:
        return []

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Table):
            made = self._release(more=True)
            self._held = item
            return made
        self._before = place(item, self._tokens)
        if self._held is None and self._heartbeats:
            return self._writer.frame(FrameKind.HEARTBEAT, self._before)
        return self._release(more=False)

    def _release(self, *, more: bool) -> Buffers:
        held, self._held = self._held, None
        if held is None:
            return []
        header = rows_header(held.report, held.rows) | self._before
        payload = held.rows.view("u1").data
        return self._writer.frame(FrameKind.DATA, header, payload, more=more)

    def end(self, ending: Ending) -> Buffers:
        if ending.mark is not None:
            # Rows behind the last mark are of an event that is not whole.
            self._held = None
        # The end of the stream closes the group too.
        last = self._release(more=True)
        return last + self._writer.frame(FrameKind.END, _ending(ending, self._tokens))

    def fail(self, problem: Problem, last: Mark) -> Buffers | None:
        self._held = None
        header = {"problem": problem.to_json(), **place(last, self._tokens)}
        return self._writer.frame(FrameKind.ERROR, header)


def row_encoder(  # noqa: PLR0913 - all of them shape the answer
    form: str, request: LossRequest, tokens: Tokens, start: Mark, *, duplex: bool, titled: bool
) -> RowEncoder:
    """An encoder for the answer to one request.

    Args:
        form: one of MEDIA_TYPES.
        request: what was asked for; several reports only in frames.
        tokens: makes tokens.
        start: where the post began.
        duplex: whether the client reads while it sends.
        titled: whether csv begins with its header row. It belongs to the first part
            alone, so that parts can be joined.
    """
    if form == "frames":
        return _FramesAnswer(tokens, start, heartbeats=duplex)
    (report,) = request.tables
    encoder = table_encoder(form, report, request.policy.float_width)
    if form == "ndjson":
        return _NdjsonAnswer(encoder, tokens)
    if isinstance(encoder, ArrowEncoder):
        return _ArrowAnswer(encoder, tokens)
    return _TableAnswer(encoder, titled=titled or form != "csv")


def rows_header(report: str, rows: npt.NDArray[np.void]) -> dict[str, Any]:
    """Header of a DATA frame whose payload is these rows alone, without its token."""
    array = describe_array("rows", rows)
    return {
        "report": report,
        "arrays": [array],
        "dtype": array["dtype"],
        "shape": array["shape"],
    }
