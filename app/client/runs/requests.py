"""Runs and streams as the service describes them; requests about these, their rows and reports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import urlsplit

from xxhash import xxh3_128

from ..errors import ProblemError, ProtocolError
from ..losses.requests import INPUTS, StreamOptions, check_names, listed, numbers_of, reports_of
from ..losses.sources import Source, SourceLike
from ..transport.requests import OCTETS, Request, json_request, path_of, query_of

_UNPROCESSABLE = 422
_GROUP = 4 << 20
"""Bytes of a group of a stream's digest."""
FINISHED = ("done", "failed")
"""States that a run does not leave by itself."""

Perspective: TypeAlias = Literal["gul", "il", "ri", "rl"]
PARALLEL = 4
"""Uploads at a time."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was when the service was asked.

    Attributes:
        id: of the run.
        state: created, uploading, sealed, computing, done or failed.
        problem: why it failed: members of a problem document; None if it did not.
        document: all that the service said.
    """

    id: str
    state: str
    problem: Mapping[str, Any] | None
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Run:
        """The run that a JSON object describes.

        Raises:
            ProtocolError: it describes none.
        """
        ident, state, problem = (document.get(name) for name in ("id", "state", "problem"))
        if not isinstance(ident, str) or not isinstance(state, str):
            raise ProtocolError("the answer describes no run")
        return cls(ident, state, problem if isinstance(problem, dict) else None, document)

    def check(self) -> None:
        """Raise what the run failed of, if it has failed.

        Raises:
            ProblemError: it has.
        """
        if self.state == "failed":
            problem = self.problem or {"code": "run-failed", "detail": "the run has failed"}
            status = problem.get("status")
            raise ProblemError(status if isinstance(status, int) else _UNPROCESSABLE, problem)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a run: one partition, as it was when the service was asked.

    Attributes:
        id: of the stream.
        partition: from 1.
        offset: bytes that are stored.
        length: bytes of the whole stream, None if not known yet.
        state: created, uploading, complete or failed.
        events: complete events that are stored.
        fault: why it failed: members of a problem document; None if it did not.
        digest: of its bytes, as the contract defines it; None before it is complete.
    """

    id: str
    partition: int
    offset: int
    length: int | None
    state: str
    events: int
    fault: Mapping[str, Any] | None
    digest: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole stream is stored."""
        return self.state == "complete"

    def holds(self, source: Source) -> bool:
        """Whether it is complete and has the bytes of a source whose size is known.

        Raises:
            SourceError: the source cannot be read.
        """
        if not self.complete or self.offset != source.size:
            return False
        chain = bytes(16)
        # The digest that the service carries on between requests: a group's begins with the last.
        for start in range(0, self.offset + 1, _GROUP):
            hashed = xxh3_128(chain)
            for view in source.views(start, min(start + _GROUP, self.offset)):
                hashed.update(view)
            chain = hashed.digest()
        return chain.hex() == self.digest

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Stream:
        """The stream that a JSON object describes.

        Raises:
            ProtocolError: it describes none.
        """
        length, fault = document.get("length"), document.get("fault")
        try:
            return cls(
                str(document["id"]),
                int(document["partition"]),
                int(document["offset"]),
                None if length is None else int(length),
                str(document["state"]),
                int(document["events"]),
                fault if isinstance(fault, dict) else None,
                document.get("digest"),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the answer describes no stream: {e}") from e


RunLike: TypeAlias = "str | Run"
"""A run, or its id."""


class RunOptions(StreamOptions, total=False):
    """Options of a run; those left out have the server's defaults."""

    partitions: int
    """Number of streams; sealing requires all of them."""
    quantiles: str | float | Iterable[float]
    return_periods: str | int | Iterable[int]
    sets: str | int | Iterable[int]
    summary_ids: str | int | Iterable[int]


class ReportOptions(TypedDict, total=False):
    """What a report is made of, and as what it is written."""

    set: int
    """The summary set, of a run with several."""
    summary_ids: str | int | Iterable[int]
    """Only rows of these summaries: numbers, or text such as ``1,5,10-20``."""
    event_ids: str | int | Iterable[int]
    """Only rows of these events, in the same way."""
    variant: str
    """What ``add_reports`` returned, for a further report."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition to upload.

    Attributes:
        partition: which one it is, from 1.
        source: its stream, as for ``client.losses.post``.
        exec: a command to run instead, whose output is the stream; once its turn has come.
        state: file that lets another process go on. Of parts that are uploaded together all files
            stay until all parts are stored, so that the same call can be made again.
        replace: whether to delete the stream that the partition has, unless ``state`` goes on
            with it.
    """

    partition: int
    source: SourceLike | None = None
    exec: Sequence[str] | None = None
    state: str | os.PathLike[str] | None = None
    replace: bool = False


RUNS = "/v1/runs"
INTEROP_VERSION = "8"
"""Version of the IETF's resumable uploads."""
_LISTS = ("quantiles", "return_periods", "sets")
"""Options of numbers."""
_PLAIN = (str, int, float, type(None))
_DIALECT = {"Upload-Draft-Interop-Version": INTEROP_VERSION}


def report_spec(reports: str | Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What reports of a run are made of, as the contract has it.

    Raises:
        TypeError, ValueError: as ``options_of``; or no report is named, or one twice.
    """
    return {"reports": list(reports_of(reports)), "options": options_of(options)}


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of reports of a run, as the contract has them.

    Raises:
        TypeError: there is no such option, or it must be numbers.
        ValueError: ids are malformed.
    """
    if inputs := [name for name in INPUTS if name in options and name not in _LISTS]:
        raise TypeError(f'{inputs[0]} is an input of runs: give inputs={{"{inputs[0]}": …}}')
    check_names(options, RunOptions.__annotations__)
    for name, value in options.items():
        if not (name in _LISTS or name == "summary_ids" or isinstance(value, _PLAIN)):
            raise TypeError(f"{name} must be a text or a number, not {value!r}")
    lists: dict[str, Any] = {
        n: numbers_of(n, options[n]) for n in options if n in _LISTS and options[n] is not None
    }
    if options.get("summary_ids") is not None:
        lists["summary_ids"] = listed("summary_ids", options["summary_ids"])
    return {**options, **lists}


def create_run(spec: Mapping[str, Any], key: str) -> Request:
    """Create a run.

    Args:
        spec: as in the contract.
        key: of this creation: the same key creates one run, however often it is sent.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{key}"'}
    return Request("POST", RUNS, headers, json.dumps(spec).encode())


class RunRequests:
    """Builds the requests about one run.

    Args:
        run: the run, or its id.

    Attributes:
        streams: path of the list of its streams.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, run: RunLike) -> None:
        if not isinstance(run, str | Run):
            raise TypeError(f"a run is given by its id, or as create returned it, not as {run!r}")
        self.run = run if isinstance(run, str) else run.id
        self._path = path_of("runs", self.run)
        self.streams = f"{self._path}/streams"

    def describe(self) -> Request:
        """Ask for the state of the run."""
        return Request("GET", self._path)

    def label(self, text: str | None) -> Request:
        """Call the run something else."""
        return replace(json_request(self._path, {"label": text}), method="PATCH")

    def delete(self) -> Request:
        """Delete the run, its streams and reports."""
        return Request("DELETE", self._path)

    def seal(self, options: Mapping[str, Any]) -> Request:
        """Announce that no more streams come, and change options of the reports."""
        path = f"{self._path}/seal"
        return json_request(path, {"options": options}) if options else Request("POST", path)

    def put_input(self, name: str, data: bytes) -> Request:
        """Bind an auxiliary file to the run."""
        return Request("PUT", path_of("runs", self.run, "inputs", name), OCTETS, data)

    # -- streams -----------------------------------------------------------------------

    def create_stream(self, partition: int, length: int | None) -> Request:
        """Create the stream of a partition, without bytes.

        Args:
            partition: from 1.
            length: of the whole stream in bytes, if it is known.
        """
        headers = {**_DIALECT, "Upload-Complete": "?0", **OCTETS}
        if length is not None:
            headers["Upload-Length"] = str(length)
        return Request("POST", f"{self._path}/streams" + query_of(partition=partition), headers)

    def delete_stream(self, stream: str) -> Request:
        """Delete a stream."""
        return Request("DELETE", self.stream_target(stream))

    def stream_target(self, stream: str) -> str:
        """Return the path of a stream."""
        return path_of("runs", self.run, "streams", stream)

    # -- results -----------------------------------------------------------------------

    def rows(self, report: str, after: str | None, *, stream: str | None, follow: bool) -> Request:
        """Ask for the rows of a report, in frames."""
        query = query_of(
            format="frames", after=after, stream=stream, follow="true" if follow else None
        )
        return Request("GET", path_of("runs", self.run, "rows", report) + query)

    def progress(self, after: str | None) -> Request:
        """Ask for the events of the run's progress, after one of them."""
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        return Request("GET", f"{self._path}/progress", headers)

    def report(self, report: str, query: Mapping[str, Any]) -> Request:
        """Ask for a finished report.

        Args:
            report: its name.
            query: format, set and the like.
        """
        path = path_of("runs", self.run, "reports", report)
        return Request("GET", path + query_of(**query))

    def add_reports(self, content: Mapping[str, Any]) -> Request:
        """Have a sealed run compute further reports."""
        return json_request(f"{self._path}/reports", content)


def retrieve_offset(target: str) -> Request:
    """Ask how many bytes of a stream are stored."""
    return Request("HEAD", target, _DIALECT)


def append(target: str, offset: int, *, last: bool, length: int | None = None) -> Request:
    """Append to a stream.

    Args:
        target: path of the stream.
        offset: bytes that are stored.
        last: whether the stream ends with the body.
        length: of the whole stream, if it is known.
    """
    headers = {
        **_DIALECT,
        "Content-Type": "application/partial-upload",
        "Upload-Offset": str(offset),
        "Upload-Complete": "?1" if last else "?0",
    }
    if length is not None:
        headers["Upload-Length"] = str(length)
    return Request("PATCH", target, headers)


def stream_of_location(location: str) -> str:
    """Return the id of the stream that a Location names.

    Raises:
        ProtocolError: it names none.
    """
    ident = urlsplit(location).path.rstrip("/").rpartition("/")[2]
    if not ident:
        raise ProtocolError(f"the service created a stream at {location!r}")
    return ident
