"""Requests that post a stream, and what the headers of their answers say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from ..errors import ProtocolError, SourceError
from ..transport.requests import OCTETS, Head, Request, path_of, query_of
from .rows import End, Position

Mode: TypeAlias = Literal["parts", "whole", "duplex"]
Several: TypeAlias = list[str] | tuple[str, ...]
"""Names of reports."""
InputLike: TypeAlias = "str | os.PathLike[str] | bytes"

RUN_INPUTS = (
    *("quantiles", "event_rates", "occurrence", "periods", "return_periods"),
    *("summary_xref", "summary_map"),
)
INPUTS = (*RUN_INPUTS, "summary_info")
_OF_RUNS = ("aal", "aal_mean", "alct", "ept", "psept")
_OF_PERIODS = ("splt", "mplt", "qplt")
INPUTS_OF = {
    "quantiles": ("qelt", "qplt"),
    "event_rates": ("melt",),
    "occurrence": ("melt", *_OF_PERIODS, *_OF_RUNS),
    "no_of_periods": ("melt", *_OF_PERIODS, *_OF_RUNS),
    "periods": (*_OF_PERIODS, *_OF_RUNS),
    **dict.fromkeys(("return_periods", "curves", "tvar"), ("ept", "psept")),
    "confidence": ("alct",),
}
"""Reports that each input or option is for: the service refuses what none of a request takes."""
PART_SIZE = 16 << 20
"""Bytes of a part: some milliseconds of work, and little to send again after a cut."""
_LISTS = {"quantiles": float, "return_periods": int}
"""Inputs that may be lists of numbers, and of which kind."""
WHOLE_STREAM_REPORTS = frozenset(_OF_RUNS)
"""Reports without a row before the end of the stream: they come from one request."""
EXPECTED = ("expect_events", "expect_bytes")
"""Options that say what the stream has."""
_ENDS = (
    *("completeness", "events", "bytes", "reopened_check"),
    *("events_without_occurrence", "events_only_in_occurrence", "selected_rows"),
    *("longest_return_period", "missing_summary_ids", "missing_event_ids"),
    "blocks_without_exposure",
)
_END_HEADERS = {f"thalweg-{name.replace('_', '-')}": name for name in _ENDS}
"""Headers that say how an answer ended, and the members of END frames that say the same."""
_FORMS = {
    "sets": (re.compile(r"\d+(,\d+)*"), "1,2"),
    **dict.fromkeys(
        ("summary_ids", "event_ids"), (re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*"), "1,5,10-20")
    ),
}
"""Lists of numbers as text, with an example."""


class StreamOptions(TypedDict, total=False):
    """Options of posts and of runs; those left out have the server's defaults."""

    no_of_periods: int
    """Periods of an occurrence csv."""
    confidence: float
    """Confidence level of alct, 0 to below 1."""
    curves: str
    """Curves of ept (F full uncertainty, S sample mean, M per-sample mean) and of psept (W per
    sample), capital for AEP, small for OEP."""
    tvar: Literal["count", "weight"]
    """TVaR as the mean of losses by their number or by the weight of their periods."""
    float_width: Literal[4, 8]
    """Bytes of a loss: the stream itself does not say."""
    nan: Literal["error", "zero", "drop"]
    negative: Literal["error", "keep"]
    sample_order: Literal["ascending", "any"]
    order: Literal["received", "event"]


