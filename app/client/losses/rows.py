"""From answers to rows that may be handed out, and to how they ended."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ..errors import ProblemError, ProtocolError
from ..transport.frames import Frame, FrameAnswer, Rows, parse_dtype

CHOICES = ("summary_ids", "event_ids")
"""Options that choose rows."""
_MANY = 0.01
"""Share of the occurring events from which on it is no chance that the stream lacks them."""
_REASONS = {
    "longest_return_period": "the periods tell losses of return periods up to {:,} years: longer"
    " ones have no rows, but for those of full uncertainty",
    "events_without_occurrence": "{:,} events of the stream never occur, so they have no rows by"
    " period: are the occurrences those of this model?",
    "events_only_in_occurrence": "{:,} events of the occurrences are not in the stream: is a"
    " partition missing?",
}
"""What numbers say that an answer tells."""
_COUNTS = ("selected_rows", "blocks_without_exposure", *_REASONS)
_CONTROL = (b'{"checkpoint"', b'{"end"', b'{"error"', b'{"heartbeat"')


class EPCalc(IntEnum):
    """Curves of ept, as its column of this name has them."""

    MEAN_DAMAGE = 1
    FULL_UNCERTAINTY = 2
    PER_SAMPLE_MEAN = 3
    SAMPLE_MEAN = 4


class EPType(IntEnum):
    """Kinds of points of ept and psept, as their columns of this name have them."""

    OEP = 1
    OEP_TVAR = 2
    AEP = 3
    AEP_TVAR = 4


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
        blocks_without_exposure: blocks with losses that MELT and QELT lack, as their exposure is
            0; those of an event that was posted twice count twice.
        selected_rows: with ``summary_ids`` or ``event_ids``, the rows of these; None without, or
            where the post went on after a token.
        missing_ids: ids of ``summary_ids`` and ``event_ids`` that no row has, by option, as they
            were given: ``{"event_ids": "7,60001-70000"}``; ``...`` ends a list that is too long.
        longest_return_period: years up to which the periods tell losses, where a longer return
            period was asked for: of these, only curves of full uncertainty have rows.
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
    blocks_without_exposure: int = 0
    ledger_bound: Mapping[str, int | None] | None = None
    selected_rows: int | None = None
    longest_return_period: int | None = None
    missing_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, remarks: Mapping[str, Any]) -> End:
        """How an answer ended, from what it says by the names of the attributes.

        Raises:
            KeyError, TypeError, ValueError: it does not say.
        """
        counts = {name: int(remarks[name]) for name in _COUNTS if remarks.get(name) is not None}
        return cls(
            str(remarks["reason"]),
            str(remarks["completeness"]),
            int(remarks["events"]),
            int(remarks["bytes"]),
            str(remarks["reopened_check"]),
            ledger_bound=remarks.get("ledger_bound"),
            missing_ids={name: ids for name in CHOICES if (ids := remarks.get(f"missing_{name}"))},
            **counts,
        )

    def warn(self) -> None:
        """Warn of rows that are missing for a reason."""
        absent, unused = self.events_without_occurrence or 0, self.events_only_in_occurrence or 0
        most = _MANY * (self.events - absent + unused)
        further = {name: getattr(self, name) for name in ("selected_rows", "longest_return_period")}
        missing = {f"missing_{name}": ids for name, ids in self.missing_ids.items()}
        counts = {
            "events_without_occurrence": absent,
            "events_only_in_occurrence": unused if unused >= most else 0,
        }
        warn_of(further | missing | counts)


def warn_of(remarks: Mapping[str, int | str | None]) -> None:
    """Warn of rows that are missing for a reason, as headers of an answer tell it by name."""
    numbers = {n: int(remarks.get(n) or 0) for n in _REASONS}
    texts = [text.format(numbers[name]) for name, text in _REASONS.items() if numbers[name]]
    if str(remarks.get("selected_rows")) == "0":
        texts.append("no row is of the chosen summaries and events: the tables are empty")
    missing = {name: remarks.get(f"missing_{name}") for name in CHOICES}
    texts += [f"no row has these of {name}: {ids}" for name, ids in missing.items() if ids]
    for text in texts:
        warn(text)


def warn(text: str) -> None:
    """Warn whoever called this package."""
    package, frame, level = __name__.removesuffix(".losses.rows"), inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def common_ids(some: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The ids that two lists of missing ones have in common, by option."""
    return {
        name: ",".join(map(str, sorted(both)))
        for name in some.keys() & others.keys()
        if (both := _ids(some[name]) & _ids(others[name]))
    }


