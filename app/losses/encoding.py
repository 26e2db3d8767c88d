"""Encode rows and marks as the bytes of an answer, in every format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from app.errors import Problem
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array

from .arrow_tables import ArrowEncoder
from .posting import Ending
from .request import LossRequest
from .spool import Item, Mark, Table
from .tables import TableEncoder, table_encoder

Tokens = Callable[[Mark], str]
"""Returns the token of a mark."""


class RowEncoder(ABC):
    """Encodes the rows of one answer. Later calls do not change the returned buffers."""

    tells_end = False
    """Whether the format states why an answer ends; if not, any end means it is whole."""
    shows_marks = False
    """Whether marks appear in the answer; if not, the rows around them may be added as one."""

    def begin(self) -> Buffers:
        """Encode what comes before the first row."""
        return []

    @abstractmethod
    def add(self, item: Item) -> Buffers:
        """Encode the next rows or mark."""

    def heartbeat(self) -> Buffers:
        """Encode a sign of life; empty if the format has none."""
        return []

    def end(self, _ending: Ending) -> Buffers:
        """Encode what comes after the last row."""
        return []

    def fail(self, _problem: Problem, _last: Mark | None) -> Buffers | None:
        """Encode a failure; None if the format cannot express it.

        Args:
            problem: the failure.
            last: the last mark whose rows were all answered; None if the stream has to come
                whole.
        """
        return None


def describe_mark(mark: Mark | None, tokens: Tokens) -> dict[str, object]:
    """Return a mark as JSON members ``token`` and ``offset``, null without a mark."""
    if mark is None:
        return {"token": None, "offset": None}
    return {"token": tokens(mark), "offset": mark.position.offset, **(mark.origin or {})}


def _ending(ending: Ending, tokens: Tokens) -> dict[str, object]:
    further = {
        **ending.remarks,
        "rates": ending.rates,
        "ledger_bound": None if ending.bound is None else ending.bound.to_json(),
    }
    return {
        "reason": ending.reason,
        "completeness": ending.completeness,
        "events": ending.events,
        "bytes": ending.bytes,
        "reopened_check": ending.reopened_check,
        **describe_mark(ending.mark, tokens),
        **{name: value for name, value in further.items() if value is not None},
    }


class _TableAnswer(RowEncoder):
    """Csv, bin and parquet: rows and nothing else."""

    def __init__(self, encoder: TableEncoder, *, titled: bool) -> None:
        self._encoder = encoder
        self._titled = titled

    def begin(self) -> Buffers:
        first = self._encoder.begin()
        return [first] if self._titled else []

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Mark):
            return []
        # The encoder reuses its buffer for the next rows.
        return [bytes(self._encoder.encode(item.rows))]

    def end(self, _ending: Ending) -> Buffers:
        return [self._encoder.end()]


class _NdjsonAnswer(RowEncoder):
    """Ndjson: rows, checkpoints between them, and an end."""

    tells_end = True
    shows_marks = True

    def __init__(self, encoder: TableEncoder, tokens: Tokens) -> None:
        self._encoder = encoder
        self._tokens = tokens

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Mark):
            return [_line({"checkpoint": describe_mark(item, self._tokens)})]
        # Each call has a buffer of its own.
        return [memoryview(self._encoder.encode(item.rows))]

    def end(self, ending: Ending) -> Buffers:
        return [_line({"end": _ending(ending, self._tokens)})]

    def fail(self, problem: Problem, last: Mark | None) -> Buffers | None:
        return [_line({"error": problem.to_json(), **describe_mark(last, self._tokens)})]


def _line(value: object) -> bytes:
    return orjson.dumps(value) + b"\n"


class _ArrowAnswer(RowEncoder):
    """Arrow record batches; the last one before a mark carries its token as metadata."""

    shows_marks = True

    def __init__(self, encoder: ArrowEncoder, tokens: Tokens) -> None:
        self._encoder = encoder
        self._tokens = tokens
        self._held: Table | None = None

    def begin(self) -> Buffers:
        return [self._encoder.begin()]

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Table):
            batch = self._release(None)
            self._held = item
            return batch
        return self._release(item)

    def _release(self, mark: Mark | None) -> Buffers:
        held, self._held = self._held, None
        if held is None:
            return []
        metadata = None
        if mark is not None:
            metadata = {"token": self._tokens(mark), "offset": str(mark.position.offset)}
        return [self._encoder.encode(held.rows, metadata)]

    def end(self, ending: Ending) -> Buffers:
        return [*self._release(ending.mark), self._encoder.end()]


class _FramesAnswer(RowEncoder):
    """Frames; the last one before a mark carries its token, those before it the flag MORE."""

    tells_end = True
    shows_marks = True

    def __init__(
        self,
        tokens: Tokens,
        start: Mark | None,
        dtypes: Mapping[str, np.dtype[np.void]],
        set_ids: Sequence[int] | None,
        *,
        heartbeats: bool,
    ) -> None:
        self._tokens = tokens
        # Reports may have no row, and their readers want a table of none.
        self._tables: dict[str, object] = {
            "dtypes": {report: dtype.descr for report, dtype in dtypes.items()}
        }
        if set_ids is not None:
            self._tables["sets"] = list(set_ids)
        self._writer = FrameWriter()
        self._heartbeats = heartbeats
        self._position = describe_mark(start, tokens)
        self._held: Table | None = None

    def add(self, item: Item) -> Buffers:
        if isinstance(item, Table):
            frame = self._release(more=True)
            self._held = item
            return frame
        self._position = describe_mark(item, self._tokens)
        if self._held is None and self._heartbeats:
            return self._writer.frame(FrameKind.HEARTBEAT, self._position)
        return self._release(more=False)

    def _release(self, *, more: bool) -> Buffers:
        held, self._held = self._held, None
        if held is None:
            return []
        header = rows_header(held.report, held.rows, held.set_id) | self._position
        payload = held.rows.view("u1").data
        return self._writer.frame(FrameKind.DATA, header, payload, more=more)

    def heartbeat(self) -> Buffers:
        return self._writer.frame(FrameKind.HEARTBEAT, self._position)

    def end(self, ending: Ending) -> Buffers:
        if ending.mark is not None:
            # Rows after the last mark belong to an incomplete event.
            self._held = None
        # The END frame closes the group of rows.
        last = self._release(more=True)
        header = _ending(ending, self._tokens) | self._tables
        return last + self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem, last: Mark | None) -> Buffers | None:
        self._held = None
        header = {"problem": problem.to_json(), **describe_mark(last, self._tokens)}
        return self._writer.frame(FrameKind.ERROR, header)


def row_encoder(  # noqa: PLR0913 - each shapes the answer
    form: str,
    request: LossRequest,
    tokens: Tokens,
    start: Mark | None,
    *,
    duplex: bool,
    titled: bool,
) -> RowEncoder:
    """Return an encoder for the answer to one request.

    Args:
        form: format of the answer, one of MEDIA_TYPES.
        request: the requested analysis; several reports in frames only.
        tokens: creates tokens.
        start: the mark at which the post began; None if the stream has to come whole.
        duplex: whether the client reads while it sends.
        titled: whether csv begins with a header row. Only the first part has one, so that
            the parts can be concatenated.
    """
    if form == "frames":
        width = request.policy.float_width
        dtypes = {report.name: report.dtype(width) for report in request.tables}
        set_ids = None if request.sets is None else request.sets.set_ids
        return _FramesAnswer(tokens, start, dtypes, set_ids, heartbeats=duplex)
    (report,) = request.tables
    encoder = table_encoder(form, report, request.policy.float_width, request.info)
    if form == "ndjson":
        return _NdjsonAnswer(encoder, tokens)
    if isinstance(encoder, ArrowEncoder):
        return _ArrowAnswer(encoder, tokens)
    return _TableAnswer(encoder, titled=titled or form != "csv")


def rows_header(
    report: str, rows: npt.NDArray[np.void], set_id: int | None = None
) -> dict[str, Any]:
    """Return the header, without token, of a DATA frame with these rows as its payload."""
    array = describe_array("rows", rows)
    return {
        "report": report,
        **({} if set_id is None else {"set": set_id}),
        "arrays": [array],
        "dtype": array["dtype"],
        "shape": array["shape"],
    }