class LossOptions(StreamOptions, total=False):
    """Options of a post; those left out have the server's defaults.

    An input is the digest (str) of a stored file, or a Path or bytes, which are stored first.
    """

    quantiles: InputLike | float | Sequence[float]
    """For qelt and qplt: numbers from 0 to 1, or an input."""
    event_rates: InputLike
    """For melt: rate of each event per year, instead of the occurrences'."""
    occurrence: InputLike
    """When each event occurs: for reports of periods and of whole runs, and the rates of melt."""
    periods: InputLike
    """Weight of each period; equal ones without."""
    return_periods: InputLike | int | Sequence[int]
    """For ept and psept: years, or an input; every point of a curve without."""
    summary_ids: str | int | Iterable[int]
    """Only rows of these summaries: numbers, or text such as ``1,5,10-20``."""
    event_ids: str | int | Iterable[int]
    """Only rows of these events, in the same way."""
    summary_map: InputLike
    """With ``summary_xref``, to count affected risks."""
    sets: str | int | Iterable[int]
    """Sets of ``summary_xref``: numbers, or text such as ``1,2``; all without."""
    summary_info: InputLike
    """Columns to join to rows by summary; in csv, ndjson, arrow and parquet only."""
    expect_samples: int
    """Samples of the stream, for the bound of whole runs' sums."""
    expect_summaries: int
    """Summaries of a summary stream, for the same bound."""
    over_bound: Literal["refuse", "try"]
    """What the service does if that bound is more than it spends on a request."""
    theme: Literal["light", "dark"]
    """Colours of pictures."""
    plot_tvar: bool
    """Pictures of ept: TVaR beside the curves."""
    perspective: Literal["gul", "il", "ri", "rl"]
    """Perspective of the run, for the title of a picture."""
    currency: str
    """Currency of the losses, such as ``EUR``, for the axes of a picture."""
    expect_events: int
    """Number of events of the whole stream."""
    expect_bytes: int
    """Size of the whole stream; known by itself where the source has a size."""


def put_input(name: str, data: bytes) -> Request:
    """Store an auxiliary file."""
    return Request("PUT", path_of("inputs", name), OCTETS, data)


def input_bytes(name: str, data: InputLike) -> bytes:
    """The bytes of an auxiliary file, given by name as a path or as bytes.

    Raises:
        SourceError: it cannot be read.
        TypeError: it is neither.
    """
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str | os.PathLike):
        raise TypeError(f"{name} must be a Path or bytes, not {data!r}")
    try:
        return Path(data).read_bytes()
    except OSError as e:
        raise SourceError(f"{os.fspath(data)} cannot be read: {e.strerror}") from e