def _ids(text: str) -> set[int]:
    ranges = [part.split("-") for part in text.removesuffix(",...").split(",")]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one report; of one summary set, where the stream is of items."""

    report: str
    rows: Rows
    set_id: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, at most one table per report and summary set.

    Attributes:
        tables: of the reports.
        position: that follows them; None at the end of the stream.
    """

    tables: tuple[Table, ...]
    position: Position | None


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
            Table(report, parts[0] if len(parts) == 1 else np.concatenate(parts), set_id)
            for (report, set_id), parts in self._tables.items()
        )
        self._tables.clear()
        return Group(tables, position)

    def _finish(self, header: Mapping[str, Any]) -> Group:
        try:
            self.set_ids = tuple(map(int, header.get("sets", ())))
            self.dtypes = {str(k): parse_dtype(v) for k, v in header.get("dtypes", {}).items()}
            self.end = End.parse(header)
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the END frame does not say how it ended: {e}") from e
        if self.end.reason == "complete":
            return self._group(None)
        # Rows of an unfinished event come again after the token.
        self._tables.clear()
        return self._group(_position(header))


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


class RowLines:
    """Filters the lines of rows out of one answer.

    The control lines between them hold tokens, which differ from answer to answer; without
    them, the joined rows of all parts equal those of a whole answer.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def feed(self, data: memoryview | bytes) -> bytes:
        """The complete lines of rows, as far as these bytes complete them.

        Raises:
            ProblemError: the answer ends with an error.
            ProtocolError: a control line is malformed.
        """
        text = self._rest + data
        cut = text.rfind(b"\n") + 1
        text, self._rest = text[:cut], text[cut:]
        if not any(start in text for start in _CONTROL):
            return text
        lines = text.splitlines(keepends=True)
        return b"".join(line for line in lines if not self._is_control(line))

    def close(self) -> None:
        """End the answer.

        Raises:
            ProtocolError: it was cut.
        """
        if not self._ended or self._rest:
            raise ProtocolError("the answer was cut: it has no end")

    def _is_control(self, line: bytes) -> bool:
        if not line.startswith(_CONTROL):
            return False
        try:
            content = json.loads(line)
        except ValueError as e:
            raise ProtocolError("a line of the answer is not JSON") from e
        if "error" in content:
            problem = content["error"]
            raise ProblemError(int(problem.get("status", 500)), problem)
        self._ended = self._ended or "end" in content
        return True


@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """All rows of one report.

    Attributes:
        report: its name.
        rows: structured array, shape (n,), in the order of the service.
        summary_set: of a stream of items; None of other streams.
    """

    report: str
    rows: Rows
    summary_set: int | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def columns(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The columns by name, each contiguous, shape (n,)."""
        return {name: np.ascontiguousarray(self.rows[name]) for name in self.rows.dtype.names or ()}

    def to_arrow(self) -> Any:  # noqa: ANN401 - the library is imported when it is asked for
        """A ``pyarrow.Table``.

        Raises:
            ImportError: pyarrow is not installed.
        """
        return _library("pyarrow").table(self.columns())

    def to_pandas(self) -> Any:  # noqa: ANN401 - as above
        """A ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return _library("pandas").DataFrame(self.columns())

    def to_polars(self) -> Any:  # noqa: ANN401 - as above
        """A ``polars.DataFrame``.

        Raises:
            ImportError: polars is not installed.
        """
        return _library("polars").DataFrame(self.columns())


def _library(name: str) -> Any:  # noqa: ANN401 - as above
    try:
        return import_module(name)
    except ModuleNotFoundError as e:
        extra = "thalweg[polars]" if name == "polars" else name
        text = f"the package {name} is not installed: pip install '{extra}'"
        raise ImportError(text, name=name) from e