class LossRequests:
    """Builds the requests that post one stream.

    Args:
        report: a name, or several.
        table_format: ``frames`` or the format of a table.
        options: of the post.
        size: bytes of the whole stream, if known.
        summary_xref: the stream is of items: their summaries, in one or more sets.

    Raises:
        SourceError: the file of an input cannot be read, or the stream has another size than
            ``expect_bytes``.
        TypeError: there is no such option, or it is of another type.
        ValueError: an option cannot be written into a query, no report is named or one
            twice, or the format holds one report only.
    """

    def __init__(
        self,
        report: str | Sequence[str],
        table_format: str,
        options: LossOptions,
        size: int | None,
        summary_xref: InputLike | None = None,
    ) -> None:
        if "inputs" in options:
            raise TypeError("inputs of posts are options of their own: occurrence=Path(…)")
        check_names(options, LossOptions.__annotations__)
        self.reports = reports_of(report)
        if len(self.reports) > 1 and table_format != "frames":
            raise ValueError(
                "several reports come in frames only: leave the format out, or ask for one report"
            )
        self.format = table_format
        self._size = size
        self._query: dict[str, str] = {"format": table_format}
        self._expected: dict[str, str] = {}
        self._inputs: dict[str, bytes] = {}
        self.of_items = summary_xref is not None
        """Whether the reports are of summary sets of items."""
        for name, value in {**options, "summary_xref": summary_xref}.items():
            if value is not None:
                self._add(name, value)
        expected = self._expected.get("expect_bytes")
        if size is not None and expected not in {None, str(size)}:
            raise SourceError(f"expect_bytes is {expected}, but the stream has {size} bytes")

    def _add(self, name: str, value: Any) -> None:  # noqa: ANN401 - any option
        if name in EXPECTED:
            self._expected[name] = str(value)
        elif name in INPUTS and isinstance(value, bytes | os.PathLike):
            self._inputs[name] = input_bytes(name, value)
        elif name in _LISTS and not isinstance(value, str):
            self._query[name] = ",".join(map(repr, numbers_of(name, value)))
        elif name in INPUTS and not isinstance(value, str):
            raise TypeError(f"{name} must be a digest, a Path or bytes, not {value!r}")
        elif name in _FORMS:
            self._query[name] = listed(name, value)
        elif isinstance(value, bool):
            self._query[name] = str(value).lower()
        else:
            self._query[name] = str(value)

    @property
    def need_whole_stream(self) -> bool:
        """Whether a report has no row before the end of the stream."""
        return not WHOLE_STREAM_REPORTS.isdisjoint(self.reports)

    @property
    def sets(self) -> tuple[int, ...]:
        """The summary sets asked for by their numbers; none if all are."""
        return tuple(int(number) for number in self._query.get("sets", "").split(",") if number)

    def inputs(self) -> list[tuple[str, Request]]:
        """Requests that store the inputs given as files, by name."""
        return [(name, put_input(name, data)) for name, data in self._inputs.items()]

    def input_stored(self, name: str, digest: str) -> None:
        """Refer to an input by its digest."""
        self._query[name] = digest

    def part(self, position: Position, *, last: bool) -> Request:
        """Post a part that begins at a position."""
        headers = {"Upload-Complete": "?1" if last else "?0"}
        return self._request(position, self._expected if last else {}, headers | OCTETS)

    def check(self) -> Request:
        """Have the options checked, without the stream."""
        position, headers = Position(), {"Upload-Complete": "?1"}
        return self._request(position, {"check": "true"}, headers | OCTETS)

    def rest(self, position: Position, *, duplex: bool) -> Request:
        """Post everything from a position on in one request."""
        query = {"duplex": "true"} if duplex else {}
        return self._request(position, self._expected | query, OCTETS)

    def _request(
        self, position: Position, query: Mapping[str, str], headers: dict[str, str]
    ) -> Request:
        query = self._query | dict(query)
        if position.token is not None:
            query["after"] = position.token
        path = "/v1/losses"
        if len(self.reports) == 1:
            path = path_of("losses", self.reports[0])
        else:
            query["reports"] = ",".join(self.reports)
        length = {} if self._size is None else {"Upload-Length": str(self._size)}
        return Request("POST", path + query_of(**query), headers | length)


def options_for(report: str, reports: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Select the options of one of several reports that are posted one by one.

    An input that is for others of them alone is left out; one that is for none stays, so that the
    service refuses it.
    """
    others = set(reports) - {report}
    return {
        name: value
        for name, value in options.items()
        if report in (takers := INPUTS_OF.get(name, (report,))) or others.isdisjoint(takers)
    }


def reports_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """The names of reports, one or several.

    Raises:
        TypeError: they are no text.
        ValueError: there is none, or one twice.
    """
    several: Any = names  # of any type, as callers of Python may mistake it
    is_one = isinstance(names, str) or not isinstance(several, Iterable)
    reports = (several,) if is_one else tuple(several)
    if not any(reports):
        raise ValueError("no report is wanted")
    if not all(isinstance(name, str) for name in reports):
        raise TypeError(f"a report is named by a text such as melt, not {names!r}")
    if not all(reports):
        raise ValueError("the name of a report is empty")
    if twice := [name for name in reports if reports.count(name) > 1]:
        raise ValueError(f"{twice[0]} is asked for twice")
    return reports


def check_names(names: Iterable[str], known: Iterable[str], noun: str = "option") -> None:
    """Refuse an option or another noun that there is not, and tell the nearest.

    Raises:
        TypeError: there is none of this name.
    """
    unknown = min(set(names).difference(known), default=None)
    if unknown is not None:
        nearest = get_close_matches(unknown, known, 1)
        guess = f". Did you mean {nearest[0]}?" if nearest else ""
        raise TypeError(f"there is no {noun} {unknown}{guess}")


def numbers_of(name: str, value: object) -> list[float]:
    """The numbers of an option: one, several, or text such as ``1,2``.

    Raises:
        TypeError: one is none, or not a whole one where only these are meant.
    """
    several: Any = value.split(",") if isinstance(value, str) else value
    return [_number(name, n) for n in (several if isinstance(several, Iterable) else (several,))]


def _number(name: str, value: Any) -> float:  # noqa: ANN401 - any option
    kind: Any = _LISTS.get(name, int)
    try:
        number: float = kind(value)
        is_one = isinstance(value, str) or number == value or kind is float
    except (TypeError, ValueError, OverflowError):
        is_one = False
    if not is_one or isinstance(value, bool | np.bool_):
        whole = "whole " if kind is int else ""
        raise TypeError(f"{name} must be a {whole}number, or several, not {value!r}")
    return number


def listed(name: str, value: object) -> str:
    """Numbers, as the service takes them.

    Raises:
        TypeError, ValueError: they are none.
    """
    text = value if isinstance(value, str) else ",".join(map(str, numbers_of(name, value)))
    form, example = _FORMS[name]
    if not form.fullmatch(text):
        raise ValueError(f"{name} must look like {example}, not {text!r}; a file is not taken")
    return text


def remarks_in(headers: Mapping[str, str]) -> dict[str, str]:
    """What headers say of an answer, by name."""
    return {_END_HEADERS[name]: value for name, value in headers.items() if name in _END_HEADERS}


def end_of_table(head: Head) -> End:
    """How an answer without frames ended, from its headers.

    Raises:
        ProtocolError: they do not say.
    """
    headers = head.headers
    remarks = remarks_in(headers)
    reason = "partial" if headers.get("upload-complete") == "?0" else "complete"
    try:
        return End.parse({"reopened_check": "whole", **remarks, "reason": reason})
    except (KeyError, ValueError) as e:
        completeness = remarks.get("completeness")
        raise ProtocolError(f"the answer does not say how it ended ({completeness})") from e


def position_of_table(head: Head) -> Position:
    """Where to resume after a partial answer without frames.

    Raises:
        ProtocolError: its headers do not say.
    """
    try:
        return Position(head.headers["thalweg-token"], int(head.headers["thalweg-offset"]))
    except (KeyError, ValueError) as e:
        raise ProtocolError("a partial answer does not say where to resume") from e


@dataclass(frozen=True, slots=True)
class Choices:
    """How a stream is posted.

    Attributes:
        mode: ``parts``: one request per part; ``whole``: one request; ``duplex``: one, whose
            answer is read while it is sent.
        part_size: bytes of a part.

    Raises:
        TypeError: the size is no number.
        ValueError: there is no such mode, or parts have no size.
    """

    mode: Mode
    part_size: int

    def __post_init__(self) -> None:
        if self.mode not in {"parts", "whole", "duplex"}:
            raise ValueError(f"there is no mode {self.mode!r}: choose parts, whole or duplex")
        if not isinstance(self.part_size, int):
            raise TypeError(f"part_size must be a number of bytes, not {self.part_size!r}")
        if self.part_size < 1:
            raise ValueError("a part has at least one byte")


class PartPlan:
    """How far each part reaches.

    A part begins with the bytes of the unfinished event that were sent before. If those
    are more than half of it, the part grows, so that at least half of each part
    is new, however large an event is.

    Args:
        size: bytes of a part.
        start: offset of the first one.
    """

    def __init__(self, size: int, start: int) -> None:
        self._size = size
        self.stop = start + size

    def shorten(self, offset: int, most: int) -> None:
        """Plan parts of ``most`` bytes: the one that begins at ``offset`` was too long."""
        self._size = min(self._size, most)
        self.stop = offset + most

    def answered(self, offset: int, sent: int) -> None:
        """Plan the next part: it begins at ``offset``, and bytes up to ``sent`` are known."""
        self.stop = offset + max(self._size, 2 * (sent - offset))
